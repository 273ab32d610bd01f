"""Two servers of one deployment, which share what they keep: one payment at both."""

import asyncio

from x402sim.suite.server.case import Row
from x402sim.suite.server.double import SETTLE, VERIFY, is_answered, is_worked_on, on, waits
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.play import Play
from x402sim.suite.server.room import REPLICAS
from x402sim.suite.server.trade import (
    HUNG_UP,
    PAUSE_S,
    Trade,
    of_a_lost_answer,
    sent_again,
)
from x402sim.suite.server.uses import Uses, buys_one, told_apart
from x402sim.suite.verdict import NotApplicable

V2_ONLY = {Dialect.V1: "what they keep is one for both: it is judged with version 2"}
EACH, HELD_S = 3, 0.6
"""How many requests each gets at once, and how long the facilitator holds them."""


async def _in_turn(play: Play) -> Uses:
    """Buy at one, and send the same payment to the other, and again."""
    payment = await play.draft()
    ports = [0, play.replica, play.replica, 0]
    answers = [await play.pay(payment, port=each) for each in ports]
    return await told_apart(play, payment, answers)


async def _at_once(play: Play) -> Uses:
    """Send one payment to both, several times at once, while verify is held."""
    payment, gate = await play.draft(), asyncio.Event()
    with play.double.twisted(on(VERIFY, waits(gate))):
        ports = [0, play.replica] * EACH
        asked = asyncio.gather(*(play.pay(payment, port=each) for each in ports))
        await play.wait(HELD_S)
        gate.set()
        answers = await asked
    return await told_apart(play, payment, answers)


async def _lost(play: Play) -> Trade:
    """Hang up at one while it settles, and send the same payment to the other."""
    payment, gate = await play.draft(), asyncio.Event()
    with play.double.twisted(on(SETTLE, waits(gate, after=True))):
        async with play.leaving(payment):
            if not await play.double.until(SETTLE, payment.nonce, play.patience_s, is_worked_on):
                raise NotApplicable("it does not ask settle")
        await play.wait(PAUSE_S)
        gate.set()
        await play.double.until(SETTLE, payment.nonce, play.patience_s, is_answered)
    return await sent_again(play, payment, [HUNG_UP], port=play.replica)


ROWS = [
    Row(
        section="replicas",
        slug="in-turn",
        play=_in_turn,
        absent=V2_ONLY,
        floor=REPLICAS,
        demands=[buys_one("One payment at two servers of one deployment in turn buys one thing")],
    ),
    Row(
        section="replicas",
        slug="at-once",
        play=_at_once,
        absent=V2_ONLY,
        floor=REPLICAS,
        demands=[buys_one("One payment at two servers of one deployment at once buys one thing")],
    ),
    Row(
        section="replicas",
        slug="lost",
        play=_lost,
        absent=V2_ONLY,
        floor=REPLICAS,
        demands=of_a_lost_answer("The answer of one server is lost, and the other is asked"),
    ),
]
