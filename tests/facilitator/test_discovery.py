"""The facilitator lists the resources that were paid for, as the standard's section 8 says."""

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.asgi import Http
from tests.chain.helpers import NOW_S, authorization, nonce
from tests.facilitator.test_facilitator import Desk
from tests.facilitator.test_standard import COMMON, VERSIONS, WANTED, asking
from x402sim.clock import Clock, stopwatch
from x402sim.facilitator.discovery import MAX_RESOURCES, MOST, Catalogue
from x402sim.protocol.bazaar import BAZAAR, RESPONSES, Item
from x402sim.protocol.x402 import RequirementsV2, Resource, StandardPayment, json_in

PATH, URL = "/discovery/resources", "http://shop.test/quote"
TERMS = RequirementsV2("exact", "eip155:338", "10000", "0x00", "0x00", 300)


@pytest.fixture
def desk() -> Desk:
    return Desk()


DECLARED: dict[str, Any] = {
    "bazaar": {
        "info": {
            "input": {"type": "http", "method": "GET"},
            "output": {"type": "json", "example": {"price": 1}},
        },
        "schema": {"type": "object", "properties": {"input": {"required": ["method"]}}},
    }
}
SCHEMA = {"input": {"type": "http", "method": "GET", "discoverable": True}}


def declaring(version: int, auth: Any) -> dict[str, Any]:
    """Return a request with a declared resource, in the version's form."""
    if version == 1:
        return asking(1, auth, outputSchema=SCHEMA)
    asked = asking(2, auth)
    asked["paymentPayload"]["extensions"] = DECLARED
    return asked


@VERSIONS
def test_what_declared_itself_and_was_paid_for_is_listed_once_with_its_last_requirements(
    desk: Desk, version: int
) -> None:
    def listed() -> dict[str, Any]:
        return desk.request("GET", PATH).json()

    desk.post("/verify", declaring(version, authorization()))
    assert listed()["items"] == [], "nothing was paid yet"
    assert desk.post("/settle", asking(version, authorization(nonce=nonce("shy"))))["success"]
    assert listed()["items"] == [], "it did not declare itself"
    for name in ("first", "second"):
        assert desk.post("/settle", declaring(version, authorization(nonce=nonce(name))))["success"]
    assert listed()["x402Version"] == 2
    assert listed()["pagination"] == {"limit": 20, "offset": 0, "total": 1}
    (item,) = listed()["items"]
    (accepted,) = item["accepts"]
    assert (item["resource"], item["type"], item["x402Version"]) == (URL, "http", version)
    assert item["lastUpdated"] == NOW_S
    assert item.get("extensions") == (DECLARED if version == 2 else None)
    assert {name: accepted[name] for name in COMMON} == {
        name: WANTED[version][name] for name in COMMON
    }


def test_a_facilitator_below_a_path_lists_and_searches_too(desk: Desk) -> None:
    assert desk.post("/settle", declaring(2, authorization()))["success"]
    below = Http(Starlette(routes=[Mount("/mine", desk.app)]))
    found = below.request("GET", "/mine/discovery/search", params={"query": "of that kind nothing"})
    assert (found.json().get("resources"), "items" in found.json()) == ([], False)
    (listed,) = below.request("GET", f"/mine{PATH}").json()["items"]
    assert listed["resource"] == URL


def payment(url: str, kind: str = "http", about: str | None = None, **more: Any) -> StandardPayment:
    sent = {"http": {"method": "GET"}, "mcp": {"tool": "forecast", "inputSchema": {}}}[kind]
    info = {"input": {"type": kind, **sent}}
    declared = {BAZAAR: {"info": info, "schema": {"properties": {"input": {}}}, **more}}
    return StandardPayment(
        version=2,
        signed=None,  # type: ignore[arg-type] - the catalogue does not read it
        resource=Resource(url, about),
        extensions=declared,
    )


def test_a_search_of_many_words_holds_nobody_up() -> None:
    catalogue = Catalogue(Clock())
    for number in range(100):
        catalogue.note(payment(f"http://shop.test/{number}", about="ab " * 2000), TERMS)
    waited = stopwatch()
    assert catalogue.search({"query": "abc " * 2000}).resources == []
    assert waited() < 1


