"""The exceptions that end a check, and how expectation and observation are written."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from x402sim.report.results import Demand, Loss


def plain(value: object) -> str:
    """Return a value as a report says it: no Python, and an empty list is "none"."""
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
    """Return a value of a JSON answer as it stood there; None is a field that is not there."""
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def amounts(base: Sequence[int]) -> str:
    """Return transfers of these amounts in words: "2 of 10000 base units"."""
    numbers = Counter(base)
    return " and ".join(f"{n} of {each} base units" for each, n in numbers.items()) or "none"


class NotReady(Exception):
    """A run cannot begin: one line that says what was seen, what is wanted, and what to do."""


class CheckFailed(Exception):
    """The target breaks the clause.

    `show` renders the exchange behind it; without it, that is the last one. `loss` is what it
    costs, if the money was counted.
    """

    def __init__(
        self,
        what: str,
        expected: Any,
        actual: Any,
        show: Callable[[], str] | None = None,
        demand: Demand = Demand.OTHER,
        loss: Loss | None = None,
    ) -> None:
        super().__init__(what, expected, actual)
        self.what, self.expected, self.actual = what, expected, actual
        self.show, self.demand, self.loss = show, demand, loss


class Inconclusive(Exception):
    """The check cannot tell whether the target keeps the clause.

    `why` is the reason without its circumstances.
    """

    def __init__(self, reason: str, why: str = "") -> None:
        super().__init__(reason)
        self.why = why or reason


class Skipped(Exception):
    """A case was not judged: what the target does, or its file does not say, leaves it open."""


class Lacking(Skipped):
    """A need of the case is not met: a key, a world, a budget, patience."""


class Untold(Lacking):
    """The subject shows nothing that tells right from wrong."""


class NotApplicable(Skipped):
    """The target has no such thing, or shows nothing of it."""
