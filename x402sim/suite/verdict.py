"""The exceptions that end a check, and the wording of expected and observed values."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from x402sim.suite.report.exchange import Exchange
from x402sim.suite.report.results import Loss


def plain(value: object) -> str:
    """Return a value in words, without Python: None is "nothing", and an empty list "none"."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode("utf-8", "backslashreplace")
        case list() | tuple() | set() | frozenset():
            return ", ".join(map(plain, value)) or "none"
        case dict():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return str(value)


def as_json(value: object) -> str:
    """Return a value of a JSON answer as JSON; None stands for a missing field."""
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def amounts(base: Sequence[int]) -> str:
    """Return transfers of these amounts in words: "2 of 10000 base units"."""
    numbers = Counter(base)
    return " and ".join(f"{n} of {each} base units" for each, n in numbers.items()) or "none"


class NotReady(Exception):
    """A run cannot begin: one line with the observation, the requirement, and the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken demand: the subject's act, and its cost.

    `demand` is a key of `causes.toml` in the folder of the subject's cases; that entry has the
    text of `expected` for cases without an own text.
    """

    actual: str
    demand: str = ""
    expected: str = ""
    loss: Loss | None = None
    why: str = ""
    about: str = ""
    """The object that failures are compared by; `expected` if empty."""


Found = Violation | str | None
"""A violation; or an observation, in words; or None if the demand holds."""


Show = Callable[[], Exchange]
"""Makes an exchange for a report, without secrets."""


class CheckFailed(Exception):
    """The subject breaks the demand of a case: a `violation`.

    `show` makes the exchange; without `show`, reports have the last exchange. `loss` is the
    counted money lost.
    """

    def __init__(
        self,
        what: str,
        expected: Any,
        actual: Any,
        show: Show | None = None,
        demand: str = "",
        loss: Loss | None = None,
    ) -> None:
        super().__init__(what, expected, actual)
        self.what, self.expected, self.actual, self.show = what, expected, actual, show
        self.violation = Violation(
            actual=plain(actual),
            demand=demand,
            expected=f"{what}: {plain(expected)}" if what else plain(expected),
            loss=loss,
            about=what,
        )


class Inconclusive(Exception):
    """The check cannot tell whether the target keeps the clause.

    `why` is the reason without its circumstances.
    """

    def __init__(self, reason: str, why: str = "") -> None:
        super().__init__(reason)
        self.why = why or reason


class Skipped(Exception):
    """A case was not judged: the target's behaviour or its file leaves the question open."""


class Lacking(Skipped):
    """A need of the case is not met: a key, a world, a budget, patience."""


class Untold(Lacking):
    """The subject shows no sign that tells right from wrong."""


class NotApplicable(Skipped):
    """The target lacks the feature, or shows nothing of it."""
