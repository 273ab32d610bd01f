"""A shared cache between the payers and a service: a CDN, or a company's proxy.

The cache never revalidates: a stale answer, or an answer to revalidate, is requested anew. Methods
other than GET pass through, and neither store nor invalidate anything.

The library hishel (2.0) would not do: hishel takes the system's time, and a world has its own. CDNs
keep an answer without a lifetime and without Last-Modified, too; hishel gives no lifetime to one.
"""

from dataclasses import dataclass
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.http.exchange import date_s

HEURISTIC = frozenset({200, 203, 204, 300, 301, 404, 405, 410, 414, 501})
"""The statuses that may be stored without explicit freshness (RFC 9110, 15.1)."""


@dataclass(frozen=True, slots=True)
class SharedCache:
    """A cache that all payers share, for `World(cache=SharedCache())`.

    default_s
        Seconds that an answer is fresh whose headers do not say; default 60.
    obeys_headers
        Whether the cache obeys the headers, by RFC 9111; if not, each good answer is stored by URL,
        for `default_s`, as by a CDN that is set to cache everything. Default True.
    """

    default_s: float = 60
    obeys_headers: bool = True


def storable_s(cache: SharedCache, request: Headers, status: int, headers: Headers) -> float:
    """Return for how many seconds an answer to GET may be stored; 0 if it may not be.

    The numbers are sections of RFC 9111.
    """
    if not cache.obeys_headers:
        return cache.default_s if status == 200 else 0
    directive = directives(headers)
    is_public = not {"public", "s-maxage", "must-revalidate"}.isdisjoint(directive)
    is_explicit = "expires" in headers or not {"public", "max-age", "s-maxage"}.isdisjoint(
        directive
    )
    is_forbidden = (
        (status not in HEURISTIC and not is_explicit)  # 3
        or not {"no-store", "no-cache", "private"}.isdisjoint(directive)  # 5.2.2
        or "no-store" in directives(request)  # 5.2.1
        or ("authorization" in request and not is_public)  # 3.5
        or "*" in varying(headers)  # 4.1
    )
    if is_forbidden:
        return 0
    lasts = directive.get("s-maxage", directive.get("max-age"))  # 4.2.1
    if lasts is None:
        return _until_it_expires(headers) if "expires" in headers else cache.default_s
    return float(lasts) if lasts.isdecimal() else 0


def _until_it_expires(headers: Headers) -> float:
    """Return the seconds from Date to Expires; 0 if either is no date (RFC 9111, 5.3)."""
    try:
        return max(0, date_s(headers["expires"]) - date_s(headers["date"]))
    except (KeyError, ValueError, OverflowError):
        return 0


def directives(headers: Headers) -> dict[str, str]:
    """Return the directives of Cache-Control in lower case, with their values or ""."""
    given = ",".join(headers.getlist("cache-control")).lower().split(",")
    parts = [part.strip().partition("=") for part in given]
    return {name: value.strip('"') for name, _, value in parts if name}


def varying(headers: Headers) -> list[str]:
    """Return the request headers named by Vary, in lower case."""
    given = ",".join(headers.getlist("vary")).lower().split(",")
    return [name for part in given if (name := part.strip())]


class _Stored(NamedTuple):
    start: Message
    parts: list[Message]
    varied: dict[str, str | None]
    """The values of the request headers that Vary names."""
    at_s: float
    fresh_s: float


def cached(app: ASGIApp, cache: SharedCache, clock: Clock) -> ASGIApp:
    """Return an application with a cache in front of it."""
    found: dict[tuple[str, bytes, str | None], list[_Stored]] = {}

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await app(scope, receive, send)
            return
        sent = Headers(scope=scope)
        place = scope["path"], scope["query_string"], sent.get("host")
        now_s = clock.now()
        kept = [each for each in found.get(place, ()) if now_s < each.at_s + each.fresh_s]
        # only for a request with the same headers of Vary (RFC 9111, 4.1)
        fits = (each for each in kept if {n: sent.get(n) for n in each.varied} == each.varied)
        hit = next(fits, None)
        wants_new = not {"no-cache", "no-store"}.isdisjoint(directives(sent))
        if hit is not None and not (cache.obeys_headers and wants_new):
            age = b"%d" % (now_s - hit.at_s)
            await send({**hit.start, "headers": [*hit.start["headers"], (b"age", age)]})
            for part in hit.parts:
                await send(part)
            return
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)
            await send(message)

        await app(scope, receive, keep)
        if not messages or messages[-1].get("more_body"):
            return  # cut off
        start, *parts = messages
        headers = Headers(raw=start["headers"])
        fresh_s = storable_s(cache, sent, start["status"], headers)
        if fresh_s > 0:
            names = varying(headers) if cache.obeys_headers else []
            depends = {name: sent.get(name) for name in names}
            new = _Stored(start, parts, depends, clock.now(), fresh_s)
            others = [each for each in kept if each is not hit]
            found[place] = [*others, new]

    return serve
