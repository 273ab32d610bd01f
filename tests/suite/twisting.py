"""Answers of our own service in which a field has another type: a target may send anything."""

from collections.abc import Iterator
from random import Random
from typing import Any

from tests.mutants.change import Change, Service
from tests.mutants.middleware import Answer, Request, Serve, answer, middleware

LONG = "9" * 5000
HUGE = 10**400
OTHERS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 300.0, 1e300, 2**63, HUGE),
    *("", "x", "300", "0x", "\ud7ff\0", LONG, [], ["x"], [[]], {}, {"x": None}, {"": []}),
)
"""Values of every type, and some that are of the right type and too large."""


def fields(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of every value in a JSON body, the whole body first."""
    yield at
    children: Any = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from fields(child, (*at, key))


def with_other(value: Any, at: tuple[str | int, ...], other: Any) -> Any:
    """Return a JSON body with another value at a place; unchanged if it has no such place."""
    if not at:
        return other
    key, *rest = at
    if isinstance(value, dict) and key in value:
        return {**value, key: with_other(value[key], tuple(rest), other)}
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        inner = with_other(value[key], tuple(rest), other)
        return [*value[:key], inner, *value[key + 1 :]]
    return value


def at_random(seed: int, share: float = 0.25) -> Change:
    """Twist a share of all answers: one field of each gets a value of another type."""
    luck = Random(seed)

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        if luck.random() > share or reply.json is None:
            return reply
        place = luck.choice(list(fields(reply.json)))
        return answer(reply.status, with_other(reply.json, place, luck.choice(OTHERS)))

    return middleware(handler)


def everywhere(at: tuple[str | int, ...], other: Any) -> Change:
    """Give one field of every answer that has it another value."""

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        body = reply.json
        if body is None or at not in fields(body):
            return reply
        return answer(reply.status, with_other(body, at, other))

    return middleware(handler)
