"""Clients that hang up during a payment: once charged, the same payment gets the goods."""

import asyncio
from collections.abc import Awaitable, Callable

from x402sim.suite.server.case import HUNG_UP, case, of_a_lost_answer
from x402sim.suite.server.double import SETTLE, VERIFY, is_answered, on, waits
from x402sim.suite.server.observed import Trade
from x402sim.suite.server.play import BEGINS_S, PAUSE_S, Play


def _while_held(path: str, *, after: bool = False) -> Callable[[Play], Awaitable[Trade]]:
    """Return the play of a client that leaves while the facilitator holds a request to `path`.

    With `after`, the facilitator holds the answer.
    """

    async def play(it: Play) -> Trade:
        """A payer pays; while the facilitator holds the call, the payer closes the connection. Then
        the facilitator answers, and the payer sends the same payment again, at most twice.
        """
        payment, gate = await it.draft(), asyncio.Event()
        with it.double.twisted(on(path, waits(gate, after=after))):
            async with it.leaving(payment):
                await it.until_held(path, payment, after=after)
            await it.wait(PAUSE_S)  # time for a server to notice that the client has left
            gate.set()
            await it.double.until(SETTLE, payment.nonce, BEGINS_S, is_answered)
        return await it.sent_again(payment, [HUNG_UP])

    return play


_POINTS = {
    "verifying": ("The client leaves while verify is under way", VERIFY, False),
    "settling": ("The client leaves while settle is under way", SETTLE, False),
    "settled": ("The client leaves after the settlement, before the answer", SETTLE, True),
}

ROWS = [
    case(f"gone/{slug}", *of_a_lost_answer(what), waits_s=BEGINS_S)(_while_held(path, after=after))
    for slug, (what, path, after) in _POINTS.items()
]
