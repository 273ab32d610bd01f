"""A facilitator that refuses, lies, or answers late, in part or not at all: goods and charges."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from x402sim.protocol.x402 import PAYMENT_FLOW
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import (
    case,
    demand,
    of_a_lost_settlement,
    of_no_settlement,
    with_facilitator,
)
from x402sim.suite.server.double import (
    INVALID,
    REFUSED,
    SETTLE,
    VERIFY,
    Twist,
    breaks,
    first,
    on,
    pending,
    refuses,
    twice,
)
from x402sim.suite.server.observed import Trade
from x402sim.suite.server.payment import reason_in
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import Found, NotApplicable, Violation
from x402sim.suite.wire import How, Reply, as_json, late, says
from x402sim.text.words import often

LATE_S = 8.0
ELSEWHERE = {"Location": "http://127.0.0.1:9/settle"}
"""A port without a listener."""

_LOST = {
    "lost": ("the answer is lost", lambda: breaks(How.LOST)),
    "cut": ("the answer is cut", lambda: breaks(How.CUT)),
    "empty": ("the answer is 200 {}", lambda: says(as_json({}), after=True)),
    "page": (
        "the answer is a page",
        lambda: says(Reply(headers={"Content-Type": "text/html"}, body=b"<p>ok</p>"), after=True),
    ),
    "nothing": ("the answer is 200 without a body", lambda: says(Reply(), after=True)),
    "gateway": (
        "a proxy answers 502 instead",
        lambda: says(Reply(status=502, body=b"Bad Gateway"), after=True),
    ),
    "error": (
        "the answer is 500",
        lambda: says(as_json({"error": "internal"}, 500), after=True),
    ),
    "twice": ("the answer comes twice in a body", twice),
    "pending": ("the answer says pending", lambda: pending("eip155:84532")),
    "array": ("the answer is a list", lambda: says(as_json([]), after=True)),
    "busy": (
        "the answer is 429",
        lambda: says(as_json({"error": "slow down"}, 429), after=True),
    ),
}
"""Faults of settle's answer, after settle has done the work."""
_SETTLE_NO = {
    "refused": ("settle refuses", lambda: refuses(REFUSED)),
    "refused-400": ("settle refuses with 400", lambda: refuses(REFUSED, 400)),
    "settle-down": ("settle is 503", lambda: says(Reply(status=503))),
    "settle-lost": ("settle ends the connection", lambda: says(Reply(how=How.LOST))),
    "settle-empty": ("settle answers 200 {} and does nothing", lambda: says(as_json({}))),
    "settle-null": (
        "settle answers success null",
        lambda: refuses(REFUSED | {"success": None}),
    ),
    "settle-text": (
        "settle answers success with the text false",
        lambda: refuses(REFUSED | {"success": "false"}),
    ),
    "settle-page": (
        "settle answers a page with 200",
        lambda: says(Reply(headers={"Content-Type": "text/html"}, body=b"<p>ok</p>")),
    ),
    "settle-moved": (
        "settle redirects to a dead address",
        lambda: says(Reply(status=308, headers=ELSEWHERE)),
    ),
}
"""Answers of settle without a settlement."""
_VERIFY_NO = {
    "invalid": ("verify says no", lambda: refuses(INVALID)),
    "invalid-400": ("verify says no with 400", lambda: refuses(INVALID, 400)),
    "invalid-text": (
        "verify answers isValid with the text false",
        lambda: refuses(INVALID | {"isValid": "false"}),
    ),
    "verify-down": ("verify is 503", lambda: says(Reply(status=503))),
    "verify-lost": ("verify ends the connection", lambda: says(Reply(how=How.LOST))),
    "verify-empty": ("verify answers 200 {}", lambda: says(as_json({}))),
    "verify-moved": (
        "verify redirects to a dead address",
        lambda: says(Reply(status=308, headers=ELSEWHERE)),
    ),
}
"""Answers of verify, while settle refuses: served goods are unpaid."""
_TEXTS = ("settle-text", "invalid-text")
"""Answers that a language may take for a yes, where the text has true or false."""


