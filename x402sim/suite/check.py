"""The decorator `@check`, which declares a check.

A misspelt clause, need or baseline is an error where the check is written.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from x402sim.spec.clauses import CLAUSES
from x402sim.spec.needs import Need, parse_needs
from x402sim.suggest import unknown
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Level

DOCUMENT = "spec"
"""The document whose clauses most checks are about; the kit's own demands are of "kit"."""

HOW_TO_PROVIDE = {
    Need.FUNDS: "a funded payer: give --payer-key or --world",
    Need.OBSERVE_CHAIN: "read access to the chain: give --rpc-url or --world",
    Need.WORLD: "the control API of the world around the target: give --world",
    Need.CLOCK: "a target whose clock can be advanced: `x402sim serve`, given as --world too",
    Need.RESTART: "a way to restart the target: give --restart COMMAND",
    Need.SESSIONS: "sessions, which the target file says do not exist (sessions.exists)",
    Need.AGENTS: "a list of agents, which the target file says does not exist (agents.exists)",
    Need.LLMS: "a documentation index, which the target file says does not exist (llms.exists)",
    Need.RECORD: "a readable payment record: set record.path in the target file",
    Need.SESSION_VIEW: "a readable session: set sessions.view in the target file",
}
"""The needs of checks, and how to meet each on the command line or in the target file."""

Case = Callable[[Probe], Awaitable[None]]


class Baseline(StrEnum):
    """What the target must accept before and after a check, so that a refusal proves something."""

    UNPAID = "unpaid"
    """A request without payment gets a 402 that can be paid."""
    PAYMENT = "payment"
    """A payment is settled and opens the resource."""
    SESSION = "session"
    """A deposit opens a session, which is served."""


@dataclass(frozen=True, slots=True)
class Check:
    """One case of one id. `pays` and `deposits` are how much it may spend.

    Several cases may have the same id; the worst outcome is the id's.
    """

    id: str
    level: Level
    title: str
    needs: tuple[Need, ...]
    pays: int
    deposits: str
    run: Case
    baseline: Baseline | None

    @property
    def name(self) -> str:
        """The id and the case, which is unique."""
        return f"{self.id}:{getattr(self.run, '__name__', '')}"

    @property
    def section(self) -> str:
        """The section of the document."""
        return self.id.split("/")[1]

    @property
    def clause(self) -> str:
        """The id, without the document if that is the specification."""
        return self.id.removeprefix(f"{DOCUMENT}/")


_LEVELS: dict[str, Level] = {clause.id: clause.level for clause in CLAUSES}
_TEXTS = {clause.id: clause.text for clause in CLAUSES}


def check(
    clause: str,
    *,
    needs: str = "",
    pays: int = 0,
    deposits: str = "0",
    baseline: str | None = None,
    level: Level | None = None,
    document: str = DOCUMENT,
) -> Callable[[Case], Check]:
    """Make a check of `async def case(probe)`; its docstring is the case's title.

    `clause` is an id of spec/clauses.py, or section/slug of another `document`. `needs`
    are keys of `HOW_TO_PROVIDE`, separated by commas. `pays` counts payments of the
    quote's price, and `deposits` tokens in session deposits. A check that demands a
    refusal names its `baseline`, a value of `Baseline`.

    Raises `ValueError` for an unknown clause, need or baseline, and for a case without a
    docstring.
    """
    where = f"check {clause}"
    if document == DOCUMENT and clause not in _LEVELS:
        raise ValueError(unknown("clause", clause, _near(clause)))
    wanted = parse_needs(needs, where)
    for need in wanted:
        if need not in HOW_TO_PROVIDE:
            raise ValueError(f"{where}: {unknown('need of a check', need, HOW_TO_PROVIDE)}")
    if baseline is not None and baseline not in list(Baseline):
        raise ValueError(f"{where}: {unknown('baseline', baseline, list(Baseline))}")

    def make(case: Case) -> Check:
        if not case.__doc__:
            raise ValueError(f"{where}: {case} has no docstring; it is the case's title")
        return Check(
            id=f"{document}/{clause}",
            level=level or _LEVELS.get(clause, "SHOULD"),
            title=" ".join(case.__doc__.split()),
            needs=wanted,
            pays=pays,
            deposits=deposits,
            run=case,
            baseline=Baseline(baseline) if baseline is not None else None,
        )

    return make


def _near(clause: str) -> list[str]:
    """Return the clauses of the same section; all, if there is no such section."""
    section = clause.split("/")[0] + "/"
    return [known for known in _LEVELS if known.startswith(section)] or list(_LEVELS)


def clause_text(check_id: str) -> str:
    """Return the text of the clause behind a check's id; empty for another document's."""
    return _TEXTS.get(check_id.split("/", 1)[1], "") if check_id.startswith(DOCUMENT) else ""
