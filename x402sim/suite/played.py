"""A case that is played against a subject in a world of its own, and its result.

The cases of payers, facilitators and servers are such: one play, at which one or several ids look.
"""

import asyncio
import runpy
from collections.abc import AsyncIterator, Coroutine, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from x402sim.report.results import CaseResult, Demand, Evidence, Loss, Outcome
from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground, folder
from x402sim.spec.needs import Need
from x402sim.suite.redact import impersonal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayedCase:
    """One id: a demand on what a subject did in a play; each judge adds what it plays."""

    id: str
    level: Level
    ground: Ground
    title: str
    played_as: str
    """The name of the play: cases with the same name look at one and the same."""
    control: str
    """The id of the control without which its pass proves nothing."""
    is_control: bool = False
    waits_s: float = 0
    """How long the play waits, at least, while it does nothing."""
    needs: tuple[Need, ...] = ()
    decides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The id, which is unique."""
        return self.id

    @property
    def controls(self) -> tuple[str, ...]:
        """The control, unless it is one itself."""
        return () if self.is_control else (self.control,)

    @property
    def section(self) -> str:
        """The section of the id."""
        return self.id.split("/")[1]


AnyPlayed = TypeVar("AnyPlayed", bound=PlayedCase)


@cache
def rows_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the rows that the files of a subject declare, in the order of the sections."""
    files = sorted(folder(subject).glob("*.py"))
    found = [row for file in files for row in runpy.run_path(str(file), run_name=file.stem)["ROWS"]]
    return tuple(sorted(found, key=lambda row: sections.index(row.section)))


@cache
def cases_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the cases of a subject's rows; raises `ValueError` for an id that is there twice."""
    found = tuple(case for row in rows_of(subject, *sections) for case in row.cases())
    ids = [case.id for case in found]
    if twice := sorted({each for each in ids if ids.count(each) > 1}):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return found


def by_play(cases: Iterable[AnyPlayed]) -> list[list[AnyPlayed]]:
    """Return the cases that look at the same play, together."""
    groups: dict[str, list[AnyPlayed]] = {}
    for case in cases:
        groups.setdefault(case.played_as, []).append(case)
    return list(groups.values())


Each = TypeVar("Each")


async def side_by_side(works: Iterable[Coroutine[Any, Any, list[Each]]]) -> AsyncIterator[Each]:
    """Run works at once, and yield each result as soon as it is there.

    An exception of one of them is raised here and cancels the others, as does leaving the loop.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        for done in asyncio.as_completed(tasks):
            for each in await done:
                yield each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What a subject did against a demand, and what that costs."""

    expected: str
    actual: str
    loss: Loss | None = None
    why: str = ""
    demand: Demand = Demand.OTHER
    """What it has in common with failures that were expected to be something else."""


Found = Violation | str | None
"""What is wrong; or what was observed, in words; or nothing is wrong."""


def result(case: PlayedCase, found: Found, exchange: str, log: str, seconds: float) -> CaseResult:
    """Return the result of a case that was looked at.

    `exchange` is what was asked and answered in its play, `log` the last line that the subject
    wrote, empty without one.
    """
    if not isinstance(found, Violation):
        return CaseResult(
            title=case.title,
            ground=case.ground,
            outcome=Outcome.PASSED if found is None else Outcome.OBSERVED,
            actual=found,
            seconds=round(seconds, 3),
            has_begun=True,
        )
    return CaseResult(
        title=case.title,
        ground=case.ground,
        outcome=Outcome.FAILED,
        expected=found.expected,
        actual=found.actual,
        reason="" if found.loss else found.why,
        loss=found.loss,
        evidence=Evidence(found.demand, found.expected, impersonal(found.actual)),
        exchange=exchange + (f"\nits last line: {log}" if log else ""),
        seconds=round(seconds, 3),
        has_begun=True,
    )


def unclear(case: PlayedCase, why: str) -> CaseResult:
    """Return the result of a case that is inconclusive, with the reason."""
    return CaseResult(
        title=case.title,
        ground=case.ground,
        outcome=Outcome.INCONCLUSIVE,
        reason=why,
        has_begun=True,
    )


def skipped(case: PlayedCase, why: str, *, lacks: bool = True) -> CaseResult:
    """Return the result of a case that was not judged: a need `lacks`, or it does not apply."""
    return CaseResult(
        title=case.title,
        ground=case.ground,
        outcome=Outcome.SKIPPED,
        reason=why,
        applies=lacks,
        lacks=lacks,
    )
