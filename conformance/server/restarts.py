"""A server that is killed within a payment, and started again with what it has kept."""

import asyncio
from collections.abc import Awaitable, Callable

from x402sim.suite.server.case import (
    Row,
    Trade,
    Uses,
    buys_one,
    buys_one_repeated,
    needs_numbers,
    of_a_lost_answer,
    sent_again,
    used,
)
from x402sim.suite.server.double import SETTLE, VERIFY, is_answered, is_worked_on, on, waits
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.play import Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.verdict import NotApplicable

V2_ONLY = {Dialect.V1: "what it keeps is one for both: it is judged with version 2"}
KILLED = Answer(sent="a payment", failure="the server was killed")


def _while_held(path: str, *, after: bool = False) -> Callable[[Play], Awaitable[Trade]]:
    """Return the play of a server that dies while the facilitator holds a path, or its answer."""

    async def play(it: Play) -> Trade:
        it.needs_restarts()
        payment, gate = await it.draft(), asyncio.Event()
        with it.double.twisted(on(path, waits(gate, after=after))):
            async with it.leaving(payment):
                is_there = is_worked_on if after else bool
                if not await it.double.until(path, payment.nonce, it.patience_s, is_there):
                    raise NotApplicable(f"it does not ask {path}")
                await it.room.kill()
            gate.set()
            await it.double.until(path, payment.nonce, it.patience_s, is_answered)
        await it.start_again()
        return await sent_again(it, payment, [KILLED])

    return play


def _between(*, strict: bool) -> Callable[[Play], Awaitable[Uses]]:
    """Return the play of a server that dies between two uses of a payment.

    A `strict` facilitator refuses what is settled; the other one says success again.
    """

    async def play(it: Play) -> Uses:
        it.needs_restarts()
        await needs_numbers(it)
        payment = await it.draft()
        first = await it.pay(payment)
        await it.room.kill()
        await it.start_again()
        it.double.strict = strict
        return await used(it, payment, [first, await it.pay(payment), await it.pay(payment)])

    return play


_POINTS = {
    "verified": ("It is killed when verify is done", VERIFY, True),
    "settling": ("It is killed while settle is under way", SETTLE, False),
    "settled": ("It is killed when it is settled, before the answer", SETTLE, True),
}

ROWS = [
    *(
        Row(
            section="restart",
            slug=slug,
            play=_while_held(path, after=after),
            absent=V2_ONLY,
            demands=of_a_lost_answer(what),
        )
        for slug, (what, path, after) in _POINTS.items()
    ),
    Row(
        section="restart",
        slug="served",
        play=_between(strict=True),
        absent=V2_ONLY,
        demands=[buys_one("It is killed when it has served: the same payment buys nothing more")],
    ),
    Row(
        section="restart",
        slug="served-told-again",
        play=_between(strict=False),
        absent=V2_ONLY,
        demands=[
            buys_one_repeated(
                "It is killed when it has served: the same payment buys nothing more, though the "
                "facilitator says success again"
            )
        ],
    ),
]