Make = Callable[[], Twist]


def _once(make: Make) -> Make:
    """Return a maker of a twist of the first settlement only."""
    return lambda: on(SETTLE, first(1, make()))


def _always(path: str, make: Make) -> Make:
    """Return a maker of a twist of a path."""
    return lambda: on(path, make())


def _no() -> Twist:
    return refuses(REFUSED)


def _told(play: Play, answer: Answer) -> set[str]:
    """Return a refusal's words: of the receipt, the offer and the body."""
    offer, body = play.required(answer), answer.json
    said = [reason_in(play.dialect, answer), offer.get("error")]
    said += body.values() if isinstance(body, dict) else [answer.body.decode("latin-1")]
    return {each for each in said if isinstance(each, str) and each}


@demand(
    "A refused settlement is told, with the reason",
    texts.derived(
        texts.RESPONSE,
        texts.ERROR_REASON,
        texts.ERROR_V1,
        so="a settlement that failed is a result, too, which an answer that says no more than "
        "to a request without a payment does not communicate",
    ),
    suffix="reason",
)
def _reason(play: Play, observed: Trade) -> Found:
    answer = observed.answers[0]
    if not observed.settled or answer.is_2xx or answer.is_server_error:
        return None
    is_yes = play.receipt(answer).get("success") is True
    if not is_yes and _told(play, answer) - _told(play, play.answers[0]):
        return None
    return Violation(demand="refused-settlement-has-reason", actual=answer.how)


@demand(
    "A refused settlement is told in PAYMENT-RESPONSE",
    texts.ours(
        texts.RESPONSE,
        because="the text's example of a failure has it there, and clients read it there; no "
        "MUST stands in it, and `error` of the offer is in a header of the text, too",
    ),
    suffix="receipt",
    absent=dict.fromkeys((Dialect.V1, Dialect.MCP), "the text's example has it in the offer"),
)
def _receipt(play: Play, observed: Trade) -> Found:
    answer = observed.answers[0]
    if not observed.settled or answer.is_2xx or answer.is_server_error:
        return None
    receipt = play.receipt(answer)
    if receipt.get("success") is False and receipt.get("errorReason"):
        return None
    return Violation(demand="refusal-has-receipt", actual=answer.how)


FAKE = "0x" + "ab" * 32
_ELSEWHERE = {
    VERIFY: {"isValid": True},
    SETTLE: {"success": True, "transaction": FAKE, "network": "eip155:84532"},
}
"""The answers of another host, to which the facilitator redirects the server."""


@dataclass(frozen=True, slots=True)
class Redirected:
    """A purchase with a facilitator that redirects to another host, and the calls at that host."""

    trade: Trade
    followed: int


def _redirects(path: str) -> Callable[[Play], Awaitable[Redirected]]:
    """Return the play of a facilitator that redirects a path to another host, which says yes."""

    async def play(it: Play) -> Redirected:
        port = it.room.facilitator_url.rpartition(":")[2]
        there = f"/elsewhere{path}"
        moved = Reply(status=307, headers={"Location": f"http://localhost:{port}{there}"})
        twists = [on(path, says(moved)), on(there, says(as_json(_ELSEWHERE[path])))]
        if path == VERIFY:
            twists.append(on(SETTLE, _no()))
        before = it.double.count(there)
        done = await it.trade(*twists, again=0)
        return Redirected(done, it.double.count(there) - before)

    return play


def _stays(play: Play, observed: Redirected) -> Found:
    if not observed.followed:
        return None
    price = observed.trade.payment.auth.value
    is_lost = observed.trade.is_served and not observed.trade.moved
    is_lost = is_lost and not play.used_nothing(observed.trade)
    return Violation(
        demand="redirects-not-followed",
        actual=f"it went there with the payment {often(observed.followed)}; "
        f"{observed.trade.summary}",
        loss=play.tokens(price, "served for nothing, on another host's word") if is_lost else None,
    )


