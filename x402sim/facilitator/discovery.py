"""The catalogue of paid resources that GET /discovery/resources lists.

The standard lets a facilitator list what its payments name. A resource is listed when a payment for
it has been settled, in either version, and the one that was paid for last comes first.
"""

from collections.abc import Mapping
from typing import Literal

from x402sim.clock import Clock
from x402sim.protocol.messages import Wire, encode
from x402sim.protocol.x402 import AnyRequirements, Version

PATH = "/discovery/resources"
MOST, DEFAULT_LIMIT = 100, 20
"""How many resources one answer has, at most and by default."""
MAX_RESOURCES = 1000
"""How many resources are kept; the one that was paid for longest ago is dropped first."""
MAX_ITEM_BYTES = 8192


class Item(Wire, frozen=True):
    """One resource, with the requirements that its last payment met; `last_updated` in seconds."""

    resource: str
    type: Literal["http", "mcp"]
    x402_version: Version
    accepts: list[AnyRequirements]
    last_updated: int


class Pagination(Wire, frozen=True):
    """Which part of the list an answer is."""

    limit: int
    offset: int
    total: int


class Listed(Wire, frozen=True):
    """The answer of discovery."""

    x402_version: Literal[2]
    items: list[Item]
    pagination: Pagination


class Catalogue:
    """The resources that were paid for, by URL."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._items: dict[str, Item] = {}

    def add(self, version: Version, url: str, accepted: AnyRequirements) -> None:
        """Note that a resource was paid for; one without a URL, or too large, is not listed."""
        item = Item(
            resource=url,
            type="mcp" if url.startswith("mcp:") else "http",
            x402_version=version,
            accepts=[accepted],
            last_updated=self._clock.now_s(),
        )
        if not url or len(encode(item)) > MAX_ITEM_BYTES:
            return
        self._items.pop(url, None)
        self._items[url] = item
        if len(self._items) > MAX_RESOURCES:
            del self._items[next(iter(self._items))]

    def page(self, query: Mapping[str, str]) -> Listed:
        """Return a part of the list, by `type`, `limit` and `offset`; raises `ValueError`."""
        limit = _number(query, "limit", DEFAULT_LIMIT, 1, MOST)
        offset = _number(query, "offset", 0, 0, MAX_RESOURCES)
        wanted = query.get("type")
        found = [it for it in reversed(self._items.values()) if wanted in (None, it.type)]
        return Listed(
            x402_version=2,
            items=found[offset : offset + limit],
            pagination=Pagination(limit=limit, offset=offset, total=len(found)),
        )


def _number(query: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
        raise ValueError(f"{name} must be a number from {least} to {most}, not {text[:20]!r}")
    return int(text)
