"""How a subject that is started and played is judged: what cannot be, the plan, and the results."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from x402sim.chain.base import ChainError
from x402sim.report.results import CaseResult, Result
from x402sim.suite.case import of_id
from x402sim.suite.played import AnyPlayed
from x402sim.suite.room import AnyRoom
from x402sim.suite.rooms import Judge
from x402sim.suite.row import RoomCase
from x402sim.suite.subject import Chosen, Plan
from x402sim.suite.verdict import NotReady
from x402sim.text.words import counted


class Plays(Protocol[AnyPlayed]):
    """A judge that plays cases."""

    def run(
        self, cases: Sequence[AnyPlayed], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[AnyPlayed, CaseResult]]:
        """Play the cases, and yield each with its result as soon as it is certain."""


@dataclass(slots=True, kw_only=True, eq=False)
class PlayedJudging(Generic[AnyPlayed]):
    """A subject that can be judged, in the dialects whose control it has passed.

    `left_out` returns the result of a case that is not in the plan, `count` what was done.
    """

    judge: Plays[AnyPlayed]
    cases: Sequence[AnyPlayed]
    rerun: str
    left_out: Callable[[AnyPlayed], CaseResult]
    count: Callable[[], str]
    plan: Plan

    async def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        """Play the cases; yield each result."""
        for result in self.unplayed():
            yield result
        async for case, found in self.judge.run(self.playable, on_begin):
            yield self.of(case, found)

    @property
    def playable(self) -> list[AnyPlayed]:
        """The cases of the plan."""
        ids = set(self.plan.ids)
        return [case for case in self.cases if case.id in ids]

    def unplayed(self) -> Iterator[Result]:
        """Yield the results of the other cases."""
        ids = set(self.plan.ids)
        for case in self.cases:
            if case.id not in ids:
                yield self.of(case, self.left_out(case))

    def of(self, case: AnyPlayed, found: CaseResult) -> Result:
        """Return the result of an id."""
        return of_id([case], {case: found}, self.rerun)

    def done(self) -> str:
        """Return how much was done."""
        return self.count()

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Return nothing: what was not judged is among the results."""
        return [], []


@asynccontextmanager
async def in_rooms(
    judge: Judge[AnyRoom, Any],
    options: Chosen,
    cases: Sequence[RoomCase],
    wanted: Sequence[Any],
    *,
    control: Callable[[AnyRoom, Any], Awaitable[str]],
    left_out: Callable[[RoomCase, Mapping[Any, str]], CaseResult],
    plan: Callable[[Mapping[Any, str]], Plan],
    invalid: Callable[[str], str],
) -> AsyncIterator[PlayedJudging[RoomCase]]:
    """Start a subject, play a control in each dialect that is `wanted`, and plan.

    `control` returns why a good payment fails, "" if it does not; `left_out` the result of a case
    that is not in the plan, given why dialects are broken, `plan` the plan, given the same. Raises
    `NotReady` with what `invalid` says of one that has no sound dialect, given the reasons.
    """
    try:
        room = await judge.room()
        controls = [(dialect, await control(room, dialect)) for dialect in wanted]
        broken = {dialect: why for dialect, why in controls if why}
        if len(broken) == len(wanted):
            raise NotReady(f"{options.shown} {invalid(why_each(broken))}")
        judge.dialects = tuple(dialect for dialect in wanted if dialect not in broken)
        await judge.leave(room, keep=True)
        yield PlayedJudging(
            judge=judge,
            cases=cases,
            rerun=options.rerun,
            left_out=lambda case: left_out(case, broken),
            count=lambda: f"{counted(judge.plays, 'play')}, {counted(judge.starts, 'start')}",
            plan=plan(broken),
        )
    except OSError as wrong:
        raise NotReady(f"{options.shown}: {wrong}") from wrong
    except ChainError as wrong:
        raise NotReady(str(wrong)) from wrong
    finally:
        await judge.close()


def why_each(broken: Mapping[Any, str]) -> str:
    """Return why the control of each dialect failed."""
    return "; ".join(f"{dialect}: {why}" for dialect, why in broken.items())
