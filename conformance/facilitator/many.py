"""Many settlements at once: the relayer's nonces, a failure among the settlements, and jams."""

import asyncio
from dataclasses import replace

from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import case, demand, only
from x402sim.suite.facilitator.play import Observed, Play
from x402sim.suite.facilitator.room import ROUGH, ChainRoomKind
from x402sim.suite.facilitator.truth import (
    everything_settles,
    success_is_this_transfer,
    wastes_no_gas,
)
from x402sim.suite.verdict import Violation

SLOW = ChainRoomKind(name="blocks of a second", block_s=1.0)
"""A chain with a block a second, in which several transactions of the relayer wait together."""
PATIENCE_S = 60.0
AFTER = 3
"""The good payments after a failed payment."""
COLLIDES = (
    "each is valid by itself, and what the relayer does for another is no fault of its payer: "
    "nonces that collide lost six of eight (bosonprotocol/x402B#83)"
)


async def _at_once(play: Play, count: int) -> Observed:
    drafts = [await play.draft() for _ in range(count)]
    answers = await asyncio.gather(*(play.settle(each, patience_s=PATIENCE_S) for each in drafts))
    return await play.observe(*zip(drafts, answers, strict=True))


async def _eight(play: Play) -> Observed:
    return await _at_once(play, 8)


@demand(
    "Good payments settle after a reverted payment",
    texts.derived(
        texts.EXECUTES,
        so="they are valid, and nothing is wrong any more: a transaction that reverted "
        "is mined, and stands in nobody's way",
    ),
    suffix="all",
)
def _late_ones(play: Play, observed: Observed) -> Violation | None:
    last = Observed(pairs=observed.pairs[-AFTER:], money=observed.money)
    return _settles_in_turn(play, last)


def _settles_in_turn(play: Play, observed: Observed) -> Violation | None:
    fault = everything_settles(play, observed)
    if fault is None:
        return None
    why = "a shop turns away who has paid rightly"
    return replace(fault, expected="", demand="settles-afterwards", why=why)


@case(
    "many/sixty",
    success_is_this_transfer("Sixty settlements at once: the answers are true"),
    demand(
        "Sixty good payments at once are settled",
        texts.ours(texts.EXECUTES, because=COLLIDES),
        suffix="all",
    )(everything_settles),
    kind=ROUGH,
    absent=only(
        [Dialect.V2],
        "the relayer is the same in every dialect: eight are asked at once in each",
    ),
)
async def _sixty(play: Play) -> Observed:
    return await _at_once(play, 60)


@case(
    "many/one-reverts",
    success_is_this_transfer("A transaction of several reverts: the answers are true"),
    _late_ones,
    kind=ROUGH,
)
async def _one_reverts(play: Play) -> Observed:
    """One of the relayer's transactions reverts when mined; good payments follow."""
    drafts = [await play.draft() for _ in range(5)]
    await play.room.controls.force_revert(1)
    first = await asyncio.gather(*(play.settle(each, patience_s=PATIENCE_S) for each in drafts))
    await play.room.controls.force_revert(0)
    pairs = list(zip(drafts, first, strict=True))
    for _ in range(AFTER):  # in turn: colliding nonces are another case
        draft = await play.draft()
        pairs.append((draft, await play.settle(draft, patience_s=PATIENCE_S)))
    observed = await play.observe(*pairs)
    play.say(f"{len(observed.money.reverted)} of the relayer's transactions reverted")
    return observed


@case(
    "many/after-refusals",
    demand(
        "Good payments settle after six refused payments",
        texts.derived(
            texts.EXECUTES,
            so="they are valid; what was refused before is not theirs. A nonce that was "
            "reserved for a refusal and not given back stops every later one",
        ),
    )(_settles_in_turn),
    kind=ROUGH,
)
async def _after_refusals(play: Play) -> Observed:
    """Payments refused in many ways, before a transaction is sent; good payments follow."""
    for number in range(6):
        draft = await play.draft()
        auth = draft.auth
        wrong = [
            draft.sealed(bytes(65)),
            draft.signed(value=auth.value - 1),
            draft.signed(valid_before=auth.valid_after + 1),
            draft.with_value("from", f"0x{auth.from_.hex()}"),
            await play.draft(await play.room.payer(0)),
            draft.with_value("requirements.asset", "0x" + "11" * 20),
        ]
        await play.settle(wrong[number])
    drafts = [await play.draft() for _ in range(AFTER)]
    return await play.observe(*[(each, await play.settle(each)) for each in drafts])


ROWS = [
    case(
        "many/eight",
        success_is_this_transfer("Eight settlements at once: the answers are true"),
        demand(
            "Eight good payments at once are settled",
            texts.derived(
                texts.EXECUTES,
                texts.SUCCESS_FIELD,
                so="each payment is valid, and none may fail because of another; a busy "
                "facilitator may answer 429 or 503",
            ),
            suffix="all",
        )(everything_settles),
        wastes_no_gas("Eight settlements at once are eight transactions", COLLIDES),
        kind=ROUGH,
    )(_eight),
    case(
        "many/eight-in-a-block",
        success_is_this_transfer("Eight settlements in a block: the answers are true"),
        demand(
            "Eight good payments in the same block are settled",
            texts.ours(texts.EXECUTES, because=COLLIDES),
            suffix="all",
        )(everything_settles),
        kind=SLOW,
        waits_s=2,
    )(_eight),
]
