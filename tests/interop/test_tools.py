"""Honest MCP servers on the official SDKs are left alone by the judge of servers."""

import shlex

import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH
from x402sim.judging import judge
from x402sim.report.results import Outcome

SHOPS = {"stdio": "mcp_shop.py", "/mcp": "npm_v2/mcp_shop.mjs"}


@THOROUGH
@pytest.mark.waits
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", SHOPS)
def test_an_honest_server_on_an_official_sdk_breaks_nothing(place: str) -> None:
    start = shlex.join(programs.command(SHOPS[place]))
    item, also = f'MCP {place} forecast {{"city": "Oslo"}}', f"MCP {place} weather"
    verdict = judge("server", [item], start=start, also=[also], strict=True)
    wrong = (Outcome.FAILED, Outcome.INCONCLUSIVE)
    found = {each.id: str(each.actual) for each in verdict.results if each.outcome in wrong}
    assert not found, found
    passed = [each for each in verdict.results if each.outcome is Outcome.PASSED]
    assert len(passed) > 100
