"""Lost answers: the outcome of the payment is unknown. What does a payer sign next?

The shop settles an authorization once, and answers a repetition with the first answer. A
payer that repeats the authorization is served for one price; a payer that signs another pays twice.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from x402sim.suite import texts
from x402sim.suite.dialect import BY_PERMIT2, Dialect
from x402sim.suite.payer.case import (
    OURS,
    Demand,
    PayerRow,
    case,
    committed_at_most,
    demand,
    gets_what_it_paid,
    if_told,
    one_price,
    only,
    served,
)
from x402sim.suite.payer.play import CAP_BASE, Bound
from x402sim.suite.payer.shop import (
    EVENTS,
    OTHER_TOKEN,
    PROGRESS,
    RECORDS,
    Offer,
    Shop,
    Story,
    Strike,
    in_base64,
)
from x402sim.suite.wire import How, Reply, Request, as_json

SLOW_S = 7.0
"""Seconds: more than five, after which httpx, among others, gives up."""
ENOUGH = 60
"""More paying requests than any patient payer makes."""
SO = (
    "the task is one purchase. Nobody knows whether this payment was made; until it ends it can "
    "be, and the same authorization can be sent again without paying twice. Another one is "
    "another transfer"
)


GAVE_UP = "who pays and gives up has lost the price (x402-foundation/x402#1062)"


BUSY = "a payer that gives up at a 503 with Retry-After buys nothing where shops are busy"


_asked_again = demand("A busy shop is asked again", texts.ours(because=BUSY))(served)


def _receipt(shop: Shop, right: Reply, text: str | None) -> Reply:
    if shop.flow.is_ours:
        return right
    name = shop.flow.response_header
    headers = {key: value for key, value in right.headers.items() if key != name}
    return replace(right, headers=headers if text is None else {**headers, name: text})


def _with(**changes: Any) -> Callable[[Shop, Reply], Reply]:
    return lambda _, right: replace(right, **changes)


_lost, _cut = _with(how=How.LOST), _with(how=How.CUT)
_slow, _empty = _with(after_s=SLOW_S), _with(body=b"")


def _error(_: Shop, __: Reply) -> Reply:
    return as_json({"error": "bad gateway"}, 502)


def _busy(_: Shop, __: Reply) -> Reply:
    return as_json({"error": "try again"}, 503, {"Retry-After": "1"})


def _again(shop: Shop, _: Reply) -> Reply:
    return shop.ask()


def _failed(reason: str, transaction: str = "") -> Callable[[Shop, Reply], Reply]:
    def reply(shop: Shop, _: Reply) -> Reply:
        if shop.flow.is_ours:
            return as_json({"error": "Payment failed", "reason": reason}, 402)
        said = shop.receipt(success=False, transaction=transaction, errorReason=reason)
        return _receipt(shop, shop.ask(reason), in_base64(said))

    return reply


def _unsure(shop: Shop, _: Reply) -> Reply:
    """Answer that the payment may still be made."""
    if shop.flow.is_ours:
        return as_json({"error": "Settlement pending", "final": False}, 503)
    reason, transaction = "settlement_pending", "0x" + "cd" * 32
    said = shop.receipt(success=False, transaction=transaction, errorReason=reason)
    return _receipt(shop, shop.ask(reason), in_base64(said))


def _no_goods(shop: Shop, right: Reply) -> Reply:
    """Return an error in place of the goods, with status 200."""
    if shop.flow is not Dialect.MCP:
        return replace(right, body=b'{"error":"the report could not be made"}')
    failed = {"isError": True, "content": [{"type": "text", "text": "the report was not made"}]}
    return as_json({"jsonrpc": "2.0", "id": json.loads(right.body).get("id"), "result": failed})


def _false_receipt(shop: Shop, right: Reply) -> Reply:
    if shop.flow.is_ours:
        return as_json({"success": False, "txHash": ""})
    return _receipt(shop, right, in_base64(shop.receipt(success=False, transaction="")))


def _unreadable_receipt(shop: Shop, right: Reply) -> Reply:
    if shop.flow.is_ours:
        return Reply(headers={"Content-Type": "text/html"}, body=b"<html>thank you</html>")
    return _receipt(shop, right, "%%%")


_only_progress = _with(body=PROGRESS, headers=EVENTS)
"""Leaves the result out of a stream, so that only the progress message stays."""


_BROKEN = [
    ("no-answer-before-settling", False, _lost, "The connection breaks before anything settles"),
    ("no-answer-after-settling", True, _lost, "The payment settles, and the connection breaks"),
    ("error-before-settling", False, _busy, "The shop is busy (503), and has settled nothing"),
    ("error-after-settling", True, _error, "The payment settles, and the answer is a 502"),
    ("asked-again", True, _again, "The payment settles, and the answer is the 402 again"),
    (
        "refused-after-settling",
        True,
        _failed("unexpected_settle_error"),
        "The payment settles, and is said to have failed",
    ),
    ("pending", True, _unsure, "The settlement is said to be pending"),
    ("slow", True, _slow, "The answer takes seven seconds"),
    ("cut", True, _cut, "Half of the answer arrives"),
    ("error-in-200", True, _no_goods, "A 200 with an error instead of the goods"),
    (
        "no-receipt",
        True,
        lambda shop, right: as_json({}) if shop.flow.is_ours else _receipt(shop, right, None),
        "An answer without a receipt",
    ),
    ("false-receipt", True, _false_receipt, "A receipt without a payment"),
    ("unreadable-receipt", True, _unreadable_receipt, "An unreadable receipt"),
    (
        "conflict",
        True,
        lambda _, __: as_json({"error": "this payment is being processed"}, 409),
        "The payment settles, and the answer is 409",
    ),
]
_NO_HEADERS = {
    Dialect.MCP: "a tool's receipt is in its result: conflict, cut and empty strike that"
}
_ABSENT = {
    "no-receipt": _NO_HEADERS,
    "false-receipt": _NO_HEADERS,
    "unreadable-receipt": _NO_HEADERS,
}
_ONE_REQUEST = "the request that pays asks for the goods, too: see the row without `goods-`"


def _fetched(reply: Callable[[Shop, Reply], Reply]) -> Demand:
    fetched = gets_what_it_paid(GAVE_UP)
    return if_told(Bound.GOODS, fetched) if reply is _no_goods else fetched


def _row(slug: str, settles: bool, reply: Callable[[Shop, Reply], Reply], title: str) -> PayerRow:
    strike = Strike(settles=settles, reply=reply)
    return case(
        f"lost/{slug}",
        one_price(f"{title}: still a single payment", SO, texts.RESEND, texts.UNIQUE),
        *([_fetched(reply)] if settles else []),
        *([_asked_again] if reply is _busy else []),
        absent=_ABSENT.get(slug, {}),
        waits_s=SLOW_S if reply is _slow else 0,
    )(Story(strikes=(strike,)))


def _goods(slug: str, reply: Callable[[Shop, Reply], Reply], title: str) -> PayerRow:
    strike = Strike(settles=False, reply=reply, at_goods=True)
    return case(
        f"lost/goods-{slug}",
        one_price(
            f"Paid for, and then: {title}: still a single payment",
            "the payment is made, and its proof can be shown again",
        ),
        *([] if reply is _empty else [gets_what_it_paid(GAVE_UP)]),
        absent=only(OURS, _ONE_REQUEST),
        waits_s=SLOW_S if reply is _slow else 0,
    )(Story(strikes=(strike,)))


NAMED = {Dialect.SESSION: "a deposit is what the payer names, so no price can change"}


def _over_cap_then(shop: Shop, right: Offer) -> list[Offer]:
    """Offer the price first, and more than the cap, by value, in every later 402."""
    return [replace(right, amount="0100000") if shop.paying or shop.demanded > 1 else right]


WINDOW_S = 4
"""Seconds to pay, over while a payer waits."""


def _changed(slug: str, title: str, change: Callable[[Shop, Offer], Offer]) -> PayerRow:
    """A shop that settles, answers 402 again, and wants something else from then on."""

    def offers(shop: Shop, right: Offer) -> list[Offer]:
        return [right] if not shop.paying else [change(shop, right)]

    return case(f"lost/{slug}", one_price(title, SO, texts.PARAMETERS), absent=NAMED)(
        Story(offers=offers, strikes=(Strike(settles=True, reply=_again),), takes_anything=True)
    )


def _record(slug: str, reply: Callable[[Shop], Reply], title: str) -> PayerRow:
    def first(shop: Shop, request: Request) -> Reply | None:
        return reply(shop) if request.path.startswith(RECORDS) else None

    return case(
        f"lost/record-{slug}",
        one_price(f"The receipt is lost, and {title}: still a single payment", SO),
        absent=only([Dialect.STEPS], "only the two steps have a record that can be asked for"),
    )(Story(first=first, strikes=(Strike(settles=True, reply=_lost),)))


_invalid = _failed("invalid_exact_evm_payload_signature")
REFUSALS = (402, 429, 400)


def _two(_: Shop, right: Offer) -> list[Offer]:
    """Offer the same twice: a payer that tries the next offer signs another payment."""
    return [right, replace(right, timeout_s=right.timeout_s - 1)]


def _refuses(shop: Shop, right: Reply) -> Reply:
    """Refuse by each status in turn; a tool's refusal is a result."""
    status = REFUSALS[(shop.paying - 1) % len(REFUSALS)]
    return replace(_invalid(shop, right), status=402 if shop.flow is Dialect.MCP else status)


