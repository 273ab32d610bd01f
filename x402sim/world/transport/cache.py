"""A shared cache between the payers and a service: a CDN, or a company's proxy.

`STORING` says which answers it may store, a row each for the sections of RFC 9111; one that does
not obey headers asks two of them. It never revalidates: what is stale, or must be revalidated, is
asked for anew. Answers to other methods than GET are neither stored nor do they invalidate.
"""

from dataclasses import dataclass
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.protocol.rules import Rule, Rules, first_broken
from x402sim.text.arguments import FromZero, explained

HEURISTIC = frozenset({200, 203, 204, 300, 301, 404, 405, 410, 414, 501})
"""The answers that may be stored without a word on how long they are fresh (RFC 9110, 15.1)."""


@explained
@dataclass(frozen=True, slots=True)
class SharedCache:
    """A cache that all payers share, for `World(cache=SharedCache())`.

    default_s
        Seconds that an answer is fresh whose headers do not say; default 60.
    obeys_headers
        Whether it does what the headers say, as RFC 9111 has it; if not, it stores each good answer
        by its URL, for `default_s`, as a CDN does that is told to cache everything. Default True.
    """

    default_s: FromZero = 60
    obeys_headers: bool = True


class Answered(NamedTuple):
    """An answer that may be stored: its request's method and headers, its own, and the cache."""

    method: str
    asked: Headers
    status: int
    headers: Headers
    cache: SharedCache

    @property
    def says(self) -> dict[str, str]:
        """What its Cache-Control says: directives in lower case, and their values."""
        return directives(self.headers)

    @property
    def fresh_s(self) -> float:
        """How many seconds it is fresh."""
        for name in ("s-maxage", "max-age") if self.cache.obeys_headers else ():
            if name in self.says:
                return float(self.says[name]) if self.says[name].isdecimal() else 0.0
        return self.cache.default_s

    @property
    def is_public(self) -> bool:
        """Whether it says that it is for everybody, whoever asked (RFC 9111, 3.5)."""
        return not {"public", "s-maxage", "must-revalidate"}.isdisjoint(self.says)


ANY: Rules[Answered, str] = (
    Rule("9111/3/method", lambda a: a.method == "GET", "not asked for with GET"),
    Rule("9111/4.2/fresh", lambda a: a.fresh_s > 0, "stale at once"),
)
OK: Rules[Answered, str] = (Rule("ok", lambda a: a.status == 200, "no good answer"),)
STORING: Rules[Answered, str] = (
    *ANY,
    Rule(
        "9111/3/status",
        lambda a: a.status in HEURISTIC or not {"public", "max-age", "s-maxage"}.isdisjoint(a.says),
        "a status that is not stored unless headers allow it",
    ),
    Rule(
        "9111/5.2/no-store",
        lambda a: "no-store" not in a.says and "no-store" not in directives(a.asked),
        "no-store",
    ),
    Rule("9111/5.2.2.4/no-cache", lambda a: "no-cache" not in a.says, "to be revalidated"),
    Rule("9111/5.2.2.7/private", lambda a: "private" not in a.says, "private"),
    Rule(
        "9111/3.5/authorization",
        lambda a: "authorization" not in a.asked or a.is_public,
        "for the one who is authorized",
    ),
    Rule("9111/4.1/vary", lambda a: "*" not in varying(a.headers), "varies with everything"),
)


def directives(headers: Headers) -> dict[str, str]:
    """Return the directives of Cache-Control in lower case, with their values or ""."""
    given = ",".join(headers.getlist("cache-control")).lower().split(",")
    parts = [part.strip().partition("=") for part in given]
    return {name: value.strip('"') for name, _, value in parts if name}


def varying(headers: Headers) -> list[str]:
    """Return the names of the request's headers on which an answer depends, in lower case."""
    given = ",".join(headers.getlist("vary")).lower().split(",")
    return [name for part in given if (name := part.strip())]


class _Stored(NamedTuple):
    start: Message
    parts: list[Message]
    asked: dict[str, str | None]
    """The values of the request's headers on which it depends."""
    at_s: float
    fresh_s: float


def cached(app: ASGIApp, cache: SharedCache, clock: Clock) -> ASGIApp:
    """Return an application with a cache in front of it."""
    rules = STORING if cache.obeys_headers else (*ANY, *OK)
    found: dict[tuple[str, bytes, str | None], list[_Stored]] = {}

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await app(scope, receive, send)
            return
        asked = Headers(scope=scope)
        place = scope["path"], scope["query_string"], asked.get("host")
        now_s = clock.now()
        kept = [each for each in found.get(place, ()) if now_s < each.at_s + each.fresh_s]
        hit = next((each for each in kept if _is_for(each, asked)), None)
        if hit is not None and not (cache.obeys_headers and _wants_new(asked)):
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
        answered = Answered("GET", asked, start["status"], headers, cache)
        if first_broken(rules, answered) is None:
            names = varying(headers) if cache.obeys_headers else []
            depends = {name: asked.get(name) for name in names}
            new = _Stored(start, parts, depends, clock.now(), answered.fresh_s)
            others = [each for each in kept if each is not hit]
            found[place] = [*others, new]

    return serve


def _is_for(stored: _Stored, asked: Headers) -> bool:
    """Tell whether a stored answer is one to a request with these headers (RFC 9111, 4.1)."""
    return all(asked.get(name) == value for name, value in stored.asked.items())


def _wants_new(asked: Headers) -> bool:
    return not {"no-cache", "no-store"}.isdisjoint(directives(asked))
