"""A server's record of a payment: shared within a deployment, and kept through a restart.

One payment comes to two servers with a common store. Or a server is killed within a payment, and
started again with its stored data.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from x402sim.suite.dialect import Dialect
from x402sim.suite.server.case import HUNG_UP, bought_repeated, buys_one, case, of_a_lost_answer
from x402sim.suite.server.double import SETTLE, VERIFY, is_answered, on, waits
from x402sim.suite.server.observed import Trade, Uses
from x402sim.suite.server.play import PAUSE_S, Play
from x402sim.suite.server.raw import Answer
from x402sim.suite.server.room import REPLICAS

_case = partial(case, absent={Dialect.V1: "both versions have one record: version 2 is judged"})
_at_two = partial(_case, kind=REPLICAS)
KILLED = Answer(sent="a payment", failure="the server was killed")
STORED_S = 1.0
"""Seconds between an answer and the kill: the server may still be recording the answer."""
EACH = 3
"""The simultaneous requests at each server."""

# --- two servers of one deployment -----------------------------------------------------------


def _in_turn(*, strict: bool) -> Callable[[Play], Awaitable[Uses]]:
    """Return the play of a payment sent to one server, twice to the other, and to the first again.

    A `strict` facilitator refuses a settled payment; the other kind answers success again.
    """

    async def play(it: Play) -> Uses:
        await it.needs_numbers(it.replica)
        payment = await it.draft()
        it.double.strict = strict
        ports = [0, it.replica, it.replica, 0]
        return await it.used(payment, [await it.pay(payment, port=each) for each in ports])

    return play


def _at_once(*, strict: bool) -> Callable[[Play], Awaitable[Uses]]:
    """Return the play of a payment sent several times to both servers, while verify waits."""

    async def play(it: Play) -> Uses:
        await it.needs_numbers(it.replica)
        payment = await it.draft()
        it.double.strict = strict
        ports = [0, it.replica] * EACH
        answers = await it.held(VERIFY, [it.pay(payment, port=each) for each in ports])
        return await it.used(payment, answers)

    return play


# --- a server that is killed -----------------------------------------------------------------


def _while_held(path: str, *, after: bool = False) -> Callable[[Play], Awaitable[Trade]]:
    """Return the play of a server that dies while the facilitator holds a request to `path`.

    With `after`, the facilitator holds the answer.
    """

    async def play(it: Play) -> Trade:
        """A payer pays; while the facilitator holds the call, the server is killed (SIGKILL). The
        server is started again, and the payer sends the same payment again, at most twice.
        """
        it.needs_restarts()
        payment, gate = await it.draft(), asyncio.Event()
        with it.double.twisted(on(path, waits(gate, after=after))):
            async with it.leaving(payment):
                await it.until_held(path, payment, after=after)
                await it.room.kill()
            gate.set()
            await it.double.until(path, payment.nonce, it.patience_s, is_answered)
        await it.start_again()
        return await it.sent_again(payment, [KILLED])

    return play


def _between(*, strict: bool) -> Callable[[Play], Awaitable[Uses]]:
    """Return the play of a server that dies between two uses of a payment.

    A `strict` facilitator refuses a settled payment; the other kind answers success again.
    """

    async def play(it: Play) -> Uses:
        it.needs_restarts()
        await it.needs_numbers()
        payment = await it.draft()
        first, ran = await it.pay(payment), await it.ran()
        # Killed between the answer and its record, a server serves twice, or never if the record
        # comes first: no order is right, so the judge leaves time for the record.
        await it.wait(STORED_S)
        await it.room.kill()
        await it.start_again()
        if ran is not None:  # a counter may begin anew
            it.counted = (await it.count() or 0) - ran
        it.double.strict = strict
        return await it.used(payment, [first, await it.pay(payment), await it.pay(payment)])

    return play


_HOW = {"in-turn": (_in_turn, "in turn"), "at-once": (_at_once, "at once")}
_POINTS = {
    "verified": ("The server is killed after verify", VERIFY, True),
    "settling": ("The server is killed during settle", SETTLE, False),
    "settled": ("The server is killed after the settlement, before the answer", SETTLE, True),
}


@_at_two(
    "replicas/lost",
    *of_a_lost_answer("The first server's answer is lost, and the client asks the second"),
)
async def _lost(play: Play) -> Trade:
    """Hang up at one server during the settlement, and send the payment to the other server."""
    payment, gate = await play.draft(), asyncio.Event()
    with play.double.twisted(on(SETTLE, waits(gate, after=True))):
        async with play.leaving(payment):
            await play.until_held(SETTLE, payment, after=True)
        await play.wait(PAUSE_S)
        gate.set()
        await play.double.until(SETTLE, payment.nonce, play.patience_s, is_answered)
    return await play.sent_again(payment, [HUNG_UP], port=play.replica)


ROWS = [
    *(
        _at_two(
            f"replicas/{slug}",
            buys_one(f"A payment at two servers of a deployment {how} buys a single item"),
        )(play(strict=True))
        for slug, (play, how) in _HOW.items()
    ),
    *(
        _at_two(
            f"replicas/{slug}-told-again",
            bought_repeated(
                f"What a payment at two servers of a deployment {how} buys, if the facilitator "
                "says success each time"
            ),
        )(play(strict=False))
        for slug, (play, how) in _HOW.items()
    ),
    *(
        _case(f"restart/{slug}", *of_a_lost_answer(what))(_while_held(path, after=after))
        for slug, (what, path, after) in _POINTS.items()
    ),
    _case(
        "restart/served",
        buys_one("The server is killed after serving: the same payment buys nothing more"),
    )(_between(strict=True)),
    _case(
        "restart/served-told-again",
        bought_repeated(
            "The server is killed after serving: what the same payment buys, if the facilitator "
            "says success again"
        ),
    )(_between(strict=False)),
]
