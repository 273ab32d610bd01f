"""The official Python clients and servers, unmodified, and those of others, in this world.

Clients pay our endpoints in one step; servers (FastAPI, Flask), their facilitator client and a
client of discovery ask our facilitator. Every payment is looked up on the chain.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.interop import programs
from tests.interop.onchain import token
from tests.interop.pairings import SERVICE, shows_routes
from tests.interop.programs import NETWORKS, assert_paid, buy
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import ORDER, PRICE, QUOTE, Payer, Server, started
from x402sim import BASE_SEPOLIA, PaymentAuth, PaymentFailed, Wallet
from x402sim.protocol.bazaar import faults_of_402

pytestmark = THOROUGH
MARKET = "/api/perp/market"
WITHOUT_VERSION_2 = "x402 version 1, where a 402 has no `PAYMENT-REQUIRED`"
"""The library prefers version 2, so client.py takes that header away below it."""
ON_CRONOS = "x402 version 2 on Cronos, `set_spend_controls(False)`"
SENT_BACK = {1: "X-PAYMENT-RESPONSE", 2: "PAYMENT-RESPONSE"}
USED = {1: "invalid_transaction_state", 2: "invalid_exact_evm_nonce_already_used"}
WEATHER = {"weather": "sunny"}


def run(payer: Payer, library: str, version: int = 2, **told: Any) -> Any:
    """Let a client of this library ask for both our resources; return its answers."""
    asked = {
        "url": payer.server.ready["service"],
        "asks": [["POST", QUOTE, ORDER], ["GET", MARKET, None]],
        "library": library,
        "version": version,
        "key": payer.wallet.private_key,
        "network": NETWORKS[version],
        "limits": True,
    }
    return programs.run("client.py", asked | told)


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(1, marks=shows("client, {library}", "PyPI x402", WITHOUT_VERSION_2)),
        pytest.param(2, marks=shows("client, {library}", "PyPI x402", "x402 version 2")),
    ],
)
@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_a_client_pays_for_a_post_and_a_get(server: Server, library: str, version: int) -> None:
    payer = server.payer()
    quote, market = run(payer, library, version)
    assert (quote["status"], market["status"]) == (200, 200), (quote, market)
    assert quote["body"]["quote"]["pair"] == ORDER["pair"]
    assert market["body"]["market"]
    moved = (payer.address.lower(), server.ready["payTo"].lower(), PRICE)
    assert server.transfers(sender=payer.address) == [moved] * 2
    for answer in (quote, market):
        settlement = answer["settlements"].pop(SENT_BACK[version])
        assert not answer["settlements"]
        assert settlement["success"]
        assert settlement["payer"] == payer.address
        assert re.fullmatch("0x[0-9a-f]{64}", settlement["transaction"])


@shows_routes(SERVICE, "/exact/evm/eip3009/upfront")
@shows("client, httpx", "PyPI x402", "payment flow `{flow}`, version 2", "ledger")
@pytest.mark.parametrize("flow", ["authorization", "upfront"])
def test_a_client_pays_in_either_flow(flow: str) -> None:
    with started("--network", "base-sepolia", "--payment-flow", flow) as server:
        payer = server.payer()
        answers = run(payer, "httpx")
        assert [answer["status"] for answer in answers] == [200, 200], answers
        assert payer.transfers == 2
        (way,) = server.http.post(QUOTE, json=ORDER).json()["accepts"]
        assert way["extra"]["paymentFlow"] == flow


@shows("client, httpx", "PyPI x402", "payment-identifier, version 2")
def test_a_named_payment_gets_its_lost_answer_again(server: Server) -> None:
    payer = server.payer()
    answers = run(payer, "httpx", names=True)
    assert [answer["status"] for answer in answers] == [200, 200], answers
    assert all(answer["settlements"][SENT_BACK[2]]["success"] for answer in answers)
    assert payer.transfers == 2


@pytest.fixture(scope="module")
def cronos() -> Iterator[Server]:
    with started() as running:
        yield running


@shows("client, {library}", "PyPI x402", ON_CRONOS, "ledger")
@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_on_cronos_a_client_of_version_2_pays_without_its_spend_controls(
    cronos: Server, library: str
) -> None:
    payer = cronos.payer()
    answers = run(payer, library, network="eip155:338", limits=False)
    assert [answer["status"] for answer in answers] == [200, 200], answers
    assert payer.transfers == 2


def test_on_cronos_its_spend_controls_refuse_to_pay(cronos: Server) -> None:
    with pytest.raises(AssertionError, match="rejected by spend_controls"):
        run(cronos.payer(), "httpx", network="eip155:338")


# --- clients of others -------------------------------------------------------------------


@shows("client, {client}", "PyPI x402-client", "x402 version 2")
@pytest.mark.parametrize("client", ["sync", "async"])
def test_x402_client_buys_a_quote_and_a_snapshot(server: Server, client: str) -> None:
    for url, shown in ((None, "quote"), (server.ready["service"] + MARKET, "market")):
        payer = server.payer()
        answer = buy("buy.py", payer, client, url)
        assert_paid(payer, server.ready["payTo"], answer, NETWORKS[2])
        assert answer["body"][shown]


@shows("client", "PyPI x402kit", "x402 version 1 on Base", "ledger")
def test_x402kit_pays_on_base_alone() -> None:
    """It signs for a token that is named USD Coin, as it is on Base; on Base Sepolia it is USDC."""
    with started("--network", "base") as server:
        payer, url = server.payer(), server.ready["service"] + MARKET
        answer = buy("buy.py", payer, "x402kit", url, network="base")
        assert_paid(payer, server.ready["payTo"], answer, "base")
        assert answer["body"]["market"]
    with started("--network", "base-sepolia") as server:
        url = server.ready["service"] + MARKET
        with pytest.raises(AssertionError, match="payment refused"):
            buy("buy.py", server.payer(), "x402kit", url, network=NETWORKS[1])
        assert server.transfers(to=server.ready["payTo"]) == []
        (refused,) = [each for each in server.journal() if each["event"] == "payment refused"]
        assert "name: wanted USDC, got USD Coin" in refused["reason"]


# --- servers, and who asks our facilitator -----------------------------------------------


def visit(payer: Payer, page: str, **told: Any) -> Any:
    """Let the official client get a page of a shop; return its answer."""
    url, _, path = page.rpartition("/")
    (answer,) = run(payer, "httpx", url=url, asks=[["GET", f"/{path}", None]], **told)
    return answer


@shows("server, {shop}", "PyPI x402", "x402 version 2")
@pytest.mark.parametrize("shop", ["fastapi", "flask"])
def test_servers_settle_at_our_facilitator(server: Server, shop: str) -> None:
    """They are paid by the client of their package, and by ours."""
    theirs, payer = server.payer(), server.payer()
    auth = PaymentAuth(payer.wallet, network=BASE_SEPOLIA)
    with (
        programs.selling(server, "sell.py", shop, NETWORKS[2]) as (url, merchant),
        httpx.Client(trust_env=False) as http,
    ):
        answer = visit(theirs, url)
        first, second = [http.get(url, auth=auth) for _ in range(2)]
        proof = {"PAYMENT-SIGNATURE": first.request.headers["PAYMENT-SIGNATURE"]}
        again, unreadable = (
            http.get(url, headers=headers) for headers in (proof, {"PAYMENT-SIGNATURE": "nonsense"})
        )
        poor = PaymentAuth(Wallet.create(), network=BASE_SEPOLIA)
        with pytest.raises(PaymentFailed, match="insufficient_funds"):
            http.get(url, auth=poor)
        foreign = PaymentAuth(payer.wallet, network="cronos-testnet")
        with pytest.raises(PaymentFailed, match="network is 'eip155:84532', this payer pays"):
            http.get(url, auth=foreign)
    assert (answer["status"], answer["body"]) == (200, WEATHER)
    settlement = answer["settlements"][SENT_BACK[2]]
    assert (settlement["success"], settlement["network"]) == (True, NETWORKS[2])
    theirs.assert_paid(merchant, settlement["transaction"])
    assert (first.status_code, second.status_code, first.json()) == (200, 200, WEATHER)
    assert again.status_code == 402, "the same payment buys nothing twice"
    assert unreadable.status_code in (400, 402)
    moved = [(payer.address.lower(), merchant.lower(), PRICE)] * 2
    assert server.transfers(sender=payer.address) == moved
    assert [each.network for each in auth.settlements] == [NETWORKS[2]] * 2
    assert auth.signed_base == 2 * PRICE


@shows("server", "PyPI fastapi-x402", "x402 version 1")
def test_a_facilitator_request_without_version_is_answered(server: Server) -> None:
    """It sends no `x402Version` beside `paymentPayload`, which has one."""
    payer = server.payer()
    with programs.selling(server, "sell.py", "fastapi-x402", NETWORKS[1]) as (url, merchant):
        answer = buy("npm_v1/buy.mjs", payer, "fetch", url)
    assert answer["body"] == WEATHER
    assert_paid(payer, merchant, answer, NETWORKS[1])


@shows("server on two networks, fastapi", "PyPI x402", "x402 version 2", "ledger")
def test_a_shop_on_two_networks_is_paid_on_either() -> None:
    """The client takes the first network that is offered."""
    names = {"eip155:8453": "base", NETWORKS[2]: NETWORKS[1]}
    with started("--network", "base-sepolia", "--network", "base") as server:
        payer = server.account()
        for networks in ([*names], [*reversed(names)]):
            with programs.selling(server, "sell.py", "fastapi", *networks) as (url, merchant):
                answer = visit(payer, url, network="eip155:*")
            settlement = answer["settlements"][SENT_BACK[2]]
            assert (answer["status"], settlement["network"]) == (200, networks[0])
            asked = {"network": names[networks[0]], "account": merchant}
            (moved,) = server.http.get("/_sim/transfers", params=asked).json()
            assert (moved["sender"], moved["amountBase"]) == (payer.address, str(PRICE))


@shows("client of discovery", "PyPI x402", "x402 version 2")
def test_what_is_sold_here_is_found(server: Server) -> None:
    asked = {"facilitator": server.ready["facilitator"], "query": "market snapshot"}
    got = programs.run("discover.py", asked)
    base = server.ready["service"]
    urls = {each["resource"] for each in got["listed"]}
    assert {base + QUOTE, base + MARKET} <= urls
    assert got["found"][0] == base + MARKET
    quote = next(each for each in got["listed"] if each["resource"].endswith("quote"))
    assert got["faults"] == []
    for each in got["declared"]:
        said = {"extensions": {"bazaar": each}, "resource": {"url": base}}
        assert list(faults_of_402(said, 2)) == [], "what the SDK declares, is right"
    asks = quote["extensions"]["bazaar"]["info"]["input"]
    assert (asks["method"], server.http.post(QUOTE, json=asks["body"]).status_code) == ("POST", 402)


@shows("facilitator client", "PyPI x402", "x402 version {version}")
@pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])
def test_the_facilitator_client_is_answered(server: Server, version: int) -> None:
    merchant, payer = server.payer(funds=None), server.payer()
    asked = {
        "facilitator": server.ready["facilitator"],
        "x402": version,
        "alice": payer.wallet.private_key,
        "shop": merchant.address,
        "amount": PRICE,
    }
    got = programs.run("facilitate.py", token(server) | asked)
    kinds = {(kind["x402Version"], kind["network"]) for kind in got["supported"]["kinds"]}
    assert kinds == set(NETWORKS.items())
    permits = ["eip2612GasSponsoring"] * (server.ready["chain"] == "ledger")
    sponsorings = [*permits, "erc20ApprovalGasSponsoring"]  # anvil's token takes no permits
    assert got["supported"]["extensions"] == ["bazaar", *sponsorings]
    (signer,) = got["supported"]["signers"]["eip155:*"]
    assert got["verified"]["isValid"] is True
    assert got["verified"]["payer"] == payer.address
    mismatch = "invalid_exact_evm_payload_recipient_mismatch"
    assert (got["mismatch"]["isValid"], got["mismatch"]["invalidReason"]) == (False, mismatch)
    settled = got["settled"]
    assert (settled["success"], settled["network"]) == (True, NETWORKS[version])
    payer.assert_paid(merchant.address, settled["transaction"])
    mined = server.rpc("eth_getTransactionReceipt", settled["transaction"])
    assert mined["from"].lower() == signer.lower()
    assert (got["again"]["success"], got["again"]["errorReason"]) == (False, USED[version])
    assert (got["used"]["isValid"], got["used"]["invalidReason"]) == (False, USED[version])


@shows("tool server and client", "PyPI mcp", "x402 version 2 over MCP", "ledger")
def test_an_agent_pays_for_a_tool() -> None:
    with started("--network", "base-sepolia") as server:
        merchant, payer = server.payer(funds=None), server.payer()
        told = {
            "FACILITATOR_URL": server.ready["facilitator"],
            "X402SIM_PAY_TO": merchant.address,
            "X402SIM_NETWORK": NETWORKS[2],
        }
        asked = {"key": payer.wallet.private_key, "tool": "forecast", "arguments": {"city": "Oslo"}}
        got = programs.run("mcp_client.py", {"server": told, **asked})
        assert got["unpaid"]["isError"] is True
        (accepted,) = json.loads(got["unpaid"]["content"][0]["text"])["accepts"]
        assert (accepted["network"], accepted["amount"]) == (NETWORKS[2], str(PRICE))
        assert (got["isError"], got["content"]) == (False, ["Oslo: sunny"])
        assert got["paid"]["success"] is True
        payer.assert_paid(merchant.address, got["paid"]["transaction"])


@shows("tool client", "PyPI mcp", "x402 version 2 over MCP", "ledger")
def test_an_agent_buys_our_tool() -> None:
    with started("--network", "base-sepolia") as server:
        payer, url = server.payer(), f"{server.ready['service']}/mcp"
        told = {"url": url, "key": payer.wallet.private_key, "tool": "quote", "arguments": ORDER}
        got = programs.run("mcp_client.py", told)
        assert got["tools"] == ["market", "quote"]
        assert (got["isError"], json.loads(got["content"][0])["quote"]["pair"]) == (
            False,
            ORDER["pair"],
        )
        payer.assert_paid(server.ready["payTo"], got["paid"]["transaction"])
