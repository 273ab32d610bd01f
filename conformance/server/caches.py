"""A shared cache before the server: no cache gives paid goods to another client."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.datastructures import Headers

from x402sim.suite import texts
from x402sim.suite.report.results import Loss
from x402sim.suite.server.case import case, demand
from x402sim.suite.server.double import VERIFY
from x402sim.suite.server.payment import Payment
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer, behind_cache
from x402sim.suite.verdict import Found, NotApplicable, Violation
from x402sim.world.cache import SharedCache, directives, storable_s, varying

THROUGH = "through the cache"


@dataclass(frozen=True, slots=True)
class Shared:
    """Requests through a cache: a payment, the answer, and later answers without a payment."""

    offer: Answer
    payment: Payment
    paid: Answer
    unpaid: Answer
    goods: Answer
    has_reached: bool
    """Whether the payment came to the server."""


def _through(default_s: float) -> Callable[[Play], Awaitable[Shared]]:
    """Return the play of a cache that keeps answers without a lifetime `default_s` s (0: never)."""

    async def play(it: Play) -> Shared:
        item = next((each for each in it.items if each.method == "GET"), None)
        if item is None:
            raise NotApplicable("it sells nothing by GET, and caches keep no other answers")
        goods, cache = await it.goods(item), SharedCache(default_s=default_s)
        async with behind_cache(cache, it.room.port, it.patience_s) as port:
            payment = await it.draft(item, port=port, about=THROUGH)
            offer = it.answers[-1]
            paid = await it.pay(payment, item, port=port, about=THROUGH)
            unpaid = await it.ask(item, port=port, about=THROUGH)
        has_reached = bool(await it.moved(payment) or it.double.count(VERIFY, payment.nonce))
        return Shared(offer, payment, paid, unpaid, goods, has_reached)

    return play


def _is_permitted(answer: Answer) -> bool:
    """Tell whether an answer explicitly permits storage in shared caches (RFC 9111)."""
    headers = Headers(answer.headers)
    words = {"public", "max-age", "s-maxage"} & directives(headers).keys()
    is_explicit = bool(words) or "expires" in headers
    return is_explicit and storable_s(SharedCache(), Headers(), answer.status, headers) > 0


def _is_kept_apart(play: Play, answer: Answer) -> bool:
    return play.dialect.payment_header.lower() in varying(Headers(answer.headers))


def _permits(answer: Answer, what: str, loss: Loss | None = None) -> Violation:
    return Violation(
        demand="forbids-shared-caches",
        actual=f"{what}: {answer.showing('Cache-Control', 'Expires', 'Vary')}",
        loss=loss,
    )


def _is_not_given_away(play: Play, observed: Shared) -> Found:
    price = observed.payment.auth.value
    if _is_permitted(observed.paid) and not _is_kept_apart(play, observed.paid):
        loss = play.tokens(price, "served out of a cache for nothing")
        return _permits(observed.paid, "the paid answer", loss)
    if not play.is_goods(observed.unpaid, observed.goods):
        return None
    kept = observed.paid.headers.get("cache-control")
    return Violation(
        demand="goods-not-from-cache",
        actual=f"{THROUGH}, without a payment: {observed.unpaid.how}; the paid answer had "
        f"{f'Cache-Control: {kept}' if kept else 'no Cache-Control'}, and no Vary that names "
        f"{play.dialect.payment_header}",
        loss=play.tokens(price, "served out of the cache for nothing"),
    )


@demand(
    "No shared cache may keep the 402 or the paid answer, whatever Vary names",
    texts.ours(
        texts.HEURISTIC,
        because="x402-foundation/x402 issues 2955 and 2990: caches kept paid answers "
        "that said nothing; and some CDNs heed no Vary",
    ),
)
def _is_forbidden(play: Play, observed: Shared) -> Found:
    for what, answer in (("the paid answer", observed.paid), ("the 402", observed.offer)):
        if _is_permitted(answer):
            return _permits(answer, what)
    return _is_not_given_away(play, observed)


@demand(
    "A shared cache answers no payment with a stored 402",
    texts.derived(
        texts.SIGNAL,
        texts.NOMINATED,
        texts.PUBLIC,
        so="a 402 that a cache may keep, without Vary, answers requests that pay, too",
    ),
    suffix="offer",
)
def _is_not_stale(play: Play, observed: Shared) -> Found:
    if _is_permitted(observed.offer) and not _is_kept_apart(play, observed.offer):
        return _permits(observed.offer, "the 402")
    if observed.has_reached or observed.paid.status != 402:
        return None
    return Violation(
        demand="offer-not-from-cache",
        actual=f"{THROUGH}, with a payment: {observed.paid.showing('Cache-Control', 'Vary')}; "
        "the server has not seen it",
    )


ROWS = [
    case(
        "offer/cache",
        demand(
            "A shared cache serves nobody the goods of another payer",
            texts.derived(
                texts.NO_VALID_PAYMENT,
                texts.NOMINATED,
                texts.PUBLIC,
                so="who gets a paid answer out of a cache has attached no payment; a cache "
                "tells them apart only by a header that Vary names, or is not to keep it",
            ),
        )(_is_not_given_away),
        _is_not_stale,
    )(_through(0)),
    case("offer/cache-forbidden", _is_forbidden)(_through(60)),
]
