"""Plays cases of facilitators against the mutant, in rooms of this process."""

import asyncio
from collections.abc import Iterable

from tests.suite.cases import with_ids
from tests.suite_facilitator.mutant import Facilitator
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.room import Given
from x402sim.suite.facilitator.subject import FacilitatorJudge, all_cases
from x402sim.suite.report.results import CaseResult
from x402sim.suite.row import RoomCase
from x402sim.suite.started import App, Startable


def mutant(defects: Iterable[str] = (), habits: Iterable[str] = ()) -> App:
    """Return the mutant as the judge starts it."""

    def make(given: Given) -> Facilitator:
        return Facilitator(
            given.rpc_url,
            given.private_key,
            given.network,
            frozenset(defects),
            frozenset(habits),
        )

    return App(make)


def judged(
    facilitator: Startable[Given],
    cases: Iterable[RoomCase],
    dialects: Iterable[Dialect] = (Dialect.V1, Dialect.V2),
    patience_s: float = 15,
) -> dict[str, CaseResult]:
    """Play these cases, and return what came of each."""

    async def main() -> dict[str, CaseResult]:
        judge = FacilitatorJudge(
            subject=facilitator, dialects=tuple(dialects), patience_s=patience_s, jobs=2
        )
        return {case.name: result for case, result in await judge.every(list(cases))}

    return asyncio.run(main())


def cases(ids: str) -> list[RoomCase]:
    """Return the cases that a text names: "facilitator/fields/payee [v2 v1]"."""
    return with_ids(all_cases(), ids)
