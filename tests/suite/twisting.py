"""Answers of our own service in which a field has another type: a target may send anything."""

from random import Random
from typing import Any

from tests.hostile.inputs import places, replaced
from tests.mutants.change import Change, Service
from tests.mutants.middleware import Answer, Request, Serve, answer, middleware

LONG = "9" * 5000
HUGE = 10**400
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 300.0, 1e300, 2**63, HUGE),
    *("", "x", "300", "0x", "\ud7ff\0", LONG, [], ["x"], [[]], {}, {"x": None}, {"": []}),
)
"""Values of every type, and some that are of the right type and too large."""


def at_random(seed: int, share: float = 0.25) -> Change:
    """Twist a share of all answers: one field of each gets a value of another type."""
    luck = Random(seed)

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        if luck.random() > share or reply.json is None:
            return reply
        place = luck.choice(places(reply.json))
        return answer(reply.status, replaced(reply.json, place, luck.choice(OTHERS)))

    return middleware(handler)


def everywhere(at: tuple[str | int, ...], other: Any) -> Change:
    """Give one field of every answer that has it another value."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        body = reply.json
        if body is None or at not in places(body):
            return reply
        return answer(reply.status, replaced(body, at, other))

    return middleware(handler)
