"""Plays a population: its payers join, and each visit runs a behaviour in a task of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from itertools import cycle

from x402sim.payer.errors import PaymentFailed, SpendingCapExceeded
from x402sim.rng import Stream, later
from x402sim.text.printable import described
from x402sim.world.stages.stage import OpenStage
from x402sim.world.story.arrivals import Arrivals
from x402sim.world.story.behaviours import Behaviour
from x402sim.world.story.payer import Payer


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The population of a story, when all its visits are over.

    `payers` are all that came; `visits` counts the visits that began; `given_up` those of them that
    ended with `PaymentFailed`, such as a request whose answer was lost, or `SpendingCapExceeded`.
    """

    payers: list[Payer]
    visits: int
    given_up: int


async def play_population(
    stage: OpenStage,
    name: str,
    join: Callable[[str], Awaitable[Payer]],
    *,
    count: int,
    arrivals: Arrivals,
    behaviour: Behaviour,
    until_s: float | None,
) -> Population:
    """Play every visit of a population; return it after the last one.

    Raises the first exception of a behaviour but those two, with a note of who raised it.
    """
    _require_behaviour(behaviour)
    start_s = stage.clock.now()
    moments = arrivals.moments(start_s, stage.stream(f"arrivals of {name}"))
    payers = [await join(f"{name} {number}") for number in range(1, count + 1)]
    streams = {
        payer.name: later(partial(stage.stream, f"behaviour of {payer.name}")) for payer in payers
    }
    drawn = (
        stage.stream(f"visitors of {name}") if arrivals.is_random and until_s is not None else None
    )
    visits = given_up = 0

    async def visit(payer: Payer) -> None:
        nonlocal given_up
        try:
            visiting: object = behaviour(payer, streams[payer.name])
            if not isawaitable(visiting):
                raise TypeError(
                    f"behaviour: {described(behaviour)} returned {described(visiting)}: write "
                    "`async def visit(payer, rng)`"
                )
            await visiting
        except (PaymentFailed, SpendingCapExceeded):
            given_up += 1
        except Exception as error:
            error.add_note(f"in a visit of {payer.name}")
            raise

    async with asyncio.TaskGroup() as running:
        for at_s, payer in _visits(payers, moments, drawn, once=until_s is None):
            if until_s is not None and at_s >= start_s + until_s:
                break
            await stage.clock.sleep_until(at_s)
            visits += 1
            running.create_task(visit(payer), name=f"a visit of {payer.name}")
    return Population(payers=payers, visits=visits, given_up=given_up)


def _require_behaviour(given: object) -> None:
    if isinstance(given, type) or not callable(given):
        hint = f"; did you mean {given.__name__}(…)?" if isinstance(given, type) else ""
        raise ValueError(
            "behaviour: expected an object such as Buy(), or `async def visit(payer, rng)`, got "
            f"{described(given)}{hint}"
        )


def _visits(
    payers: list[Payer], moments: Iterator[float], drawn: Stream | None, *, once: bool
) -> Iterator[tuple[float, Payer]]:
    """Yield when each visit begins, and whose it is; `once`: each payer's only visit."""
    if drawn is not None:
        return ((at_s, drawn.choice(payers)) for at_s in moments)
    return zip(moments, payers if once else cycle(payers), strict=False)
