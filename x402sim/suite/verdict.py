"""What can come of a check, and how a check says so."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from x402sim.spec.clauses import CLAUSES

if TYPE_CHECKING:
    from x402sim.suite.probe import Probe

Level = Literal["MUST", "SHOULD", "MAY"]
DOCUMENT = "spec"
"""The document whose clauses most checks are about; the kit's own demands are of "kit"."""


class Outcome(StrEnum):
    """passed, failed, skipped (something is missing), inconclusive (it could not get to the

    point), observed (the specification is silent; this is what the target does).
    """

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    INCONCLUSIVE = "inconclusive"
    OBSERVED = "observed"


class Failed(Exception):
    """The target does not keep the clause."""

    def __init__(self, what: str, expected: Any, actual: Any) -> None:
        super().__init__(what, expected, actual)
        self.what, self.expected, self.actual = what, expected, actual


class Inconclusive(Exception):
    """It cannot be told whether the target keeps the clause."""


class Skipped(Exception):
    """The check needs something that is not there."""


NEEDS = {
    "money": "a funded payer: --payer-key, or --world",
    "chain": "sight of the chain: --rpc-url, or --world",
    "world": "the world around the target: --world",
    "clock": "a target whose clock can be turned: an x402sim world that runs it",
    "sessions": "sessions, which the target file says do not exist",
    "agents": "a list of agents, which the target file says does not exist",
    "llms": "a documentation index, which the target file says does not exist",
    "record": "a readable payment record, whose path the target file does not tell",
    "session view": "a readable session, whose path the target file does not tell",
}
"""What a check may need, and how to give it."""

Case = Callable[["Probe"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One case of one id. `pays` and `deposits` are how much it may spend.

    Several cases may have the same id; the worst outcome is the id's.
    """

    id: str
    level: Level
    title: str
    needs: tuple[str, ...]
    pays: int
    deposits: str
    run: Case
    control: str | None

    @property
    def section(self) -> str:
        """The section of the document."""
        return self.id.split("/")[1]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one id. `exchange` is the redacted exchange behind a failure."""

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


_LEVELS = {clause.id: clause.level for clause in CLAUSES}
_TEXTS = {clause.id: clause.text for clause in CLAUSES}


def check(
    clause: str,
    *,
    needs: str = "",
    pays: int = 0,
    deposits: str = "0",
    control: str | None = None,
    level: Level | None = None,
    document: str = DOCUMENT,
) -> Callable[[Case], Check]:
    """Make a check of `async def case(probe)`; its docstring is the case's title.

    `clause` is an id of spec/clauses.py, or section/slug of another `document`. `needs`
    are names of `NEEDS`, with commas. `pays` counts payments of the quote's price, and
    `deposits` tokens in session deposits. A check that demands a refusal names its
    `control` ("payment", "session", "unpaid"): what must have been accepted in this run,
    before and after, or the refusal proves nothing.
    """
    if document == DOCUMENT and clause not in _LEVELS:
        raise ValueError(f"there is no clause {clause!r}")
    wanted = tuple(name.strip() for name in needs.split(",") if name.strip())
    unknown = [name for name in wanted if name not in NEEDS]
    if unknown:
        raise ValueError(f"check {clause}: there is no need {', '.join(unknown)}")

    def make(case: Case) -> Check:
        if not case.__doc__:
            raise ValueError(f"check {clause}: {case} has no docstring, which is its title")
        return Check(
            id=f"{document}/{clause}",
            level=level or _LEVELS.get(clause, "SHOULD"),
            title=" ".join(case.__doc__.split()),
            needs=wanted,
            pays=pays,
            deposits=deposits,
            run=case,
            control=control,
        )

    return make


def clause_text(check_id: str) -> str:
    """Return what the specification says under a check's id; empty for another document's."""
    return _TEXTS.get(check_id.split("/", 1)[1], "") if check_id.startswith(DOCUMENT) else ""
