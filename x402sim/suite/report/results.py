"""The results of a judgement, as the suite makes them and every report shows them.

The JSON report has the fields in this order.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from x402sim.protocol.money import to_decimal
from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground
from x402sim.suite.report.exchange import Exchanges


class Outcome(StrEnum):
    """The outcome of a check, and of an id."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """A need of the check is not met."""
    INCONCLUSIVE = "inconclusive"
    """The check could not be completed, and does not count as passed."""
    OBSERVED = "observed"
    """The specification is silent, or the target file opts out; the result is an observation."""


NOT_JUDGED = (Outcome.SKIPPED, Outcome.INCONCLUSIVE)
INTERRUPTED = "the run was interrupted before this was certain"
"""The reason of results left inconclusive by Ctrl-C or SIGTERM."""


class DemandKey(StrEnum):
    """A check's demand, where `causes.toml` or the loss depends on it."""

    OTHER = ""
    FORM = "form"
    """The form of an answer: a wrong form loses nobody's money."""
    OFFER = "a 402"
    STATUS = "the status of an error"
    ERROR_TEXT = "the text of an error"
    GOES_ON = "goes on answering"
    GOES_ON_RUNNING = "goes on running"
    CONTENT = "the content"
    WITHHELD = "no content"
    UNPAID_2XX = "no 2xx without payment"
    REFUSED = "a refusal"
    VALID_PAYMENT = "a valid payment"
    CANCELLED_NONCE = "no receipt for a cancelled nonce"
    TRANSFER = "a transfer"
    """A transfer was expected, and none came."""
    WITHIN_TASK = "each payment is one that the task allows"


class Evidence(msgspec.Struct, frozen=True):
    """The key for comparing failures: the demand, the object, the answer, and the place.

    `answer` has no ids, hashes and times; for an id without judgement, `answer` is the reason.
    """

    demand: str = DemandKey.OTHER
    """A `DemandKey`, or a key of `causes.toml`."""
    about: str = ""
    answer: str = ""
    place: str = ""
    """The id, if the case itself found the failure."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a failure, counted on a ledger: `base` units of a token with `decimals`.

    `why` tells who loses the money, and for what.
    """

    base: int
    decimals: int = 6
    symbol: str = "tokens"
    why: str = ""

    def __str__(self) -> str:
        """Return the amount and the reason: "0.01 tokens: charged twice for one purchase"."""
        amount = f"{to_decimal(self.base, self.decimals)} {self.symbol}"
        return f"{amount}: {self.why}" if self.why else amount


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one case: `exchanges` are the evidence, `ground` the source of the demand."""

    title: str
    dialect: str = ""
    """The dialect of the case; empty if the subject has only one."""
    ground: Ground | None = None
    outcome: Outcome
    expected: str | None = None
    actual: str | None = None
    reason: str = ""
    exchanges: Exchanges = ()
    seconds: float = 0.0
    has_begun: bool = False
    """Whether the case started: its needs were met."""
    applies: bool = True
    """Whether the target offers the subject of the case."""
    lacks: bool = False
    """Whether the case was skipped because a need is not met."""
    is_untold: bool = False
    """Whether the case was played, and the subject showed nothing to judge by."""
    evidence: Evidence | None = None
    loss: Loss | None = None
    """The cost of this failure, if money was counted."""


OF_CASES = ("has_begun", "applies", "lacks", "is_untold")
"""Fields of cases that no report has; no report has `evidence` either."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one id: as its worst case, with all of its cases.

    Cases that failed come first in `cases`, the clearest before the others.
    """

    id: str
    level: Level
    section: str
    rerun: str = ""
    in_part: str = ""
    """The judged part, such as "1 of 3 cases"; empty if no case was skipped."""
    title: str
    ground: Ground | None = None
    outcome: Outcome
    expected: str | None = None
    actual: str | None = None
    reason: str = ""
    exchanges: Exchanges = ()
    seconds: float = 0.0
    like: str = ""
    """The id of the probable cause of this failure; only reports set it."""
    cases: tuple[CaseResult, ...] = ()
    evidence: Evidence | None = None
    loss: Loss | None = None
    """The greatest loss of its failed cases; `by_dialect` has the loss of each dialect."""
    is_control: bool = False
    """Whether the id is a control: an ability of every subject worth judging."""
    is_known: bool = False
    """Whether the baseline report has it: then it does not count for the exit code."""
    known_because: str = ""
    """The reason that a baseline of known failures gives."""
    known_of: str = ""
    """The published version with this failure, such as "x402[fastapi] 2.25.0"."""


RARE = ("dialect", "loss", "is_control", "is_known", "known_because", "known_of")
"""Fields that a report leaves out where they are empty or false."""
Results = Sequence[Result]


def by_dialect(result: Result) -> dict[str, Result]:
    """Return the result of an id in each dialect; the key is empty for a subject with only one."""
    dialects = dict.fromkeys(case.dialect for case in result.cases)
    if len(dialects) < 2:
        return {next(iter(dialects), ""): result}
    found = {}
    for dialect in dialects:
        cases = tuple(case for case in result.cases if case.dialect == dialect)
        found[dialect] = msgspec.structs.replace(
            result, cases=cases, in_part="", **as_of_id(cases[0])
        )
    return found


def as_of_id(case: CaseResult) -> dict[str, Any]:
    """Return the fields of a case that the result of its id has, too."""
    names = Result.__struct_fields__
    return {name: getattr(case, name) for name in case.__struct_fields__ if name in names}


def failures(result: Result) -> Sequence[CaseResult | Result]:
    """Return the failed cases of a failed id, the clearest first."""
    return [case for case in result.cases if case.outcome is Outcome.FAILED] or [result]
