"""The decorator `@check`, which declares a check of a service.

A misspelt clause, need or quotation raises an error at the declaration, and so does a level that
the check's ground does not support.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from x402sim.spec.clauses import CLAUSES, LEVELS, Level
from x402sim.spec.ground import BINDING, Ground
from x402sim.spec.needs import Need, parse_needs
from x402sim.suite.case import Case, near
from x402sim.suite.row import beginnings, documents
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.text.words import unknown

DOCUMENT = "spec"
"""The document with the clauses of most checks."""

IDS_BEGIN = beginnings(DOCUMENT)
"""The documents that ids begin with; an id may leave out the first."""

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

COMES_WITH = {
    Need.WORLD: (Need.FUNDS, Need.OBSERVE_CHAIN),
    Need.CLOCK: (Need.FUNDS, Need.OBSERVE_CHAIN, Need.WORLD, Need.RESTART),
}
"""The other needs that are met as soon as a need is met."""

PATIENCE_S = 25.0
"""The most seconds that a case waits, unless the run is patient."""

Run = Callable[[Probe], Awaitable[None]]
Waits = Callable[[Setting], float]


Control = Literal["unpaid", "payment", "session"]
"""Requests that the target must accept around a check: only then a refusal proves something.

unpaid: a request without payment gets a 402 that can be paid; payment: a payment is settled and
opens the resource; session: a deposit opens a session, and a request with the session is served.
"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServiceCase(Case):
    """One case of one id. `pays` and `deposits` limit its spending.

    If the target's clock cannot be advanced, a case that `waits` for time to pass runs beside other
    cases, and a `late` case begins to wait at the end. A case that `disturbs` the target's
    background, by faults of the facilitator or of the chain, runs while no other waits.
    """

    pays: int
    deposits: str
    run: Run
    control: Control | Literal[""] = ""
    waits: Waits | None = None
    late: bool = False
    disturbs: bool = False

    @property
    def name(self) -> str:
        """The name of the play: the id and the case."""
        return self.played_as


_CLAUSES = {clause.id: clause for clause in CLAUSES}
_ORDER: tuple[Level, ...] = ("MAY", "SHOULD", "MUST")


def case(
    clause: str,
    *,
    title: str,
    ground: Ground | None = None,
    needs: str = "",
    pays: int = 0,
    deposits: str = "0",
    control: Control | Literal[""] = "",
    level: Level | None = None,
    waits: Waits | None = None,
    late: bool = False,
    disturbs: bool = False,
    decisive: bool | str = True,
) -> Callable[[Run], ServiceCase]:
    """Make a check of `async def case(probe)`; `title` states its demand.

    `clause` is an id of spec/clauses.md, or any section/slug for a demand beyond the specification.
    `needs` are keys of `HOW_TO_PROVIDE`, separated by commas. `pays` counts payments of the quote's
    price, and `deposits` tokens in session deposits; where the world mints the money, both are 0.
    `waits` gives the seconds that a case waits for with `probe.wait`, beside other cases (only with
    --patient if longer than `PATIENCE_S`); a `late` case begins to wait after all others. A case
    that injects faults of the facilitator or of the chain, forces reverts or holds blocks back
    `disturbs`: no other case counts on the target's background until the background was seen to
    run again. A check that demands a refusal names its `control`. The `ground` is the source of
    the demand, if not its clause's: `explicit`, `derived`, `ours` or `silent`
    (`x402sim.spec.ground`). The ground gives the document of the id ("spec" for explicit and
    derived, "kit" for ours, "silent" for silent) and the highest `level`: only demands of the
    specification are a MUST.

    A MUST does not pass until each of its `decisive` cases was judged; a case is decisive unless it
    says `False`: then other cases find every defect that it finds. With a name, every case of the
    name finds the defect, and one of the cases must be judged; a case may have several names,
    separated by commas. For example, two cases of 3/expiry-refund find a session that never ends:
    both have `decisive="its end"`. One case finds a session that ends too early. The id passes if
    that case and either of the two were judged, and hold.

    Raises `ValueError` for an unknown clause or need, and for a level above its ground.
    """

    def make(case: Run) -> ServiceCase:
        known = _CLAUSES.get(clause)
        demand = ground or (known.ground if known else None)
        if demand is None or (known is None and demand.kind in BINDING):
            problem = unknown("clause", clause, near(_CLAUSES, clause, IDS_BEGIN))
            raise ValueError(f"{problem}; a demand of our own gives ground=ours(because=...)")
        check_id = f"{documents(DOCUMENT)[demand.kind]}/{clause}"
        where, highest = f"check {check_id}", LEVELS[demand.kind]
        name = getattr(case, "__name__", "")
        if level is not None and _ORDER.index(level) > _ORDER.index(highest):
            raise ValueError(f"{where}: its ground is {demand.kind}, so it is no {level}")
        wanted = parse_needs(needs, where)
        for need in wanted:
            if need not in HOW_TO_PROVIDE:
                raise ValueError(f"{where}: {unknown('need of a check', need, HOW_TO_PROVIDE)}")
        is_minted = Need.WORLD in wanted
        questions = decisive.split(",") if isinstance(decisive, str) else [name] * decisive
        is_must = (level or highest) == "MUST"
        return ServiceCase(
            id=check_id,
            level=level or highest,
            ground=demand,
            title=title,
            played_as=f"{check_id}:{name}",
            needs=wanted,
            pays=0 if is_minted else pays,
            deposits="0" if is_minted else deposits,
            run=case,
            control=control,
            waits=waits,
            late=late,
            disturbs=disturbs,
            decides=tuple(each.strip() for each in questions if is_must),
        )

    return make


paid_case = partial(case, needs="funds", pays=1)
"""Make a check with one payment."""
unpaid_case = partial(case, control="unpaid")
"""Make a check of a refusal, which pays nothing."""
refusal_case = partial(case, control="payment", needs="funds", pays=1)
"""Make a check that demands the refusal of a payment, or of an invalid proof."""
session_case = partial(case, control="session", needs="funds, sessions")
"""Make a check of a session, which a deposit opens."""
trouble_case = partial(case, needs="world", disturbs=True)
"""Make a check with faults of the facilitator or the chain."""
fault_case = partial(trouble_case, control="payment")
"""Make a check of a refusal, with such faults."""
restart_case = partial(paid_case, needs="funds, restart")
"""Make a check with one payment before a restart. Arguments replace the presets of all seven."""


def clause_text(check_id: str) -> str:
    """Return the text of the clause behind a check's id; empty without one."""
    clause = _CLAUSES.get(check_id.split("/", 1)[1])
    return clause.text if clause and not check_id.startswith("silent/") else ""
