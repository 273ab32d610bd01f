"""Other people's conformance suites judge our facilitator and our priced page.

Not run here, and why: the suite of moped2110 is in no package registry (run by hand, it finds our
facilitator 9 of 9, settlement included, and our page 48 of 48, seven not applicable); the modes
demo, offline and devnet of x402-conformance test doubles of its own, or Solana; x402lint needs a
newer Python than the oldest that x402sim runs on.
"""

import httpx
import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import Server
from x402sim import BASE_SEPOLIA, PaymentAuth

pytestmark = THOROUGH
SUPPORTED = ["S1", "S2", "S3", "S4"]
PAGE = ["P1", "P2", "P3", "P4", "P5", "P6", "P7"]


@shows("conformance suite, mode {mode}", "PyPI x402-conformance", "x402 version 2")
@pytest.mark.parametrize("mode", ["live", "resource"])
def test_x402_conformance_finds_nothing(server: Server, mode: str) -> None:
    page = server.ready["service"] + "/api/perp/market"
    url = {"live": server.ready["facilitator"], "resource": page}[mode]
    got = programs.run("conformance.py", {"mode": mode, "url": url})
    verdicts = {check["check"].split()[0]: check["pass"] for check in got["checks"]}
    assert got["exit"] == 0, got
    assert verdicts == dict.fromkeys(SUPPORTED if mode == "live" else PAGE, True)


@shows("inspector of headers", "PyPI x402-inspect", "x402 version 2")
def test_x402_inspect_reads_our_headers(server: Server) -> None:
    """It reads the 402, the payment of our payer and the receipt; a wrong one shows that it looks."""
    page = server.ready["service"] + "/api/perp/market"
    auth = PaymentAuth(server.payer().wallet, network=BASE_SEPOLIA, version=2)
    with httpx.Client(trust_env=False) as http:
        asked, paid = http.get(page), http.get(page, auth=auth)
    assert (asked.status_code, paid.status_code) == (402, 200)
    values = [
        asked.headers["payment-required"],
        paid.request.headers["payment-signature"],
        paid.headers["payment-response"],
    ]
    *read, wrong = programs.run("inspect_headers.py", [*values, '{"accepts": []}'])
    kinds = ("PaymentRequired", "PaymentPayload", "SettlementResponse")
    assert read == [{"exit": 0, "kind": kind, "findings": []} for kind in kinds]
    assert (wrong["exit"], len(wrong["findings"])) == (1, 3)
