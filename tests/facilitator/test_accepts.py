"""POST /accepts: which offers of a shop the facilitator settles."""

from typing import Any

import pytest

from tests.facilitator.test_facilitator import Desk
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import TESTNET

OFFER = {
    "scheme": "exact",
    "network": "eip155:338",
    "amount": "10000",
    "asset": checksum(TESTNET.asset),
    "payTo": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    "maxTimeoutSeconds": 60,
}
DOMAIN = {"name": TESTNET.token_name, "version": TESTNET.token_version}


@pytest.mark.parametrize("network", ["eip155:338", "cronos-testnet"])
def test_an_offer_that_is_settled_is_answered_with_the_tokens_domain(network: str) -> None:
    offer = OFFER | {"network": network}
    asked = {"x402Version": 2, "resource": {"url": "http://shop"}, "accepts": [offer]}
    answered = Desk().post("/accepts", asked)
    assert answered == asked | {"accepts": [offer | {"extra": DOMAIN}]}
    assert Desk().post("/accepts", answered) == answered


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "upto"},
        {"network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"},
        {"network": "eip155:8453"},
        {"network": 7},
        {"asset": OFFER["payTo"]},
        {"asset": None},
    ],
)
def test_an_offer_that_is_not_settled_is_left_out(changes: dict[str, Any]) -> None:
    asked = {"x402Version": 2, "accepts": [OFFER | changes, OFFER, "odd"]}
    assert [each["asset"] for each in Desk().post("/accepts", asked)["accepts"]] == [OFFER["asset"]]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"accepts": 5}'])
def test_a_body_without_offers_is_a_400(body: bytes) -> None:
    assert Desk().request("POST", "/accepts", content=body).status_code == 400
