"""The official JavaScript clients and servers of the standard, unmodified, in this world.

Clients pay our endpoints; servers have their payments verified and settled by our facilitator,
where clients of the same version pay them. Every payment is looked up on the chain.
"""

import base64
import json
from typing import Any

import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import ORDER, PRICE, QUOTE, Payer, Server, started

pytestmark = THOROUGH
VERSIONS = {
    "v1": ("base-sepolia", "x-payment-response"),
    "v2": ("eip155:84532", "payment-response"),
}
CLIENTS = {"1": "npm x402-{client}", "2": "npm @x402/{client}"}
OTHERS = {"faremeter": "npm @faremeter/fetch", "dexter": "npm @dexterai/x402"}
SERVERS = {"1": "npm x402-{shop}", "2": "npm @x402/{shop}"}


def assert_paid(payer: Payer, to: str, answer: dict[str, Any], version: str) -> None:
    """Check that the answer came for one payment of PRICE, and that its header names it."""
    assert answer["status"] == 200, answer
    network, header = VERSIONS[version]
    told = json.loads(base64.b64decode(answer["headers"][header]))
    payer.assert_paid(to, told["transaction"])
    assert told["success"] is True
    assert told["network"] == network
    assert told["payer"].lower() == payer.address.lower()


@shows("client", CLIENTS, "x402 version {version}")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client", ["fetch", "axios"])
def test_clients_buy_a_quote(server: Server, client: str, version: str) -> None:
    payer = server.payer()
    answer = programs.run(
        f"npm_{version}/buy.mjs",
        {
            "client": client,
            "url": server.ready["service"] + QUOTE,
            "key": payer.wallet.private_key,
            "network": "eip155:84532",
            "body": ORDER,
        },
    )
    assert answer["body"]["quote"]["pair"] == ORDER["pair"]
    assert_paid(payer, server.ready["payTo"], answer, version)


@shows("client", OTHERS, "x402 version 2")
@pytest.mark.parametrize("client", OTHERS)
def test_clients_of_others_buy_a_quote(server: Server, client: str) -> None:
    payer = server.payer()
    told = {
        "client": client,
        "url": server.ready["service"] + QUOTE,
        "key": payer.wallet.private_key,
        "rpc": server.ready["rpc"],
        "body": ORDER,
    }
    answer = programs.run("npm_others/buy.mjs", told)
    assert answer["body"]["quote"]["pair"] == ORDER["pair"]
    assert_paid(payer, server.ready["payTo"], answer, "v2")


@shows("client, fetch", "npm @x402/extensions", "payment-identifier, version 2")
def test_a_named_payment_gets_its_lost_answer_again(server: Server) -> None:
    payer = server.payer()
    told = {
        "client": "fetch",
        "url": server.ready["service"] + QUOTE,
        "key": payer.wallet.private_key,
        "network": "eip155:84532",
        "body": ORDER,
        "loses": True,
    }
    named = programs.run("npm_v2/buy.mjs", told | {"names": True})
    assert_paid(payer, server.ready["payTo"], named, "v2")
    unnamed = programs.run("npm_v2/buy.mjs", told)
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


@shows("server", SERVERS, "x402 version {version}")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("shop", "client"), [("express", "fetch"), ("hono", "axios")])
def test_servers_settle_at_our_facilitator(
    server: Server, shop: str, client: str, version: str
) -> None:
    network, _ = VERSIONS[version]
    merchant, payer = server.payer(funds=None), server.payer()
    sells = programs.sale(shop, server.ready["facilitator"], merchant.address, network)
    with programs.serving(f"npm_{version}/sell.mjs", sells) as url:
        buys = {"client": client, "url": f"{url}/weather", "key": payer.wallet.private_key}
        answer = programs.run(f"npm_{version}/buy.mjs", buys | {"network": network})
    assert answer["body"] == {"weather": "sunny"}
    assert_paid(payer, merchant.address, answer, version)


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
        buys = {
            "client": "fetch",
            "url": server.ready["service"] + QUOTE,
            "key": payer.wallet.private_key,
            "network": "eip155:338",
            "body": ORDER,
        }
        with pytest.raises(AssertionError, match="spend"):
            programs.run("npm_v2/buy.mjs", buys)
        assert payer.transfers == 0
        answer = programs.run("npm_v2/buy.mjs", buys | {"anyAsset": True})
        assert answer["status"] == 200
        assert payer.transfers == 1
