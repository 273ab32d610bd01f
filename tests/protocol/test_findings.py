"""What is wrong with a way to pay, or with a signed window; the commands show it."""

from typing import Any

import msgspec
import pytest

from tests.strategies import requirements
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.findings import of_supported, of_way, of_window
from x402sim.protocol.networks import NETWORKS, TESTNET
from x402sim.protocol.ways import ways_of
from x402sim.protocol.x402 import requirements_v2

NOW_S = 1_800_000_000


def offered() -> dict[str, Any]:
    """A way to pay of version 2, in which nothing is wrong."""
    fields: dict[str, Any] = msgspec.to_builtins(requirements_v2(requirements(), TESTNET))
    return fields


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


def test_a_url_of_another_scheme_is_what_a_proxy_makes_of_it() -> None:
    def advice(named: str) -> str:
        told = {"x402Version": 2, "resource": {"url": named}, "accepts": [offered()]}
        (way,) = ways_of(told)
        (found,) = of_way(way, NETWORKS, "https://shop.test/page")
        assert (found.about, found.stops) == ("resource", False)
        return found.do

    assert advice("http://shop.test/page").startswith("Behind a proxy")
    for other in ("http://shop.test/other", "https://elsewhere.test/page", "/page"):
        assert advice(other).startswith("Name the URL that was requested")


@pytest.mark.parametrize("empty", ["", 7, None])
def test_a_way_to_pay_on_another_chain_has_texts_too(empty: Any) -> None:
    other = {"network": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "asset": empty}
    (way,) = ways_of({"x402Version": 2, "accepts": [offered() | other]})
    found = {each.about: each.wanted for each in of_way(way, NETWORKS) if each.stops}
    assert found == {"asset": "a string"}
