"""The judge of servers as tests: what `x402_server_case` plays, one play a test."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.report.results import CaseResult, Outcome
from x402sim.suite.case import select
from x402sim.suite.server.case import ServerCase
from x402sim.suite.server.judge import Judge
from x402sim.suite.server.play import Item
from x402sim.suite.server.start import App, Make
from x402sim.suite.server.subject import SERVER, all_cases, item_in, versions_in
from x402sim.suite.verdict import NotReady


@dataclass(frozen=True, slots=True)
class CaseOfTest:
    """One play, the cases that look at it, and what is sold."""

    name: str
    cases: Sequence[ServerCase]
    items: Sequence[Item]
    strict: bool

    def wrong(self, make: Make) -> str:
        """Play it with the application that a function makes; return what it does wrong, or ""."""
        dialects = (self.cases[0].dialect,)
        judge = Judge(server=App(make), items=self.items, dialects=dialects, jobs=1)

        async def main() -> list[tuple[ServerCase, CaseResult]]:
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
            elif result.outcome is Outcome.INCONCLUSIVE and case.level == "MUST":
                told.append(f"{case.id}: inconclusive: {result.reason}")
        return "\n\n".join(told)


def plays(
    sells: str | Sequence[str],
    versions: str = "v2",
    only: str | Sequence[str] = (),
    *,
    strict: bool = False,
) -> list[CaseOfTest]:
    """Return the plays in these versions of what is sold; `only` as on the command line.

    Raises `ValueError` for an unknown version or id, and for what is no path.
    """
    wanted = versions_in(versions)
    items = [item_in(each) for each in ([sells] if isinstance(sells, str) else sells)]
    cases = select([only] if isinstance(only, str) else only, all_cases(), SERVER.documents)
    found: dict[str, list[ServerCase]] = {}
    for case in cases:
        if case.dialect in wanted:
            found.setdefault(case.played_as, []).append(case)
    return [CaseOfTest(name, each, items, strict) for name, each in found.items()]
