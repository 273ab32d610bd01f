"""The judges as tests: one play of a subject that is a function of Python, a test."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from x402sim.report.results import CaseResult, Outcome
from x402sim.suite.case import select
from x402sim.suite.played import AnyPlayed, by_play
from x402sim.suite.verdict import NotReady

Judged = Callable[[Any, Sequence[Any]], Awaitable[Sequence[tuple[Any, CaseResult]]]]
"""Judges what a test gives by the cases of a play; raises `NotReady`."""


@dataclass(frozen=True, slots=True)
class CaseOfTest:
    """One play, and the cases that look at it.

    If `strict`, a SHOULD counts; if `certain`, a MUST that is inconclusive does.
    """

    cases: Sequence[Any]
    judged: Judged
    strict: bool
    certain: bool = False

    @property
    def name(self) -> str:
        """The play's."""
        return str(self.cases[0].played_as)

    def wrong(self, given: Any) -> str:
        """Play it with what a test gives; return what it does wrong, "" if nothing."""

        async def main() -> Sequence[tuple[Any, CaseResult]]:
            return await self.judged(given, self.cases)

        try:
            found = asyncio.run(main())
        except NotReady as not_ready:
            return str(not_ready)
        told = []
        for case, result in found:
            counts = case.level == "MUST" or (self.strict and case.level == "SHOULD")
            if result.outcome is Outcome.FAILED and counts:
                loss = f"\nloss: {result.loss}" if result.loss else ""
                said = f"expected: {result.expected}\nactual: {result.actual}{loss}"
                why = "\n".join(result.ground.lines) if result.ground else ""
                told.append(
                    f"{case.id} ({case.level}): {case.title}\n{said}\n{result.exchange}\n{why}"
                )
            elif self.certain and result.outcome is Outcome.INCONCLUSIVE and case.level == "MUST":
                told.append(f"{case.id}: inconclusive: {result.reason}")
        return "\n\n".join(told)


def chosen(
    cases: Iterable[AnyPlayed], only: str | Sequence[str], documents: Sequence[str]
) -> list[list[AnyPlayed]]:
    """Return the cases of each play, with `only` as on the command line; raises `ValueError`."""
    prefixes = [only] if isinstance(only, str) else only
    return by_play(select(prefixes, list(cases), documents))
