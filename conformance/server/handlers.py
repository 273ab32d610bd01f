"""Handlers that are slow, stream or redirect: served goods and charges."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.protocol.money import to_base, to_decimal
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.row import only
from x402sim.suite.server.case import (
    HUNG_UP,
    SERVED_ONLY_IF_SETTLED,
    case,
    charged_only_if_served,
    demand,
    of_a_lost_answer,
    served_only_if_settled,
    uncounted,
)
from x402sim.suite.server.double import INVALID, REFUSED, SETTLE, VERIFY, is_answered, on, refuses
from x402sim.suite.server.observed import Trade
from x402sim.suite.server.payment import BEFORE_S
from x402sim.suite.server.play import BEGINS_S, Item, Play
from x402sim.suite.verdict import Found, NotApplicable, Untold, Violation
from x402sim.suite.wire import as_json, says
from x402sim.text.words import often

LEAST_S = 1.0
"""The least seconds of a slow handler."""


async def _slow(play: Play) -> tuple[Item, float]:
    """Return a request with a slow handler, and the handler's seconds."""
    item = play.handled("slow")
    took_s = (await play.goods(item)).seconds
    if took_s < LEAST_S:
        raise NotApplicable(f"what --slow names is answered within {LEAST_S:g} s")
    return item, took_s


@demand(
    "The handler runs only for a payment that verify has accepted",
    texts.derived(
        texts.NO_VALID_PAYMENT,
        texts.FLOW,
        so="in either flow the resource executes after its payment was verified, or settled",
    ),
)
def _is_not_made(_: Play, runs: int) -> Found:
    if runs <= 0:
        return None
    return Violation(
        demand="no-work-unpaid", actual=f"by a number in it, it was made {often(runs)}"
    )


@demand(
    "A charged redirect names the transaction",
    texts.derived(
        texts.RESPONSE,
        texts.TRANSACTION,
        so="a settlement is told with the answer that it belongs to",
    ),
)
def _is_named(play: Play, observed: Trade) -> Found:
    if not observed.moved or play.receipt(observed.answers[0]).get("transaction"):
        return None
    return Violation(
        demand="redirect-names-transaction",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "charged, and not told"),
    )


@demand(
    "A redirect to the paid goods is settled",
    texts.ours(
        texts.SUCCESS,
        because="where a redirect delivers to a store of files, it was had for "
        "nothing (x402-foundation/x402 issue 3465)",
    ),
    suffix="settled",
)
def _is_charged(play: Play, observed: Trade) -> Found:
    if observed.moved or play.amount_told(observed.answers[0]) == 0:
        return None
    return Violation(
        demand="redirect-is-settled",
        actual=observed.summary,
        loss=play.tokens(observed.payment.auth.value, "what it redirects to was had for nothing"),
    )


MOST_TIMES = 100
"""An amount used above so many times the maximum is taken for base units."""


@dataclass(frozen=True, slots=True)
class Metered:
    """A purchase of an item whose amount used is known: in base units, used and asked for."""

    trade: Trade
    used: int
    asked: Sequence[int]


@demand(
    "The amount used is settled, once, no more and no less",
    texts.derived(
        texts.USED,
        texts.DETERMINED,
        texts.UPTO_ACTUAL,
        so="who settles the maximum, nothing, or before the work does not settle the amount used",
    ),
)
def _is_what_was_used(play: Play, observed: Sequence[Metered]) -> Found:
    for each in observed:
        most, moved = each.trade.payment.auth.value, [it.amount_base for it in each.trade.moved]
        actual = f"{each.trade.summary}; used {each.used} of at most {most} base units"
        if above := [asked for asked in each.asked if asked > most]:
            return Violation(
                demand="settles-at-most-maximum",
                actual=f"settle was asked for {above[0]}; {actual}",
            )
        if each.used <= most and (
            not each.trade.is_served or moved != [each.used] * bool(each.used)
        ):
            more = sum(moved) - each.used
            why = "charged for more than was used" if more > 0 else "used, and not settled"
            return Violation(
                demand="settles-what-was-used",
                actual=actual,
                loss=play.tokens(abs(more), why) if more else None,
            )
    return None


@case("handler/used", _is_what_was_used, absent=only([Dialect.UPTO], "the price is the amount"))
async def _metered(play: Play) -> list[Metered]:
    """Buy each item whose use is known."""
    if not play.metered:
        raise NotApplicable("it needs a request sold `upto` whose use is known: --metered")
    found = []
    for item in play.metered:
        payment = await play.draft(item)
        used = to_base(item.used, play.room.network.decimals)
        if used > MOST_TIMES * payment.auth.value:
            most = to_decimal(payment.auth.value, play.room.network.decimals)
            raise Untold(f"--metered {item.used} is in tokens; {item.shown} costs at most {most}")
        bought = await play.trade(again=0, item=item, payment=payment)
        calls = [it for it in play.double.calls if (it.path, it.nonce) == (SETTLE, payment.nonce)]
        asked = [it.amount_base for it in calls if it.amount_base is not None]
        found.append(Metered(trade=bought, used=used, asked=asked))
    return found


@dataclass(frozen=True, slots=True)
class Streamed:
    """A purchase of a stream; whether the payment was settled at the first piece and at the end."""

    trade: Trade
    is_settled_first: bool
    is_settled: bool


@demand(
    "A paid stream comes as a whole, with a single transfer",
    texts.explicit(texts.SUCCESS, texts.ONE_TRANSFER),
)
def _is_whole(play: Play, observed: Streamed) -> Found:
    answer, count = observed.trade.answers[0], len(observed.trade.moved)
    is_paid = count == 1 or (count == 0 and play.used_nothing(observed.trade))
    if answer.is_2xx and not answer.is_cut and is_paid:
        return None
    return Violation(demand="whole-stream", actual=observed.trade.summary)


