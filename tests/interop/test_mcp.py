"""A tool of an MCP server is paid for through our facilitator, by an agent."""

import json

from tests.interop import programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import PRICE, started

pytestmark = THOROUGH
NETWORK = "eip155:84532"


@shows("tool server and client", "PyPI mcp", "x402 version 2 over MCP", "ledger")
def test_an_agent_pays_for_a_tool() -> None:
    with started("--network", "base-sepolia") as server:
        merchant, payer = server.payer(funds=None), server.payer()
        settings = {
            "FACILITATOR": server.ready["facilitator"],
            "PAY_TO": merchant.address,
            "NETWORK": NETWORK,
        }
        told = {"server": settings, "key": payer.wallet.private_key}
        got = programs.run("mcp_client.py", told)

        assert got["unpaid"]["isError"] is True
        required = json.loads(got["unpaid"]["content"][0]["text"])
        (accepted,) = required["accepts"]
        assert (accepted["network"], accepted["amount"]) == (NETWORK, str(PRICE))

        assert (got["isError"], got["content"]) == (False, ["Oslo: sunny"])
        assert got["paid"]["success"] is True
        payer.assert_paid(merchant.address, got["paid"]["transaction"])
