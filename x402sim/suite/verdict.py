"""The outcomes of a check, the exceptions that end it, and the results of a case and of an id.

Of MUSTs that were only partly judged, it says why: because of what the target did or its file
leaves out. What needs other means (a payer, a world, a clock, patience) is not meant.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any, Literal

import msgspec

from x402sim.spec.ground import Ground

Level = Literal["MUST", "SHOULD", "MAY"]


class Outcome(StrEnum):
    """The outcome of a check, and of an id."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """A need of the check is not met."""
    INCONCLUSIVE = "inconclusive"
    """The check could not be completed, which is not a pass."""
    OBSERVED = "observed"
    """The specification is silent, or the target file departs from it; the result says what is."""


class CheckFailed(Exception):
    """The target breaks the clause.

    `show` renders the exchange behind it; without it, that is the last one.
    """

    def __init__(
        self, what: str, expected: Any, actual: Any, show: Callable[[], str] | None = None
    ) -> None:
        super().__init__(what, expected, actual)
        self.what, self.expected, self.actual, self.show = what, expected, actual, show


class Inconclusive(Exception):
    """The check cannot tell whether the target keeps the clause."""


class Skipped(Exception):
    """A need of the check is not met."""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one case. `exchange` is the redacted exchange behind a failure.

    `ground` is where its demand comes from.
    """

    title: str
    outcome: Outcome
    expected: str | None = None
    actual: str | None = None
    reason: str = ""
    exchange: str = ""
    seconds: float = 0.0
    ground: Ground | None = None
    has_begun: bool = False
    """Whether it was tried: what it needs was there."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one id: that of its worst case, and all of its cases.

    Cases that failed come first in `cases`, the clearest before the others.
    """

    id: str
    level: Level
    section: str
    outcome: Outcome
    title: str
    expected: str | None = None
    actual: str | None = None
    reason: str = ""
    rerun: str = ""
    exchange: str = ""
    seconds: float = 0.0
    cases: tuple[CaseResult, ...] = ()
    ground: Ground | None = None
    in_part: str = ""
    """How much of it was judged, such as "1 of 3 cases"; empty if no case was skipped."""


REFUNDS = "spec/3/expiry-refund"
"""The id that --require refunds and expiry are about."""
EXPIRY = "When its duration is over"
"""How the title of its case begins that --require expiry is about."""


def not_in_full(results: Iterable[Result]) -> list[str]:
    """Return a line for each MUST of which a case began and could not be judged."""
    return [
        f"not judged in full ({result.in_part or 'no case'}): {result.id}, a MUST: {each.reason}"
        for result in results
        if result.level == "MUST" and result.outcome not in (Outcome.FAILED, Outcome.INCONCLUSIVE)
        for each in _begun(result)
    ]


def lacking(results: Iterable[Result], require: tuple[str, ...]) -> list[str]:
    """Return why a run did not judge what --require demands: expiry and refunds, at the end."""
    return [
        f"--require {word}: {result.id} was not judged in full: {each.reason}"
        for word, title in (("expiry", EXPIRY), ("refunds", ""))
        if word in require
        for result in results
        if result.id == REFUNDS
        for each in result.cases
        if each.outcome is Outcome.SKIPPED and each.title.startswith(title)
    ]


def _begun(result: Result) -> Iterator[CaseResult]:
    for case in result.cases:
        if case.outcome is Outcome.SKIPPED and case.has_begun:
            yield case
