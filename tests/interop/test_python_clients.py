"""The official Python clients, unmodified, pay our priced endpoints in one step."""

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.interop import programs
from tests.interop.table import THOROUGH, shows
from tests.serve.driver import ORDER, PRICE, QUOTE, Server, started
from x402sim import BASE_SEPOLIA, PaymentAuth, PaymentFailed, Wallet

pytestmark = THOROUGH
MARKET = "/api/perp/market"
NETWORKS = {1: "base-sepolia", 2: "eip155:84532"}
WITHOUT_VERSION_2 = "x402 version 1, where a 402 has no `PAYMENT-REQUIRED`"
"""The library prefers version 2, so client.py takes that header away below it."""
ON_CRONOS = "x402 version 2 on Cronos, `set_spend_controls(False)`"
SENT_BACK = {1: "X-PAYMENT-RESPONSE", 2: "PAYMENT-RESPONSE"}


def run(server: Server, library: str, version: int, **told: Any) -> tuple[list[Any], Any]:
    """Let a client of this library ask for both resources; return its answers and its payer."""
    payer = server.payer()
    asks = [["POST", QUOTE, ORDER], ["GET", MARKET, None]]
    answers = programs.run(
        "client.py",
        {
            "url": server.ready["service"],
            "asks": asks,
            "library": library,
            "version": version,
            "key": payer.wallet.private_key,
            "network": NETWORKS[version],
            "limits": True,
            **told,
        },
    )
    return answers, payer


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(1, marks=shows("client, {library}", "PyPI x402", WITHOUT_VERSION_2)),
        pytest.param(2, marks=shows("client, {library}", "PyPI x402", "x402 version 2")),
    ],
)
@pytest.mark.parametrize("library", ["httpx", "requests"])
def test_a_client_pays_for_a_post_and_a_get(server: Server, library: str, version: int) -> None:
    (quote, market), payer = run(server, library, version)
    assert (quote["status"], market["status"]) == (200, 200), (quote, market)
    assert quote["body"]["quote"]["pair"] == ORDER["pair"]
    assert market["body"]["market"]
    assert payer.transfers == 2
    assert (
        server.transfers(sender=payer.address)
        == [(payer.address.lower(), server.ready["payTo"].lower(), PRICE)] * 2
    )
    for answer in (quote, market):
        settlement = answer["settlements"].pop(SENT_BACK[version])
        assert not answer["settlements"]
        assert settlement["success"]
        assert settlement["payer"] == payer.address
        assert re.fullmatch("0x[0-9a-f]{64}", settlement["transaction"])


@shows("client, httpx", "PyPI x402", "payment flow `{flow}`, version 2", "ledger")
@pytest.mark.parametrize("flow", ["authorization", "upfront"])
def test_a_client_pays_in_either_flow(flow: str) -> None:
    with started("--network", "base-sepolia", "--payment-flow", flow) as server:
        answers, payer = run(server, "httpx", 2)
        assert [answer["status"] for answer in answers] == [200, 200], answers
        assert payer.transfers == 2
        (way,) = server.http.post(QUOTE, json=ORDER).json()["accepts"]
        assert way["extra"]["paymentFlow"] == flow


@shows("client, httpx", "PyPI x402", "payment-identifier, version 2")
def test_a_named_payment_gets_its_lost_answer_again(server: Server) -> None:
    answers, payer = run(server, "httpx", 2, names=True)
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
    answers, payer = run(cronos, library, 2, network="eip155:338", limits=False)
    assert [answer["status"] for answer in answers] == [200, 200], answers
    assert payer.transfers == 2


def test_on_cronos_its_spend_controls_refuse_to_pay(cronos: Server) -> None:
    with pytest.raises(AssertionError, match="rejected by spend_controls"):
        run(cronos, "httpx", 2, network="eip155:338")


# --- clients of others -------------------------------------------------------------------


def bought(server: Server, client: str, path: str, network: str, **told: Any) -> dict[str, Any]:
    """Let a client buy, and check that it paid once; return the answer, and what its header says."""
    payer = server.payer()
    told |= {"client": client, "url": server.ready["service"] + path, "network": network}
    answer = programs.run("buy.py", told | {"key": payer.wallet.private_key})
    assert answer["status"] == 200, answer
    sent = next(
        text for name, text in answer["headers"].items() if name.endswith("payment-response")
    )
    settled = json.loads(base64.b64decode(sent))
    assert (settled["success"], settled["network"]) == (True, network)
    payer.assert_paid(server.ready["payTo"], settled["transaction"])
    return answer


@shows("client, {client}", "PyPI x402-client", "x402 version 2")
@pytest.mark.parametrize("client", ["sync", "async"])
def test_x402_client_buys_a_quote_and_a_snapshot(server: Server, client: str) -> None:
    answer = bought(server, client, QUOTE, NETWORKS[2], body=ORDER)
    assert answer["body"]["quote"]["pair"] == ORDER["pair"]
    assert bought(server, client, MARKET, NETWORKS[2])["body"]["market"]


@shows("client", "PyPI x402kit", "x402 version 1 on Base", "ledger")
def test_x402kit_pays_on_base_alone() -> None:
    """It signs for a token that is named USD Coin, as it is on Base; on Base Sepolia it is USDC."""
    with started("--network", "base") as server:
        assert bought(server, "x402kit", MARKET, "base")["body"]["market"]
    with started("--network", "base-sepolia") as server:
        with pytest.raises(AssertionError, match="payment refused"):
            bought(server, "x402kit", MARKET, NETWORKS[1])
        assert server.transfers(to=server.ready["payTo"]) == []
        (refused,) = [each for each in server.journal() if each["event"] == "payment refused"]
        assert "name: wanted USDC, got USD Coin" in refused["reason"]


# --- our client, at other people's servers -----------------------------------------------


@pytest.mark.parametrize("shop", ["fastapi", "flask"])
def test_our_payer_pays_the_official_servers(server: Server, shop: str) -> None:
    merchant, payer = server.payer(funds=None), server.payer()
    sells = programs.sale(shop, server.ready["facilitator"], merchant.address, NETWORKS[2])
    auth = PaymentAuth(payer.wallet, network=BASE_SEPOLIA)
    with (
        programs.serving("sell.py", sells) as url,
        httpx.Client(auth=auth, trust_env=False) as http,
    ):
        first, second = [http.get(f"{url}/weather") for _ in range(2)]
        poor = PaymentAuth(Wallet.create(), network=BASE_SEPOLIA)
        with pytest.raises(PaymentFailed, match="insufficient_funds"):
            http.get(f"{url}/weather", auth=poor)
        foreign = PaymentAuth(payer.wallet)
        with pytest.raises(PaymentFailed, match="network is 'eip155:84532', this payer pays"):
            http.get(f"{url}/weather", auth=foreign)
    assert (first.status_code, second.status_code) == (200, 200)
    moved = [(payer.address.lower(), merchant.address.lower(), PRICE)] * 2
    assert server.transfers(sender=payer.address) == moved
    assert [each.network for each in auth.settlements] == [NETWORKS[2]] * 2
    assert auth.signed_base == 2 * PRICE
