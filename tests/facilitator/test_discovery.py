"""The facilitator lists the resources that were paid for, as the standard's section 8 says."""

from typing import Any

import pytest

from tests.chain.helpers import NOW_S, authorization, nonce
from tests.facilitator.test_facilitator import Desk
from tests.facilitator.test_standard import COMMON, VERSIONS, WANTED, asking
from x402sim.clock import Clock
from x402sim.facilitator.discovery import MAX_RESOURCES, Catalogue
from x402sim.protocol.x402 import RequirementsV2

PATH, URL = "/discovery/resources", "http://shop.test/quote"
TERMS = RequirementsV2("exact", "eip155:338", "10000", "0x00", "0x00", 300)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@VERSIONS
def test_what_was_paid_for_is_listed_once_with_its_last_requirements(
    desk: Desk, version: int
) -> None:
    assert desk.request("GET", PATH).json()["items"] == []
    desk.post("/verify", asking(version))
    assert desk.request("GET", PATH).json()["items"] == [], "nothing was paid yet"
    for name in ("first", "second"):
        auth = authorization(nonce=nonce(name))
        assert desk.post("/settle", asking(version, auth))["success"]
    listed = desk.request("GET", PATH).json()
    assert listed["x402Version"] == 2
    assert listed["pagination"] == {"limit": 20, "offset": 0, "total": 1}
    (item,) = listed["items"]
    (accepted,) = item.pop("accepts")
    assert item == {
        "resource": URL, "type": "http", "x402Version": version,
        "lastUpdated": pytest.approx(NOW_S, abs=60),
    }  # fmt: skip
    assert {name: accepted[name] for name in COMMON} == {
        name: WANTED[version][name] for name in COMMON
    }


def test_the_last_comes_first_and_a_page_is_a_part() -> None:
    catalogue = Catalogue(Clock())
    for name in ("a", "b", "c", "a"):
        catalogue.add(2, f"http://shop.test/{name}", TERMS)
    catalogue.add(2, "mcp://tool/forecast", TERMS)
    catalogue.add(2, "", TERMS)
    catalogue.add(2, "http://shop.test/" + "x" * 10_000, TERMS)

    def urls(**query: str) -> list[str]:
        return [item.resource.rpartition("/")[2] for item in catalogue.page(query).items]

    assert urls() == ["forecast", "a", "c", "b"]
    assert urls(type="http") == ["a", "c", "b"]
    assert urls(type="http", limit="1", offset="1") == ["c"]
    assert urls(type="grpc") == []


def test_the_oldest_is_dropped() -> None:
    catalogue = Catalogue(Clock())
    for number in range(MAX_RESOURCES + 5):
        catalogue.add(2, f"http://shop.test/{number}", TERMS)
    assert catalogue.page({"offset": str(MAX_RESOURCES - 1)}).items[0].resource.endswith("/5")


@pytest.mark.parametrize(
    ("query", "wrong"),
    [({"limit": "0"}, "limit"), ({"limit": "101"}, "limit"), ({"offset": "-1"}, "offset"),
     ({"limit": "²"}, "limit")],
)  # fmt: skip
def test_a_wrong_page_is_a_400(desk: Desk, query: dict[str, Any], wrong: str) -> None:
    answer = desk.request("GET", PATH, params=query)
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith(f"{wrong} must be a number from")
