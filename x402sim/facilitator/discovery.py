"""The catalogue of paid resources, which /discovery/resources lists and /discovery/search searches.

A resource is listed after the first settled payment, if the shop declares the resource: by the
extension bazaar in version 2, by an output schema in version 1. The newest payment's resource comes
first; the resources of this server come last.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from x402sim.clock import Clock
from x402sim.protocol.messages import Wire, encode
from x402sim.protocol.permit2_payments import Permit2Payment
from x402sim.protocol.x402 import (
    BAZAAR,
    AnyRequirements,
    Item,
    RequirementsV1,
    StandardPayment,
    declared_in,
)

AnyPayment = StandardPayment | Permit2Payment

PATH, SEARCH_PATH = "/discovery/resources", "/discovery/search"
MOST, DEFAULT_LIMIT = 100, 20
"""How many resources one answer has, at most and by default."""
MAX_RESOURCES = 1000
"""How many resources are kept; the resource with the oldest payment is dropped first."""
MAX_ITEM_BYTES = 8192


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
        self._items: dict[str, Item] = {}
        self.own: Callable[[], list[Item]] = list
        """Returns the resources of this server."""

    def add(self, payment: AnyPayment, accepted: AnyRequirements) -> None:
        """Note that a resource was paid for.

        A resource without a declaration or URL, or a too large resource, is not listed.
        """
        item = _item(payment, accepted, self._clock.now_s())
        if item is None or not item.resource or len(encode(item)) > MAX_ITEM_BYTES:
            return
        self._items.pop(item.resource, None)  # becomes the newest entry
        self._items[item.resource] = item
        if len(self._items) > MAX_RESOURCES:
            del self._items[next(iter(self._items))]

    def page(self, query: Mapping[str, str]) -> Listed:
        """Return a part of the list, by `limit`, `offset` and filters; raises `ValueError`."""
        limit = _number(query, "limit", DEFAULT_LIMIT, 1, MOST)
        offset = _number(query, "offset", 0, 0, MAX_RESOURCES)
        found = self._filtered(query)
        return Listed(
            x402_version=2,
            items=found[offset : offset + limit],
            pagination=Pagination(limit=limit, offset=offset, total=len(found)),
        )

    def search(self, query: Mapping[str, str]) -> Found:
        """Return the resources with most of the words of `query`; raises `ValueError`."""
        words = query.get("query", "").lower().split()
        if not words:
            raise ValueError("query must have a word to search for")
        limit = _number(query, "limit", DEFAULT_LIMIT, 1, MOST)
        texts = [
            (f"{item.resource} {item.description or ''}".lower(), item)
            for item in self._filtered(query)
        ]
        hits = [(sum(word in text for word in words), item) for text, item in texts]
        found = [item for count, item in sorted(hits, key=lambda hit: -hit[0]) if count]
        return Found(2, found[:limit], partial_results=len(found) > limit)

    def _filtered(self, query: Mapping[str, str]) -> list[Item]:
        """Return the resources that pass the filters: type, payTo, scheme, network, extensions."""
        own = [item for item in self.own() if item.resource not in self._items]
        return [item for item in [*reversed(self._items.values()), *own] if _passes(item, query)]


def _item(payment: AnyPayment, accepted: AnyRequirements, at_s: int) -> Item | None:
    """Return the entry of a paid resource; None without a declaration by the shop."""
    if isinstance(accepted, RequirementsV1):
        match accepted.output_schema:
            case {"input": dict(sent)} if sent.get("discoverable", True):
                url, about, mime = accepted.resource, accepted.description, accepted.mime_type
                extensions, kind = None, sent.get("type")
            case _:
                return None
    else:
        named, extensions = payment.resource, declared_in(payment.extensions)
        if named is None or extensions is None:
            return None
        url, about, mime = named.url, named.description, named.mime_type
        kind = extensions[BAZAAR]["info"]["input"]["type"]
    return Item(
        resource=url,
        type="mcp" if kind == "mcp" else "http",
        x402_version=payment.version,
        accepts=[accepted],
        last_updated=at_s,
        description=about or None,
        mime_type=mime or None,
        extensions=extensions,
    )


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