@demand(
    "The handler fails: no charge, or the answer names the transaction",
    texts.derived(
        texts.SUCCESS,
        texts.RESPONSE,
        so="a settlement goes with a success, or else its result is told",
    ),
)
def _not_charged(play: Play, observed: Trade) -> Found:
    receipt = play.receipt(observed.answers[0])
    if not observed.moved or receipt.get("transaction"):
        return None
    return Violation(
        demand="failed-is-not-charged-or-told",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "charged for a failure, and not told"),
    )


def _as_declared(play: Play, observed: Trade) -> Found:
    extra = observed.payment.offer.get("extra")
    flow = extra.get(PAYMENT_FLOW, "authorization") if isinstance(extra, dict) else "authorization"
    if not observed.moved or flow != "authorization":
        return None
    return Violation(
        demand="failed-is-not-charged",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "charged for what failed"),
    )


@case(
    "order/handler-fails",
    _not_charged,
    demand(
        "The handler fails: no charge, unless the offer declares to settle before the work",
        texts.derived(
            texts.DECLARED_FLOW,
            texts.FLOW,
            texts.FAILED_HANDLER,
            so="who declares no flow works before it settles, and settles no failure",
        ),
        suffix="flow",
        absent={Dialect.V1: "its offers cannot declare a payment flow"},
    )(_as_declared),
    demand(
        "The handler fails: no charge",
        texts.ours(
            texts.FAILED_HANDLER, because="a payer has paid for nothing, and nobody refunds"
        ),
        suffix="charged",
        absent=dict.fromkeys(
            (Dialect.V2, Dialect.PERMIT2, Dialect.UPTO), "its offers can declare the payment flow"
        ),
    )(_as_declared),
)
async def _fails(play: Play) -> Trade:
    """Pay for a request whose handler fails."""
    item = play.handled("failing")
    payment = await play.draft(item)
    answer = await play.pay(payment, item)
    if answer.is_2xx and not answer.is_cut:
        raise NotApplicable(f"what --failing names does not fail: {answer.how}")
    return await play.sent_again(payment, [answer], again=0)


@case(
    "order/settled-lost-used",
    *of_a_lost_settlement(
        "The facilitator settles, the answer is lost, and later answers say that the nonce is used"
    )[:1],
)
async def _lost_and_used(play: Play) -> Trade:
    """Pay while the answer of settle is lost; settle refuses every repetition."""
    play.double.strict = True
    return await play.trade(on(SETTLE, first(1, breaks(How.LOST))))


ROWS = [
    *(
        case(
            f"order/{path.strip('/')}-redirected",
            demand(
                f"{path} is redirected to another host: the server does not follow",
                texts.ours(
                    texts.VERIFIES,
                    because="who can redirect one request then says what is paid "
                    "(x402-foundation/x402#1692)",
                ),
            )(_stays),
        )(_redirects(path))
        for path in (VERIFY, SETTLE)
    ),
    *(
        case(
            f"order/settled-{slug}", *of_a_lost_settlement(f"The facilitator settles, and {what}")
        )(with_facilitator(_once(do)))
        for slug, (what, do) in _LOST.items()
    ),
    case(
        "order/settled-late",
        *of_a_lost_settlement(f"The facilitator settles, and answers {LATE_S:g} s later"),
        waits_s=LATE_S,
    )(with_facilitator(lambda: on(SETTLE, first(1, late(LATE_S, after=True))))),
    *(
        case(
            f"order/{slug}",
            *of_no_settlement(what[0].upper() + what[1:], is_told=slug not in _TEXTS),
            *([_reason, _receipt] if slug == "refused" else []),
        )(with_facilitator(_always(SETTLE, do)))
        for slug, (what, do) in _SETTLE_NO.items()
    ),
    *(
        case(
            f"order/{slug}",
            *of_no_settlement(what[0].upper() + what[1:], is_told=slug not in _TEXTS),
        )(with_facilitator(_always(VERIFY, do), _always(SETTLE, _no)))
        for slug, (what, do) in _VERIFY_NO.items()
    ),
]
