"""The official SDKs of MCP: our payer pays through their session, and honest servers on them are left alone."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH
from x402sim.judging import judge
from x402sim.suite.report.results import Outcome

PAYS = """
import asyncio
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from x402sim import BASE_SEPOLIA, LocalServer, PaymentAuth
from x402sim.payer.tools import call_paid

async def main(server):
    auth = PaymentAuth(server.wallets[0], network=BASE_SEPOLIA)
    async with streamablehttp_client(server.url + "/mcp") as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        result = await call_paid(session, auth, "market", server="shop")
    (paid,) = auth.settlements
    print(type(result).__name__, *result.structuredContent, paid.transaction == server.transfers()[0].tx_hash)

with LocalServer(network=BASE_SEPOLIA) as server:
    asyncio.run(main(server))
"""
SHOPS = {"stdio": "mcp_shop.py", "/mcp": "npm_v2/mcp_shop.mjs"}


@THOROUGH
@pytest.mark.waits
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", SHOPS)
def test_an_honest_server_on_an_official_sdk_breaks_nothing(place: str) -> None:
    start = shlex.join(programs.command(SHOPS[place]))
    item, also = f'MCP {place} forecast {{"city": "Oslo"}}', f"MCP {place} weather"
    # they keep what they know in memory: a restart is not for them
    verdict = judge("server", [item], start=start, also=[also], restart="no", strict=True)
    wrong = (Outcome.FAILED, Outcome.INCONCLUSIVE)
    found = {each.id: str(each.actual) for each in verdict.results if each.outcome in wrong}
    assert not found, found
    passed = [each for each in verdict.results if each.outcome is Outcome.PASSED]
    assert len(passed) > 100


@THOROUGH
def test_our_payer_pays_through_a_session_of_the_official_client() -> None:
    (theirs,) = Path(programs.python()).parents[1].glob("lib/python*/site-packages")
    done = subprocess.run(
        [sys.executable, "-c", PAYS],
        env={**os.environ, "PYTHONPATH": str(theirs)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["CallToolResult", "market", "True"], done.stderr
