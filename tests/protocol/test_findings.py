"""What is wrong with a way to pay, or with a signed window; the commands show it."""

import msgspec
import pytest

from tests.strategies import requirements
from x402sim.protocol.crypto import checksum
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.explain import way_facts
from x402sim.protocol.findings import of_settlement, of_supported, of_window
from x402sim.protocol.networks import NETWORKS, TESTNET
from x402sim.protocol.ways import ways_of
from x402sim.protocol.x402 import requirements_v2

NOW_S = 1_800_000_000


@pytest.mark.parametrize(
    ("opens_s", "closes_s", "found"),
    [
        (-60, 300, []),
        (-60, 5, [("validBefore", False)]),
        (-60, 0, [("validBefore", True)]),
        (5, 300, [("validAfter", True)]),
        (300, 300, [("window", True)]),
        (NOW_S * 999, NOW_S * 1000, [("validAfter", True)]),
    ],
    ids=["usual", "hardly time", "late", "early", "never", "in milliseconds"],
)
def test_a_window_that_ends_soon_may_still_be_settled(
    opens_s: int, closes_s: int, found: list[tuple[str, bool]]
) -> None:
    auth = Authorization(b"a" * 20, b"b" * 20, 1, NOW_S + opens_s, NOW_S + closes_s, bytes(32))
    assert [(each.about, each.stops) for each in of_window(auth, NOW_S)] == found


def test_only_the_address_of_the_networks_token_is_told_as_that_token() -> None:
    def told(asset: bytes) -> str:
        fields = requirements_v2(requirements(), TESTNET)
        sent = msgspec.to_builtins(msgspec.structs.replace(fields, asset=checksum(asset)))
        (way,) = ways_of({"x402Version": 2, "accepts": [sent]})
        return str(dict(way_facts(way, NETWORKS))["asset"])

    assert told(TESTNET.asset).endswith(f" = {TESTNET.token_symbol}")
    assert told(b"a" * 20) == checksum(b"a" * 20)


def test_a_facilitator_names_networks_as_each_version_does() -> None:
    kinds = [(1, "eip155:84532"), (1, "base-sepolia"), (2, "base-sepolia"), (2, "eip155:84532")]
    told = {
        "kinds": [{"x402Version": version, "network": name} for version, name in kinds],
        "extensions": [],
        "signers": {},
    }
    assert [(each.about, each.wanted[:15]) for each in of_supported(told, NETWORKS)] == [
        ("network of kind 1", "a plain name"),
        ("network of kind 3", "a name of CAIP-2"[:15]),
    ]


def test_an_odd_payer_of_a_receipt_is_told_and_stops_nothing() -> None:
    receipt = {"success": True, "transaction": "0x" + "ab" * 32, "network": "eip155:84532"}
    (found,) = of_settlement(receipt | {"payer": "0x12"}, NETWORKS)
    assert (found.about, found.stops) == ("payer", False)
    assert not list(of_settlement(receipt | {"payer": "0x" + "ab" * 20}, NETWORKS))
