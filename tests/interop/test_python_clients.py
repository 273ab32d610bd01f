"""The official Python clients, unmodified, pay our priced endpoints in one step."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop import venv
from tests.serve.driver import ORDER, PRICE, QUOTE, Server, started

MARKET = "/api/perp/market"
NETWORKS = {1: "base-sepolia", 2: "eip155:84532"}
SENT_BACK = {1: "X-PAYMENT-RESPONSE", 2: "PAYMENT-RESPONSE"}


def run(server: Server, library: str, version: int, **told: Any) -> tuple[list[Any], Any]:
    """Let a client of this library ask for both resources; return its answers and its payer."""
    payer = server.payer()
    asks = [["POST", QUOTE, ORDER], ["GET", MARKET, None]]
    answers = venv.run(
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


@pytest.mark.parametrize("version", [1, 2])
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


@pytest.fixture(scope="module")
def cronos() -> Iterator[Server]:
    with started() as running:
        yield running


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