def test_the_last_comes_first_then_our_own_and_a_page_is_a_part() -> None:
    catalogue = Catalogue(Clock())
    own = "http://here.test/own"
    catalogue.own = lambda: [Item(own, "http", 2, [TERMS], "2026-01-01T00:00:00.000Z", "Weather")]
    for name in ("a", "b", "c", "a"):
        catalogue.note(payment(f"http://shop.test/{name}"), TERMS)
    catalogue.note(payment("mcp://tool/forecast", "mcp", "Rain and weather"), TERMS)
    catalogue.note(payment(""), TERMS)
    catalogue.note(payment("http://shop.test/" + "x" * 10_000), TERMS)

    def urls(**query: str) -> list[str]:
        return [item.resource.rpartition("/")[2] for item in catalogue.page(query).items]

    assert urls() == ["forecast", "a", "c", "b", "own"]
    assert urls(type="http", limit="1", offset="1") == ["c"]
    assert urls(type="grpc") == urls(network="eip155:1") == urls(extensions="other") == []
    assert urls(network="EIP155:338", scheme="exact", payTo="0x00", type="mcp") == ["forecast"]
    assert urls(extensions="bazaar") == ["forecast", "a", "c", "b"]

    def found(query: str, **more: str) -> list[str]:
        items = catalogue.search({"query": query, **more}).resources
        return [item.resource.rpartition("/")[2] for item in items]

    assert found("rain weather") == ["forecast", "own"], "most words first"
    assert found("WEATHER", type="http") == ["own"]
    assert found("snow") == []
    assert catalogue.search({"query": "weather", "limit": "1"}).partial_results


def test_the_oldest_is_dropped() -> None:
    catalogue = Catalogue(Clock())
    for number in range(MAX_RESOURCES + 5):
        catalogue.note(payment(f"http://shop.test/{number}"), TERMS)
    assert catalogue.page({"limit": "1000"}).pagination.limit == MOST
    assert catalogue.page({"offset": str(MAX_RESOURCES - 1)}).items[0].resource.endswith("/5")


@pytest.mark.parametrize(
    ("query", "wrong"),
    [({"limit": "0"}, "limit"), ({"limit": "1001"}, "limit"), ({"offset": "-1"}, "offset"),
     ({"limit": "²"}, "limit")],
)  # fmt: skip
def test_a_wrong_page_is_a_400(desk: Desk, query: dict[str, Any], wrong: str) -> None:
    answer = desk.request("GET", PATH, params=query)
    assert answer.status_code == 400
    assert answer.json()["reason"].startswith(f"{wrong} must be a number from")


def told(headers: Any) -> Any:
    """What the header of a facilitator's answer says of the extension."""
    return json_in(headers.get(RESPONSES), dict) and json_in(headers[RESPONSES])[BAZAAR]


def test_the_answers_say_what_becomes_of_a_declaration_and_a_listing_may_come_later(
    desk: Desk,
) -> None:
    def asked(path: str, body: dict[str, Any]) -> Any:
        return told(desk.request("POST", path, json=body).headers)

    assert asked("/verify", asking(2)) is None, "nothing was declared"
    assert asked("/verify", declaring(1, authorization())) is None, "version 1 has no extensions"
    assert asked("/verify", declaring(2, authorization())) == {"status": "processing"}
    assert asked("/settle", declaring(2, authorization(nonce=nonce("1")))) == {"status": "success"}
    assert asked("/verify", declaring(2, authorization(nonce=nonce("2")))) == {"status": "success"}
    lost = declaring(2, authorization(nonce=nonce("3")))
    del lost["paymentPayload"]["resource"]
    for path in ("/verify", "/settle"):
        rejected = {
            "status": "rejected",
            "rejectedReason": "resource.url: nothing; wanted a whole URL",
        }
        assert asked(path, lost) == rejected
    assert asked("/settle", lost) is None, "a payment that is refused"
    clock = Clock()
    catalogue, told_at = Catalogue(clock), []
    for _ in range(3):
        told_at.append(told(catalogue.note(payment(URL), TERMS, delay_s=3600))["status"])
        told_at.append(catalogue.page({}).pagination.total)
        clock.advance(1800)
    assert told_at == ["processing", 0, "processing", 0, "success", 1]


def test_one_resource_has_one_entry_whatever_its_query_and_path_parameters() -> None:
    catalogue = Catalogue(Clock())
    for user in ("1", "2"):
        catalogue.note(payment(f"{URL}/{user}?page=3#top", routeTemplate="/users/:id"), TERMS)
    for bad in ("/../admin", "/%252e%252e/admin", "//evil.test:1://", "users", 7):
        catalogue.note(payment(URL + "?page=3", routeTemplate=bad), TERMS)
    catalogue.note(payment("http://shop.test/mcp", "mcp"), TERMS)
    assert [each.resource for each in catalogue.page({}).items] == [
        "http://shop.test/mcp", URL, "http://shop.test/users/:id",
    ]  # fmt: skip
