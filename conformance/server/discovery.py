"""Descriptions of goods in the 402 (extension `bazaar`) and in a catalogue are true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from x402sim.protocol.bazaar import difference
from x402sim.protocol.messages import encode
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import case, demand
from x402sim.suite.server.payment import offers_in
from x402sim.suite.server.play import Item, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, NotApplicable, Violation

V2_ONLY = {Dialect.V1: "extensions are of version 2"}
CATALOGUES = ("/discovery/resources", "/.well-known/x402", "/.well-known/x402.json")
"""Paths of a server's catalogue: the first is the standard's, indexers read the rest."""
TEMPLATE = frozenset("{}:*<>[]")
"""Characters that make a path a pattern of paths."""
NOT_THERE = frozenset({404, 410})
NOT_SO = NOT_THERE | {400, 405, 415, 422, 501}
"""Statuses of a request with the wrong method or form."""
_TERMS = ("scheme", "network", "amount", "asset", "payTo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An item, the 402 with its description, the goods, and the 402 of the described request."""

    item: Item
    answer: Answer
    again: Answer
    """The item's next 402: terms that change from one to the next are no false description."""
    said: Mapping[str, Any]
    goods: Answer
    described: Answer | None

    @property
    def input(self) -> Mapping[str, Any]:
        """The request for the item, by the item's description."""
        return _object(_object(self.said.get("info")).get("input"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _request(item: Item, given: Mapping[str, Any]) -> Item | None:
    """Return the request that a 402 describes; None if it cannot be sent."""
    method, query = given.get("method"), given.get("queryParams")
    if not isinstance(method, str) or given.get("bodyType", "json") != "json":
        return None
    target = item.path + (f"?{urlencode(query)}" if isinstance(query, dict) and query else "")
    body = encode(given["body"]).decode() if isinstance(given.get("body"), dict) else ""
    return Item(method, target, body)


@demand(
    "The 402's description matches the 402's schema",
    texts.explicit(texts.VALIDATES, texts.INPUT_TYPE),
)
def _is_as_its_schema(_: Play, observed: Sequence[Described]) -> Found:
    for each in observed:
        wrong = difference(each.said.get("schema"), each.said.get("info"))
        if not wrong and each.input.get("type") != "http":
            wrong = f"info.input.type is {each.input.get('type')!r}"
        if wrong:
            return Violation(demand="bazaar-fits-schema", actual=f"{each.item.shown}: {wrong}")
    return None


@demand(
    "The 402 names the HTTP method of the sale",
    texts.derived(texts.DECLARES, so="a method by which it is not sold is no specification of it"),
    suffix="method",
)
def _is_that_method(_: Play, observed: Sequence[Described]) -> Found:
    for each in observed:
        if each.input.get("method") != each.item.method:
            return Violation(
                demand="bazaar-names-method",
                actual=f"{each.item.shown}: {each.input.get('method')!r}",
            )
    return None


def _terms(offers: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple(str(each.get(name)).lower() for name in _TERMS) for each in offers)


@demand(
    "The goods described in the 402 are sold, at the price in the 402",
    texts.ours(texts.DECLARES, because="a reader of the catalogue cannot buy the listed resource"),
    suffix="sold",
)
def _is_sold_so(play: Play, observed: Sequence[Described]) -> Found:
    for each in observed:
        if each.described is None:
            continue
        answers = each.answer, each.again, each.described
        first, again, described = [_terms(offers_in(play.dialect, a)) for a in answers]
        if each.described.status != 402 or (first == again != described):
            return Violation(
                demand="bazaar-is-sold", actual=f"{each.item.shown}: {each.described.summary}"
            )
    return None


@demand(
    "The goods are like the example",
    texts.ours(texts.DECLARES, because="a payer has chosen by the example"),
    suffix="example",
)
def _is_like_its_example(_: Play, observed: Sequence[Described]) -> Found:
    for each in observed:
        example = _object(_object(each.said.get("info")).get("output")).get("example")
        got = each.goods.json
        if not isinstance(example, dict) or not isinstance(got, dict):
            continue
        if missing := sorted(example.keys() - got.keys()):
            return Violation(
                demand="bazaar-example-fits",
                actual=f"{each.item.shown}: they have no {', '.join(missing)}",
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An entry of a catalogue that names a path of the server, and the 402 of that path."""

    resource: str
    offers: Sequence[Mapping[str, Any]]
    answer: Answer
    dialect: Dialect
    is_guessed: bool
    """Whether the method is a guess: a GET may be a wrong request here."""


async def _entries(play: Play) -> list[Mapping[str, Any]]:
    """Return the entries of the server's own catalogues; a bare URL is an entry without offers."""
    found: list[Mapping[str, Any]] = []
    for path in CATALOGUES:
        answer = await play.ask(Item("GET", path))
        said = _object(answer.json) if answer.is_2xx else {}
        items = said.get("items", said.get("resources"))
        for each in items if isinstance(items, list) else ():
            entry = {"resource": each} if isinstance(each, str) else _object(each)
            url = entry.get("resource", entry.get("url"))
            if isinstance(url, str) and not TEMPLATE & set(urlsplit(url).path):
                found.append({**entry, "resource": url})
    if not found:
        raise NotApplicable(f"it has no catalogue at {', '.join(CATALOGUES)}")
    return found


@demand(
    "The goods in the server's own catalogues are sold, at the listed price",
    texts.ours(texts.LISTED, because="a payer has chosen by the price that is listed"),
)
def _is_as_listed(_: Play, observed: Sequence[Listed]) -> Found:
    for each in observed:
        if each.is_guessed and each.answer.status in NOT_SO - NOT_THERE:
            continue
        names = [each.dialect.amount if name == "amount" else name for name in _TERMS]
        listed, offered = (
            sorted(tuple(str(offer.get(name)).lower() for name in names) for offer in offers)
            for offers in (each.offers, offers_in(each.dialect, each.answer))
        )
        if each.answer.status != 402 or (listed and listed != offered):
            return Violation(
                demand="listed-is-sold",
                actual=f"{each.resource}: listed {listed or 'without a price'}; {each.answer.how}",
            )
    return None


@case(
    "discovery/described",
    _is_as_its_schema,
    _is_that_method,
    _is_sold_so,
    _is_like_its_example,
    absent=V2_ONLY,
)
async def _described(play: Play) -> list[Described]:
    """Request each item, and the request that the 402 describes."""
    found = []
    for item in play.items:
        answer = await play.ask(item)
        extensions = _object(play.required(answer).get("extensions"))
        said = _object(extensions.get("bazaar"))
        given = _object(_object(said.get("info")).get("input"))
        if not said or given.get("type") == "mcp":
            continue
        like = _request(item, given)
        found.append(
            Described(
                item=item,
                answer=answer,
                again=await play.ask(item),
                said=said,
                goods=await play.goods(item),
                described=await play.ask(like) if like else None,
            )
        )
    if not found:
        raise NotApplicable("its 402 does not describe itself (extensions.bazaar)")
    return found


@case(
    "discovery/listed",
    _is_as_listed,
    absent=dict.fromkeys(
        (Dialect.V1, Dialect.PERMIT2, Dialect.UPTO),
        "a catalogue is one: it is judged with version 2",
    ),
)
async def _catalogue(play: Play) -> list[Listed]:
    """Ask for the server's own catalogues, and for each entry.

    A resource missing (404) for a GET may exist for a POST.
    """
    found = []
    for each in await _entries(play):
        parts, accepts = urlsplit(each["resource"]), each.get("accepts")
        offers = [it for it in accepts if isinstance(it, dict)] if isinstance(accepts, list) else []
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        known = next((it for it in play.items if it.path == parts.path), None)
        if each.get("type") == "mcp":
            continue
        answer = await play.ask(known or Item("GET", target))
        if known is None and answer.status in NOT_SO:
            posted = await play.ask(Item("POST", target, "{}"))
            answer = answer if posted.status in NOT_THERE else posted
        found.append(
            Listed(
                resource=each["resource"],
                offers=offers,
                answer=answer,
                dialect=Dialect.V1 if offers and "maxAmountRequired" in offers[0] else Dialect.V2,
                is_guessed=known is None,
            )
        )
    return found
