"""The results of a conformance run, as the suite finds them and every report shows them.

The order of the fields is that of the JSON report.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground


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


NOT_JUDGED = (Outcome.SKIPPED, Outcome.INCONCLUSIVE)


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one case. `exchange` is the redacted exchange behind a failure.

    `ground` is where its demand comes from.
    """

    title: str
    ground: Ground | None = None
    outcome: Outcome
    expected: str | None = None
    actual: str | None = None
    reason: str = ""
    exchange: str = ""
    seconds: float = 0.0
    has_begun: bool = False
    """Whether it was tried: what it needs was there."""
    applies: bool = True
    """Whether the target has what it is about."""
    lacks: bool = False
    """Whether it was skipped because a need of it is not met."""


OF_CASES = ("has_begun", "applies", "lacks")
"""The fields that no report has."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one id: that of its worst case, and all of its cases.

    Cases that failed come first in `cases`, the clearest before the others.
    """

    id: str
    level: Level
    section: str
    rerun: str = ""
    in_part: str = ""
    """How much of it was judged, such as "1 of 3 cases"; empty if no case was skipped."""
    title: str
    ground: Ground | None = None
    outcome: Outcome
    expected: str | None = None
    actual: str | None = None
    reason: str = ""
    exchange: str = ""
    seconds: float = 0.0
    like: str = ""
    """The id that it follows from, in a report."""
    cases: tuple[CaseResult, ...] = ()


Results = Sequence[Result]


def failures(result: Result) -> Sequence[CaseResult | Result]:
    """Return the cases of a failed id that have failed, the clearest first."""
    return [case for case in result.cases if case.outcome is Outcome.FAILED] or [result]
