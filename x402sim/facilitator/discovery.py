"""The catalogue of paid resources, which /discovery/resources lists and /discovery/search searches.

A resource is listed after the first settled payment, if the shop declares the resource: by the
extension bazaar in version 2, by an output schema in version 1. The newest payment's resource comes
first; the resources of this server come last.

The header EXTENSION-RESPONSES of verify and settle reports what becomes of a declaration of version
2: "success", the resource is listed; "processing", it will be after the settlement and the
facilitator's `listing_delay_s`; "rejected", with a reason. A payment that declares nothing gets no
header.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import to_builtins

from x402sim.clock import Clock
from x402sim.protocol.bazaar import BAZAAR, DISCOVERY_PATH, RESPONSES, Item, faults_in, listed_url
from x402sim.protocol.messages import Wire, encode
from x402sim.protocol.permit2_payments import Permit2Payment
from x402sim.protocol.x402 import AnyRequirements, RequirementsV1, StandardPayment, to_base64

AnyPayment = StandardPayment | Permit2Payment

PATH, SEARCH_PATH = DISCOVERY_PATH, "/discovery/search"
MOST, DEFAULT_LIMIT = 100, 20
"""How many resources one answer has, at most and by default."""
MAX_RESOURCES = 1000
"""How many resources are kept; the resource with the oldest payment is dropped first."""
MAX_ITEM_BYTES = 8192
MOST_WORDS, MOST_TEXT = 16, 500
"""The most words of a search, and characters of a resource's text, that are compared: a search is
one turn of the loop.
"""
MAX_REASON = 200
"""The most characters of a reason for a rejection."""


class Pagination(Wire, frozen=True):
    """Which part of the list an answer is."""

    limit: int
    offset: int
    total: int


class Listed(Wire, frozen=True):
    """The answer of the list."""

    x402_version: Literal[2]
    items: list[Item]
    pagination: Pagination


class Found(Wire, frozen=True):
    """The answer of a search, best first."""

    x402_version: Literal[2]
    resources: list[Item]
    partial_results: bool


class Catalogue:
    """The paid resources, by URL, and the resources of this server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: dict[_Key, tuple[float, Item]] = {}
        """Each resource, and the time in Unix seconds from which it is listed."""
        self.own: Callable[[], list[Item]] = list
        """Returns the resources of this server."""

    def note(
        self,
        payment: AnyPayment,
        accepted: AnyRequirements,
        *,
        is_settled: bool = True,
        delay_s: float = 0,
    ) -> dict[str, str]:
        """Note a verified or settled payment; return the header about its declaration, if any.

        `delay_s` is the time from the first settlement until the resource is listed. A resource
        without a declaration or URL, or a too large resource, is not listed.
        """
        item, why = _item(payment, accepted, self._clock.now_s())
        size = len(encode(item)) if item else 0
        if size > MAX_ITEM_BYTES:
            item, why = None, f"{size} bytes; wanted at most {MAX_ITEM_BYTES}"
        if item is None:
            return _header("rejected", rejectedReason=why[:MAX_REASON]) if why else {}
        key = _key(item)
        since, _ = self._items.get(key, (self._clock.now() + delay_s, item))
        if is_settled:
            self._items.pop(key, None)  # becomes the newest entry
            self._items[key] = since, item
            if len(self._items) > MAX_RESOURCES:
                del self._items[next(iter(self._items))]
        if payment.version == 1:
            return {}
        is_listed = key in self._items and since <= self._clock.now()
        return _header("success" if is_listed else "processing")

    def page(self, query: Mapping[str, str]) -> Listed:
        """Return a part of the list, by `limit`, `offset` and filters; raises `ValueError`.

        A larger limit counts as `MOST`: the standard's own end-to-end tests ask for 1000.
        """
        limit = min(MOST, _number(query, "limit", DEFAULT_LIMIT, 1, MAX_RESOURCES))
        offset = _number(query, "offset", 0, 0, MAX_RESOURCES)
        found = self._filtered(query)
        return Listed(
            x402_version=2,
            items=found[offset : offset + limit],
            pagination=Pagination(limit=limit, offset=offset, total=len(found)),
        )

    def search(self, query: Mapping[str, str]) -> Found:
        """Return the resources with most of the words of `query`; raises `ValueError`."""
        words = query.get("query", "").lower().split()[:MOST_WORDS]
        if not words:
            raise ValueError("query must have a word to search for")
        limit = min(MOST, _number(query, "limit", DEFAULT_LIMIT, 1, MAX_RESOURCES))
        texts = [
            (f"{item.resource} {item.description or ''}"[:MOST_TEXT].lower(), item)
            for item in self._filtered(query)
        ]
        hits = [(sum(word in text for word in words), item) for text, item in texts]
        found = [item for count, item in sorted(hits, key=lambda hit: -hit[0]) if count]
        return Found(2, found[:limit], partial_results=len(found) > limit)

    def _filtered(self, query: Mapping[str, str]) -> list[Item]:
        """Return the resources that pass the filters: type, payTo, scheme, network, extensions."""
        now = self._clock.now()
        paid = [item for since, item in reversed(self._items.values()) if since <= now]
        own = [item for item in self.own() if _key(item) not in self._items]
        return [item for item in [*paid, *own] if _passes(item, query)]


_Key = tuple[str, Any]  # the URL of a resource, and the name of a tool of MCP


def _key(item: Item) -> _Key:
    if item.type == "http":
        return item.resource, None
    sent = item.extensions[BAZAAR]["info"]["input"] if item.extensions else {}
    return item.resource, str(sent.get("tool") or sent.get("toolName"))


def _header(status: str, **more: str) -> dict[str, str]:
    return {RESPONSES: to_base64({BAZAAR: {"status": status, **more}})}


def _item(payment: AnyPayment, accepted: AnyRequirements, at_s: int) -> tuple[Item | None, str]:
    """Return the entry of a paid resource, and if there is none, why; "" without a declaration."""
    if isinstance(accepted, RequirementsV1):
        match accepted.output_schema:
            case {"input": dict(sent)} if sent.get("discoverable", True) and accepted.resource:
                url, about, mime = accepted.resource, accepted.description, accepted.mime_type
                extensions, kind = None, sent.get("type")
            case _:
                return None, ""
    else:
        named, said = payment.resource, (payment.extensions or {}).get(BAZAAR)
        if said is None:
            return None, ""
        sent = {"extensions": payment.extensions, "resource": named and to_builtins(named)}
        for fault in faults_in(sent, 2):
            return None, str(fault)
        assert named is not None, "a declaration without a resource is a fault"
        url, about, mime = listed_url(named.url, said), named.description, named.mime_type
        kind, extensions = said["info"]["input"]["type"], {BAZAAR: said}
    item = Item(
        resource=url,
        type="mcp" if kind == "mcp" else "http",
        x402_version=payment.version,
        accepts=[accepted],
        last_updated=at_s,
        description=about or None,
        mime_type=mime or None,
        extensions=extensions,
    )
    return item, ""


def _passes(item: Item, query: Mapping[str, str]) -> bool:
    def fits(name: str, *has: str) -> bool:
        return name not in query or query[name].lower() in (each.lower() for each in has)

    ways = item.accepts
    return (
        fits("type", item.type)
        and fits("payTo", *(way.pay_to for way in ways))
        and fits("scheme", *(way.scheme for way in ways))
        and fits("network", *(way.network for way in ways))
        and fits("extensions", *(item.extensions or {}))
    )


def _number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise ValueError(f"{name} must be a number from {least} to {most}, not {text[:20]!r}")
    return int(text)
