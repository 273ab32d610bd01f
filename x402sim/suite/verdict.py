"""The outcomes of a check, the exceptions that end it, and the results of a case and of an id."""

from collections.abc import Callable
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
