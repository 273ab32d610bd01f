"""The judge of payers as tests: what the fixture `x402_payer_case` plays, one play a test."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.report.results import CaseResult, Outcome
from x402sim.suite.case import select
from x402sim.suite.payer.case import PayerCase
from x402sim.suite.payer.judge import Judge
from x402sim.suite.payer.start import Buy, Function
from x402sim.suite.payer.subject import PAYER, all_cases, flows_in


@dataclass(frozen=True, slots=True)
class Play:
    """One play, and the cases that look at it."""

    name: str
    cases: Sequence[PayerCase]
    strict: bool

    def wrong(self, buy: Buy) -> str:
        """Play it with a function that buys; return what it does wrong, "" if nothing."""

        async def main() -> list[tuple[PayerCase, CaseResult]]:
            judge = Judge(payer=Function(buy))
            return [each async for each in judge.run(self.cases, lambda check_id: None)]

        told = []
        for case, result in asyncio.run(main()):
            counts = case.level == "MUST" or (self.strict and case.level == "SHOULD")
            if result.outcome is Outcome.FAILED and counts:
                loss = f"\nloss: {result.loss}" if result.loss else ""
                said = f"expected: {result.expected}\nactual: {result.actual}{loss}"
                why = "\n".join(result.ground.lines) if result.ground else ""
                told.append(
                    f"{case.id} ({case.level}): {case.title}\n{said}\n{result.exchange}\n{why}"
                )
        return "\n\n".join(told)


def plays(flows: str = "v2", only: str | Sequence[str] = (), *, strict: bool = False) -> list[Play]:
    """Return the plays in these payment flows, separated by commas; `only` as on the command line.

    Raises `ValueError` for an unknown flow or id.
    """
    wanted = flows_in(flows)
    cases = select([only] if isinstance(only, str) else only, all_cases(), PAYER.documents)
    found: dict[str, list[PayerCase]] = {}
    for case in cases:
        if case.flow in wanted:
            found.setdefault(case.played_as, []).append(case)
    return [Play(name, each, strict) for name, each in found.items()]