@demand(
    "A stream begins with the receipt",
    texts.ours(texts.RESPONSE, because="a header cannot follow the body that it belongs to"),
    suffix="receipt",
)
def _is_proven(play: Play, observed: Streamed) -> Found:
    if not observed.is_settled or play.receipt(observed.trade.answers[0]).get("transaction"):
        return None
    return Violation(demand="receipt-before-stream", actual=observed.trade.summary)


@demand(
    "When a stream is settled",
    texts.silent(texts.FAILED_HANDLER, why="both flows are there; one answer is no rule for it"),
    suffix="when",
)
def _when(_: Play, observed: Streamed) -> Found:
    return f"it is settled {'before' if observed.is_settled_first else 'after'} the first piece"


@demand("The client leaves within a stream: the stream is paid for", SERVED_ONLY_IF_SETTLED)
def _left_is_paid(play: Play, observed: Streamed) -> Found:
    if observed.is_settled or play.used_nothing(observed.trade):
        return None
    return Violation(
        demand="begun-stream-is-paid",
        actual=f"the first piece had come, and nothing was settled; {observed.trade.summary}",
        loss=play.tokens(observed.trade.payment.auth.value, "begun, and had for nothing"),
    )


@case("handler/unpaid", _is_not_made)
async def _unpaid(play: Play) -> int:
    """Return how often the handler runs for unpaid requests, and for refused payments."""

    async def ask() -> None:
        await play.ask()
        with play.double.twisted(on(VERIFY, refuses(INVALID)), on(SETTLE, refuses(REFUSED))):
            await play.pay(await play.draft())

    made = await play.times_made(ask)
    if made is None:
        raise uncounted()
    return made


@case(
    "handler/expired",
    demand(
        "The payment expires while the handler works: nothing is served", SERVED_ONLY_IF_SETTLED
    )(served_only_if_settled),
    waits_s=LEAST_S,
)
async def _expires(play: Play) -> Trade:
    """Pay with an authorization that expires while the handler works; verify has accepted it."""
    item, took_s = await _slow(play)
    payment = await play.draft(item)
    payment = payment.signed(
        valid_before=payment.auth.valid_after + BEFORE_S + max(1, int(took_s / 2))
    )
    yes = says(as_json({"isValid": True, "payer": payment.wallet.address}))
    return await play.trade(on(VERIFY, yes), again=0, item=item, payment=payment)


@case(
    "handler/left", *of_a_lost_answer("The client leaves while the handler works"), waits_s=LEAST_S
)
async def _impatient(play: Play) -> Trade:
    """Hang up while the handler works."""
    item, took_s = await _slow(play)
    payment = await play.draft(item)
    async with play.leaving(payment, item):
        await play.wait(took_s / 2)
    await play.double.until(SETTLE, payment.nonce, took_s + BEGINS_S, is_answered)
    return await play.sent_again(payment, [HUNG_UP], item=item)


@case("handler/redirects", _is_named, _is_charged, waits_s=BEGINS_S)
async def _redirects(play: Play) -> Trade:
    item = play.handled("redirecting")
    payment = await play.draft(item)
    answer = await play.pay(payment, item)
    if answer.status // 100 != 3:
        raise NotApplicable(f"what --redirecting names does not redirect: {answer.how}")
    await play.double.until(SETTLE, payment.nonce, BEGINS_S, is_answered)
    return await play.sent_again(payment, [answer], again=0)


@case("handler/stream", _is_whole, _is_proven, _when, waits_s=LEAST_S)
async def _streams(play: Play) -> Streamed:
    item = play.handled("streaming")
    payment, begun = await play.draft(item), asyncio.Event()
    asked = asyncio.create_task(play.pay(payment, item, begun=begun))
    await asyncio.wait(
        [asked, waits := asyncio.create_task(begun.wait())], return_when=asyncio.FIRST_COMPLETED
    )
    waits.cancel()
    is_first = play.double.is_settled(payment.nonce)
    answer = await asked
    await play.double.until(SETTLE, payment.nonce, BEGINS_S, is_answered)
    bought = await play.sent_again(payment, [answer], again=0)
    return Streamed(bought, is_first, bool(bought.moved))


@case(
    "handler/stream-refused",
    demand("Settle refuses: no piece of a stream is served", SERVED_ONLY_IF_SETTLED)(
        served_only_if_settled
    ),
    waits_s=LEAST_S,
)
async def _stream_refused(play: Play) -> Trade:
    no = on(SETTLE, refuses(REFUSED))
    return await play.trade(no, again=0, item=play.handled("streaming"))


@case(
    "handler/stream-left",
    _left_is_paid,
    demand(
        "A stream is lost: the same payment gets the goods or the payment's state",
        texts.ours(texts.RESEND, because="the payer has paid, and holds nothing but this payment"),
        suffix="again",
    )(lambda play, observed: charged_only_if_served(play, observed.trade)),
    waits_s=LEAST_S,
)
async def _stream_left(play: Play) -> Streamed:
    """Hang up when the first piece of a stream has come."""
    item = play.handled("streaming")
    goods = await play.goods(item)
    payment, begun = await play.draft(item), asyncio.Event()
    async with play.leaving(payment, item, begun=begun) as asked:
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait([asked, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if asked.done():
            raise NotApplicable("what --streaming names is answered in one piece")
        is_first = play.double.is_settled(payment.nonce)
    await play.double.until(SETTLE, payment.nonce, goods.seconds + BEGINS_S, is_answered)
    is_settled = bool(await play.moved(payment))
    return Streamed(await play.sent_again(payment, [HUNG_UP], item=item), is_first, is_settled)