_refused_for_good = one_price(
    "Every payment is refused: at most a single payment can still be used",
    "a refused authorization can be used until it ends, by whoever has it",
    texts.BEFORE,
)

ROWS = [
    *(_row(*each) for each in _BROKEN),
    case(
        "lost/events-break-off",
        one_price(
            "A stream of events ends before the tool's result: still a single payment",
            SO,
            texts.RESEND,
            texts.UNIQUE,
        ),
        gets_what_it_paid(GAVE_UP),
        absent=only([Dialect.MCP], "only tools are answered by a stream of events"),
    )(Story(as_events=True, strikes=(Strike(settles=True, reply=_only_progress),))),
    _goods("no-answer", _lost, "the connection breaks"),
    _goods("error", _error, "502"),
    _goods("asked-again", _again, "402"),
    _goods("cut", _cut, "half of the answer"),
    _goods("empty", _empty, "an empty 200"),
    _goods("slow", _slow, "seven seconds of silence"),
    _changed(
        "again-dearer",
        "The 402 after a payment asks for more",
        lambda _, right: replace(right, amount="40000"),
    ),
    _changed(
        "again-other-payee",
        "The 402 after a payment names another payee",
        lambda shop, right: replace(right, pay_to=shop.thief),
    ),
    _changed(
        "again-other-asset",
        "The 402 after a payment names another token",
        lambda _, right: replace(right, asset=OTHER_TOKEN),
    ),
    case(
        "lost/again-over-cap",
        if_told(
            Bound.CAP,
            demand(
                "A later 402 asks for more than the cap, after a payment or before",
                texts.derived(
                    texts.INTENT,
                    texts.PARAMETERS,
                    so="the cap is that of the purchase, whichever 402 asks",
                ),
            )(committed_at_most(CAP_BASE)),
        ),
        absent=NAMED,
    )(
        Story(
            offers=_over_cap_then,
            strikes=(Strike(settles=False, reply=_again),),
            takes_anything=True,
        )
    ),
    _record("missing", lambda _: as_json({"error": "Payment not found"}, 404), "the record is 404"),
    _record("error", lambda _: as_json({"error": "oops"}, 500), "the record is a 500"),
    _record("oversized", lambda _: Reply(body=b"[" * (4 << 20)), "the record is 4 MB of brackets"),
    case(
        "lost/for-good",
        one_price(
            "No payment is ever answered, and the window ends: still a single payment",
            f"{SO}. That its window has ended does not say that it was not made",
        ),
        waits_s=WINDOW_S + 1.5,
    )(
        Story(
            offers=lambda _, right: [replace(right, timeout_s=WINDOW_S)],
            strikes=(Strike(settles=True, reply=_lost),) * ENOUGH,
            rests_s=WINDOW_S + 1.5,
        )
    ),
    *(
        case("lost/refused-for-good", _refused_for_good, variant=variant, absent=absent)(story)
        for variant, absent, story in (
            ("", {}, Story(offers=_two, strikes=(Strike(settles=False, reply=_refuses),) * ENOUGH)),
            (
                "allowance",
                only(BY_PERMIT2, "only Permit2 needs an allowance"),
                Story(is_allowed=False),
            ),
        )
    ),
]
