"""Other people's conformance suites judge our facilitator, our priced page and our MCP server.

Not run here, and why: the suite of moped2110 is in no package registry (run by hand, it finds our
facilitator 9 of 9, settlement included, and our page 48 of 48, seven not applicable); the modes
demo, offline and devnet of x402-conformance test doubles of its own, or Solana; x402lint needs a
newer Python than the oldest that x402sim runs on.
"""

import json
import os
import re
import subprocess
from typing import Any

import httpx
import pytest

from tests import npm
from tests.interop import programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import Server
from x402sim import BASE_SEPOLIA, LocalServer, PaymentAuth

pytestmark = THOROUGH
SUPPORTED = ["S1", "S2", "S3", "S4"]
KINDS = ("PaymentRequired", "PaymentPayload", "SettlementResponse")
PAGE = ["P1", "P2", "P3", "P4", "P5", "P6", "P7"]


def judged(*command: str) -> tuple[int, Any]:
    """Run a module of somebody else; return its exit code, and what it printed."""
    done = subprocess.run(
        [programs.python(), "-E", "-m", *command],
        capture_output=True,
        text=True,
        env={**os.environ, **programs.NO_PROXY},
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@shows("conformance suite, mode {mode}", "PyPI x402-conformance", "x402 version 2")
@pytest.mark.parametrize("mode", ["live", "resource"])
def test_x402_conformance_finds_nothing(server: Server, mode: str) -> None:
    page = server.ready["service"] + "/api/perp/market"
    url = {"live": server.ready["facilitator"], "resource": page}[mode]
    code, told = judged("x402conf", mode, url, "--fail-on-error")
    assert code == 0, told
    (result,) = told["results"]
    verdicts = {check["check"].split()[0]: check["pass"] for check in result["checks"]}
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
    for value, kind in zip(values, KINDS, strict=True):
        code, told = judged("x402_inspect.cli", "--json", value)
        assert (code, told["kind"], told["findings"]) == (0, kind, [])
    code, told = judged("x402_inspect.cli", "--json", '{"accepts": []}')
    assert (code, len(told["findings"])) == (1, 3)


MCP = ["server-initialize", "ping", "tools-list", "dns-rebinding-protection"]
"""The scenarios for every server of tools; the others call tools and features of the suite's own."""


@shows("conformance suite of MCP", "npm @modelcontextprotocol/conformance", "MCP", "ledger")
@pytest.mark.parametrize("scenario", MCP)
def test_the_conformance_suite_of_mcp_finds_nothing_in_our_tools(scenario: str) -> None:
    packages = npm.packages(programs.FOLDER / "npm_mcp")
    suite = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with LocalServer() as server:
        url = ["--url", server.url + "/mcp", "--scenario", scenario]
        done = subprocess.run(
            [npm.node(), suite, "server", *url], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stdout + done.stderr
    passed, failed = re.findall(r"Passed: (\d+)/\d+, (\d+) failed", done.stdout)[0]
    assert (int(passed) > 0, failed) == (True, "0"), done.stdout
