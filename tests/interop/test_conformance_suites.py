"""Other people's conformance suites judge our facilitator and our priced page.

Not run here, and why: the suite of moped2110 is in no package registry (run by hand, it finds our
facilitator 9 of 9, settlement included, and our page 48 of 48, seven not applicable); the modes
demo, offline and devnet of x402-conformance test doubles of its own, or Solana.
"""

import pytest

from tests.interop import venv
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import Server

pytestmark = THOROUGH
SUPPORTED = ["S1", "S2", "S3", "S4"]
PAGE = ["P1", "P2", "P3", "P4", "P5", "P6", "P7"]


@shows("conformance suite, mode {mode}", "PyPI x402-conformance", "x402 version 2")
@pytest.mark.parametrize("mode", ["live", "resource"])
def test_x402_conformance_finds_nothing(server: Server, mode: str) -> None:
    page = server.ready["service"] + "/api/perp/market"
    url = {"live": server.ready["facilitator"], "resource": page}[mode]
    got = venv.run("conformance.py", {"mode": mode, "url": url})
    verdicts = {check["check"].split()[0]: check["pass"] for check in got["checks"]}
    assert got["exit"] == 0, got
    assert verdicts == dict.fromkeys(SUPPORTED if mode == "live" else PAGE, True)
