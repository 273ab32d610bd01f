"""The judges as tests: each test of a subject, a Python function, runs one play."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from x402sim.suite.case import AnyCase, by_play, of_id, select
from x402sim.suite.report.conformance import counts_for_exit, explained, readable
from x402sim.suite.report.results import NOT_JUDGED, CaseResult, Outcome
from x402sim.suite.verdict import NotReady, Skipped

Judged = Callable[[Any, Sequence[Any]], Awaitable[Sequence[tuple[Any, CaseResult]]]]
"""Judges the value from a test by the cases of a play; raises `NotReady`."""


@dataclass(frozen=True, slots=True)
class CaseOfTest:
    """One play with its cases; a failed SHOULD counts if `strict`."""

    cases: Sequence[Any]
    judged: Judged
    strict: bool

    @property
    def name(self) -> str:
        """The name of the play."""
        return str(self.cases[0].played_as)

    def wrong(self, given: Any, again: str = "") -> str:
        """Play with the value from a test; return the failures as text, "" without any.

        The same failures count as for the exit code; `again` is the command that repeats the test.
        Raises `Skipped` with the reasons if no case was judged.
        """

        async def main() -> Sequence[tuple[Any, CaseResult]]:
            return await self.judged(given, self.cases)

        try:
            found = asyncio.run(main())
        except NotReady as not_ready:
            return str(not_ready)
        results = readable([of_id([case], {case: result}, "") for case, result in found])
        texts = []
        for result in results:
            if not counts_for_exit(result, self.strict):
                continue
            if result.outcome is Outcome.FAILED:
                shown = msgspec.structs.replace(result, rerun=again)
                texts.append(explained(shown, is_short=True))
            elif result.outcome is Outcome.INCONCLUSIVE:
                texts.append(f"{result.id} ({result.level}): inconclusive: {result.reason}")
        if not texts and all(result.outcome in NOT_JUDGED for result in results):
            raise Skipped("; ".join(dict.fromkeys(result.reason for result in results)))
        return "\n\n".join(texts)


def chosen(
    cases: Iterable[AnyCase], only: str | Sequence[str], documents: Sequence[str]
) -> list[list[AnyCase]]:
    """Return the cases of each play, with `only` as on the command line; raises `ValueError`."""
    prefixes = [only] if isinstance(only, str) else only
    return by_play(select(prefixes, list(cases), documents))
