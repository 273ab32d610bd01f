"""The outcomes of a check, the exceptions that end it, and the result of an id."""

from enum import StrEnum
from typing import Any, Literal

import msgspec

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
    """The specification is silent; the result describes the target."""


class CheckFailed(Exception):
    """The target breaks the clause."""

    def __init__(self, what: str, expected: Any, actual: Any) -> None:
        super().__init__(what, expected, actual)
        self.what, self.expected, self.actual = what, expected, actual


class Inconclusive(Exception):
    """The check cannot tell whether the target keeps the clause."""


class Skipped(Exception):
    """A need of the check is not met."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one id. `exchange` is the redacted exchange behind a failure."""

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
