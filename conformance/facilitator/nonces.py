"""Nonces: used, cancelled, and used by a stranger in between; and the same payment again.

The token takes an authorization once. A facilitator that gets a used authorization answers
success=false. Two requests with one payment make one transfer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from x402sim.protocol.crypto import to_hex
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import Demand, case, demand, only
from x402sim.suite.facilitator.payment import Draft
from x402sim.suite.facilitator.play import Observed, Play
from x402sim.suite.facilitator.room import ROUGH
from x402sim.suite.facilitator.truth import (
    hash_is_named,
    is_not_valid,
    must_not_settle,
    no_server_errors,
    sends_nothing,
    success_is_this_transfer,
    wastes_no_gas,
)
from x402sim.suite.verdict import Inconclusive

_BOUND = {Dialect.UPTO: "no stranger can settle it: the message names the facilitator"}
USED = (
    "the token has said that the nonce is used: it is no verified payment, and anybody can ask "
    "again and again, for each of which the relayer pays"
)
DRAINS = "anybody can ask again and again, and the relayer pays for each"
AGAIN = "a request that is sent twice is one payment: another transaction can only revert"

ARRIVES_S = 0.2
"""Seconds until a request has arrived."""

# --- used and cancelled ----------------------------------------------------------------------


def _is_refused(title: str, *, says: bool = True) -> list[Demand]:
    found = [demand(f"{title} is not settled", texts.explicit(texts.CONSUMED))(must_not_settle)]
    if not says:
        return [*found, wastes_no_gas(f"{title} costs no gas", DRAINS)]
    return [
        *found,
        sends_nothing(f"{title} costs no gas", USED),
        demand(
            f"{title} is not valid",
            texts.derived(
                texts.SIMULATE, so="the transfer would not succeed, as the token says when asked"
            ),
            suffix="verify",
        )(is_not_valid),
        demand(
            f"{title} is answered with a verdict, not a 5xx",
            texts.derived(
                texts.CONSUMED,
                texts.SUCCESS_FIELD,
                so="a settlement failure has an answer of its own",
            ),
            suffix="answer",
        )(no_server_errors),
    ]


# --- the same payment again ------------------------------------------------------------------


def _spelled(draft: Draft) -> list[Draft]:
    """Return the same payment in other spellings, with the same signature and nonce."""

    def large(name: str) -> Draft:
        return draft.with_value(name, str(draft.get(name)).upper().replace("0X", "0x"))

    return [draft, large("nonce"), large("signature"), draft.with_value("body.note", "again")]


def _elsewhere(
    change: Callable[[Play, Draft], Draft], *, is_part: bool = False
) -> Callable[[Play], Awaitable[Observed]]:
    """Return the play of payments for other requirements than before; a part alone may be right."""

    async def play_it(play: Play) -> Observed:
        """A payment has been settled, another has been verified, a third is under way."""
        settled, verified, under_way = [await play.draft() for _ in range(3)]
        await play.settled_once(settled)
        pairs = [(settled, await play.settle(change(play, settled)))]
        if not is_part:
            await play.verify(verified)
            pairs.append((verified, await play.settle(change(play, verified))))
            async with play.unmined():
                sent = len(play.room.node.sent) - play.sent_before
                first = asyncio.create_task(play.settle(under_way))
                await play.until_sent(first, count=sent + 1)
                second = asyncio.create_task(play.settle(change(play, under_way)))
                await play.wait(ARRIVES_S)
                await play.room.controls.mine()
                await first
                pairs.append((under_way, await second))
        return await play.observe(*pairs)

    return play_it


@demand(
    "The answer to a settled payment, sent again",
    texts.silent(
        texts.CONSUMED,
        why="to answer as before helps who has lost the answer; to refuse tells a "
        "repetition from the use of a stranger. Both are legal",
    ),
)
def _observed(_: Play, observed: Observed) -> str:
    says = {
        "as before" if answer.succeeded else "pending" if answer.is_pending else "refused"
        for answer in observed.all_answers[1:]
    }
    return f"the same payment again is answered: {', '.join(sorted(says))}"


def _once(title: str, *, is_settled: bool = False) -> list[Demand]:
    what = f"{title}: a single transaction, without a revert"
    return [
        success_is_this_transfer(f"{title}: a single transfer, and no success with another hash"),
        sends_nothing(what, USED) if is_settled else wastes_no_gas(what, AGAIN),
    ]


_OTHER = texts.derived(
    texts.PARAMETER_MATCHING,
    texts.CONSUMED,
    so="the facilitator settled this payment for other requirements; a stored answer to those does "
    "not answer these",
)


@case(
    "nonce/used-elsewhere",
    *_is_refused("A payment already submitted by a stranger"),
    absent=_BOUND,
)
async def _used_elsewhere(play: Play) -> Observed:
    draft = await play.draft()
    await play.used_by_another(draft)
    return await play.verified_and_settled(draft)


@case(
    "nonce/used-for-another",
    *_is_refused("A payment with the nonce of an earlier payment"),
    absent=_BOUND,
)
async def _used_for_another(play: Play) -> Observed:
    first = await play.draft()
    await play.used_by_another(first)
    other = await play.draft(first.wallet)
    return await play.verified_and_settled(other.signed(nonce=first.auth.nonce))


@case("nonce/cancelled", *_is_refused("A payment cancelled by the payer"))
async def _cancelled(play: Play) -> Observed:
    draft = await play.draft()
    await play.cancelled(draft)
    return await play.verified_and_settled(draft)


@case(
    "nonce/used-between",
    *_is_refused("A payment used between verify and settle", says=False),
    absent=_BOUND,
)
async def _used_between(play: Play) -> Observed:
    draft = await play.draft()
    await play.valid_first(draft)
    await play.used_by_another(draft)
    return await play.observe((draft, await play.settle(draft)))


@case(
    "nonce/cancelled-between",
    *_is_refused("A payment cancelled between verify and settle", says=False),
)
async def _cancelled_between(play: Play) -> Observed:
    draft = await play.draft()
    await play.valid_first(draft)
    await play.cancelled(draft)
    return await play.observe((draft, await play.settle(draft)))


@case(
    "nonce/used-in-the-pool",
    success_is_this_transfer(
        "A stranger's transaction settles the payment earlier in the same block: the "
        "relayer's reverted transaction is no success"
    ),
    kind=ROUGH,
    absent=_BOUND,
)
async def _used_in_the_pool(play: Play) -> Observed:
    """A stranger's transaction comes before the relayer's in the same block."""
    draft = await play.draft()
    async with play.unmined():
        await play.used_by_another(draft)
        answer = await play.settled_when_mined(draft)
    return await play.observe((draft, answer))


@case(
    "again/settled",
    *_once("The same payment after the settlement", is_settled=True),
    demand(
        "A settled payment is not valid again",
        texts.derived(
            texts.SIMULATE, so="the transfer would not succeed, as the token says when asked"
        ),
        suffix="verify",
    )(is_not_valid),
    _observed,
)
async def _again(play: Play) -> Observed:
    draft = await play.draft()
    first = await play.settled_once(draft)
    verified = await play.verify(draft)
    second, third = await play.settle(draft), await play.settle(draft)
    observed = await play.observe((draft, first), (draft, second), (draft, third))
    return replace(observed, verified=verified)


@case("again/at-once", *_once("The same payment five times at once"), kind=ROUGH)
async def _at_once(play: Play) -> Observed:
    draft = await play.draft()
    answers = await asyncio.gather(*(play.settle(draft) for _ in range(5)))
    return await play.observe(*((draft, answer) for answer in answers))


@case(
    "again/at-once-reworded",
    *_once("The same payment four times at once, each in other letters"),
    kind=ROUGH,
)
async def _at_once_reworded(play: Play) -> Observed:
    drafts = _spelled(await play.draft())
    answers = await asyncio.gather(*(play.settle(each) for each in drafts))
    return await play.observe(*zip(drafts, answers, strict=True))


@case(
    "again/under-way",
    *_once("The same payment while the first is under way"),
    hash_is_named(
        "The same payment while the first is under way: the answer has the transaction hash"
    ),
    kind=ROUGH,
)
async def _under_way(play: Play) -> Observed:
    """Send a payment again while its transaction is sent and not mined."""
    draft = await play.draft()
    async with play.unmined():
        first = asyncio.create_task(play.settle(draft))
        if not await play.until_sent(first):
            raise Inconclusive(f"it sent nothing for a good payment: {(await first).how}")
        second = asyncio.create_task(play.settle(draft))
        await play.until_sent(second, count=2)
        await play.room.controls.mine()
        answers = await asyncio.gather(first, second)
    return await play.observe(*((draft, answer) for answer in answers))


@case(
    "again/same-nonce",
    success_is_this_transfer("The nonce of another payer's payment: success is a transfer"),
)
async def _same_nonce(play: Play) -> Observed:
    """Two payers have the same nonce: the token keeps the nonces of each payer apart."""
    first = await play.draft()
    await play.settled_once(first)
    other = (await play.draft()).signed(nonce=first.auth.nonce)
    return await play.observe((other, await play.settle(other)))


ROWS = [
    case(
        "again/for-another-payee",
        demand("A payment settled for a shop is no success for another shop", _OTHER)(
            must_not_settle
        ),
    )(_elsewhere(lambda play, draft: draft.demanding("payTo", to_hex(play.payee())))),
    case(
        "again/for-more",
        demand("A settled payment is no success for ten times as much", _OTHER)(must_not_settle),
    )(_elsewhere(lambda _, draft: draft.demanding("amount", str(10 * draft.auth.value)))),
    case(
        "again/for-more",
        demand(
            "A settled payment is no success for another part of the maximum",
            texts.explicit(texts.UPTO_ONCE),
        )(must_not_settle),
        variant="part",
        absent=only([Dialect.UPTO], "only `upto` settles a part"),
    )(_elsewhere(lambda _, draft: draft.using(draft.auth.value // 2), is_part=True)),
]
