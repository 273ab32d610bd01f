"""The exceptions that end a check, and what a run has left open of what it should judge.

Of MUSTs that were only partly judged, it says why: because of what the target did or its file
leaves out. What needs other means (a payer, a world, a clock, patience) is not meant.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from x402sim.report.results import Demand, Outcome, Result


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


class CheckFailed(Exception):
    """The target breaks the clause.

    `show` renders the exchange behind it; without it, that is the last one.
    """

    def __init__(
        self,
        what: str,
        expected: Any,
        actual: Any,
        show: Callable[[], str] | None = None,
        demand: Demand = Demand.OTHER,
    ) -> None:
        super().__init__(what, expected, actual)
        self.what, self.expected, self.actual, self.show = what, expected, actual, show
        self.demand = demand


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


class NotApplicable(Skipped):
    """The target has no such thing, or shows nothing of it."""


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
        for each in result.cases
        if each.outcome is Outcome.SKIPPED and each.has_begun
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
