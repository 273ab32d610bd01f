"""The judge of facilitators as tests: what `x402_facilitator_case` plays, one play a test."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.report.results import CaseResult, Outcome
from x402sim.suite.case import select
from x402sim.suite.facilitator.case import FacilitatorCase
from x402sim.suite.facilitator.judge import Judge
from x402sim.suite.facilitator.start import App, Make
from x402sim.suite.facilitator.subject import FACILITATOR, all_cases, dialects_in
from x402sim.suite.verdict import NotReady


@dataclass(frozen=True, slots=True)
class CaseOfTest:
    """One play, and the cases that look at it."""

    name: str
    cases: Sequence[FacilitatorCase]
    strict: bool

    def wrong(self, make: Make) -> str:
        """Play it with the application that a function makes; return what it does wrong, or ""."""
        judge = Judge(facilitator=App(make), dialects=(self.cases[0].dialect,), jobs=1)

        async def main() -> list[tuple[FacilitatorCase, CaseResult]]:
            try:
                return [each async for each in judge.run(self.cases, lambda check_id: None)]
            finally:
                await judge.close()

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
        return "\n\n".join(told)


def plays(
    dialects: str = "v2", only: str | Sequence[str] = (), *, strict: bool = False
) -> list[CaseOfTest]:
    """Return the plays in these dialects, separated by commas; `only` as on the command line.

    Raises `ValueError` for an unknown dialect or id.
    """
    wanted = dialects_in(dialects)
    cases = select([only] if isinstance(only, str) else only, all_cases(), FACILITATOR.documents)
    found: dict[str, list[FacilitatorCase]] = {}
    for case in cases:
        if case.dialect in wanted:
            found.setdefault(case.played_as, []).append(case)
    return [CaseOfTest(name, each, strict) for name, each in found.items()]
