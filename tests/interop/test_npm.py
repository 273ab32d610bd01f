"""The official JavaScript clients and servers of the standard, unmodified, in this world.

Clients pay our endpoints; servers have their payments verified and settled by our facilitator,
where clients of the same version pay them. Every payment is looked up on the chain.
"""

import pytest

from tests.interop import programs
from tests.interop.programs import NETWORKS, assert_paid, buy
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import ORDER, PRICE, Server, started

pytestmark = THOROUGH
VERSIONS = pytest.mark.parametrize("version", NETWORKS, ids=lambda version: f"v{version}")
CLIENTS = {"1": "npm x402-{client}", "2": "npm @x402/{client}"}
OTHERS = {"faremeter": "npm @faremeter/fetch", "dexter": "npm @dexterai/x402"}
SERVERS = {"1": "npm x402-{shop}", "2": "npm @x402/{shop}"}


@shows("client", CLIENTS, "x402 version {version}")
@VERSIONS
@pytest.mark.parametrize("client", ["fetch", "axios"])
def test_clients_buy_a_quote(server: Server, client: str, version: int) -> None:
    payer = server.payer()
    answer = buy(f"npm_v{version}/buy.mjs", payer, client)
    assert answer["body"]["quote"]["pair"] == ORDER["pair"]
    assert_paid(payer, server.ready["payTo"], answer, NETWORKS[version])


@shows("client", OTHERS, "x402 version 2")
@pytest.mark.parametrize("client", OTHERS)
def test_clients_of_others_buy_a_quote(server: Server, client: str) -> None:
    payer = server.payer()
    answer = buy("npm_others/buy.mjs", payer, client, rpc=server.ready["rpc"])
    assert answer["body"]["quote"]["pair"] == ORDER["pair"]
    assert_paid(payer, server.ready["payTo"], answer, NETWORKS[2])


@shows("client, fetch", "npm @x402/extensions", "payment-identifier, version 2")
def test_a_named_payment_gets_its_lost_answer_again(server: Server) -> None:
    payer = server.payer()
    named = buy("npm_v2/buy.mjs", payer, "fetch", loses=True, names=True)
    assert_paid(payer, server.ready["payTo"], named, NETWORKS[2])
    unnamed = buy("npm_v2/buy.mjs", payer, "fetch", loses=True)
    assert unnamed["status"] == 402, "another payment is not named, and its answer stays lost"


@shows("tool server and client", "npm x402-mcp", "x402 version 1 over MCP", "ledger")
def test_an_agent_pays_for_a_tool() -> None:
    with started("--network", "base-sepolia") as server:
        merchant, payer = server.payer(funds=None), server.payer()
        told = {
            "facilitator": server.ready["facilitator"],
            "payTo": merchant.address,
            "key": payer.wallet.private_key,
        }
        got = programs.run("npm_v1/mcp.mjs", told)
        (accepted,) = got["unpaid"]["structuredContent"]["accepts"]
        assert (got["unpaid"]["isError"], accepted["maxAmountRequired"]) == (True, str(PRICE))
        assert got["paid"]["content"] == [{"type": "text", "text": "Oslo: sunny"}]
        assert got["paid"]["_meta"]["x402.payment-response"]["success"] is True
        moved = (payer.address.lower(), merchant.address.lower(), PRICE)
        assert server.transfers(sender=payer.address) == [moved]
        assert got["again"]["isError"], "the same payment buys nothing twice"


@shows("tool client", "npm @modelcontextprotocol/sdk", "x402 version 2 over MCP", "ledger")
def test_the_official_client_buys_our_tool() -> None:
    with started("--network", "base-sepolia") as server:
        payer, url = server.payer(), f"{server.ready['service']}/mcp"
        told = {"url": url, "key": payer.wallet.private_key, "tool": "quote", "arguments": ORDER}
        got = programs.run("npm_v2/mcp.mjs", told)
        assert got["tools"] == ["market", "quote"]
        assert got["unpaid"]["isError"] is True
        assert got["paid"]["structuredContent"]["quote"]["pair"] == ORDER["pair"]
        receipt = got["paid"]["_meta"]["x402/payment-response"]
        payer.assert_paid(server.ready["payTo"], receipt["transaction"])


@shows("server", SERVERS, "x402 version {version}")
@VERSIONS
@pytest.mark.parametrize(("shop", "client"), [("express", "fetch"), ("hono", "axios")])
def test_servers_settle_at_our_facilitator(
    server: Server, shop: str, client: str, version: int
) -> None:
    payer, network = server.payer(), NETWORKS[version]
    with programs.selling(server, f"npm_v{version}/sell.mjs", shop, network) as (url, merchant):
        answer = buy(f"npm_v{version}/buy.mjs", payer, client, url)
    assert answer["body"] == {"weather": "sunny"}
    assert_paid(payer, merchant, answer, network)


@shows("client", "npm @crypto.com/facilitator-client", "Cronos", "ledger")
def test_the_cronos_client_buys_a_quote_in_two_steps() -> None:
    with started() as server:
        payer = server.payer()
        told = {"base": server.ready["service"], "key": payer.wallet.private_key, "order": ORDER}
        got = programs.run("npm_v2/cronos.cjs", told)
        assert got["supported"]["kinds"] == [
            {"x402Version": 1, "scheme": "exact", "network": "cronos-testnet"}
        ]
        assert got["verified"] == {"isValid": True, "invalidReason": None}
        assert got["receipt"]["success"] is True
        assert (got["again"]["event"], got["again"]["error"]) == (
            "payment.failed", "Authorization already used",
        )  # fmt: skip
        assert got["status"] == 200
        assert payer.transfers == 1


@shows("client", "npm @x402/fetch", "x402 version 2 on Cronos, `spendControls: false`", "ledger")
def test_over_cronos_a_client_of_version_2_must_be_allowed_the_token() -> None:
    """It knows the SDK's default tokens only; `spendControls: false` lets it pay in others."""
    with started() as server:
        payer = server.payer()
        with pytest.raises(AssertionError, match="spend"):
            buy("npm_v2/buy.mjs", payer, "fetch", network="eip155:338")
        assert payer.transfers == 0
        answer = buy("npm_v2/buy.mjs", payer, "fetch", network="eip155:338", anyAsset=True)
        assert answer["status"] == 200
        assert payer.transfers == 1
