"""The plan of a run: its requests, payments and duration, and the cases beyond the budget.

The requests and the waits of each case were counted with our own service
(`conformance/service/costs.json`, made by `python -m tests.suite.costs`). The seconds of a request
are measured at the target, before the checks.

First, cases that wait act beside cases without faults; then cases act whose faults strike
everybody. A case whose faults strike only refunds of the case's own payers waits beside all others.
A target may have a single loop for background work, and index nothing while the loop repeats a
refused refund: a failure seen only beside such a case is judged once more without that case.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from x402sim.protocol.money import to_base, to_decimal
from x402sim.spec.needs import Need
from x402sim.suite.service.background import usual_s
from x402sim.suite.service.case import COMES_WITH, HOW_TO_PROVIDE, PATIENCE_S, ServiceCase
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import CENT_BASE
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Lacking, NotApplicable, Skipped


@dataclass(frozen=True, slots=True)
class Order:
    """The cases of a run in groups that act one after the other.

    `acting` cases act one by one, beside the `waiting` cases. Then cases `with_faults` inject
    faults, one by one. The faults of `waiting_with_faults` strike only refunds of the cases' own
    payers, so the cases wait beside all others. `restarting` cases prepare beside the first groups,
    and share a restart at the end; `restarting_with_faults` also inject a fault, and prepare
    immediately before the restart.
    """

    acting: tuple[ServiceCase, ...]
    waiting: tuple[ServiceCase, ...] = ()
    with_faults: tuple[ServiceCase, ...] = ()
    waiting_with_faults: tuple[ServiceCase, ...] = ()
    restarting: tuple[ServiceCase, ...] = ()
    restarting_with_faults: tuple[ServiceCase, ...] = ()


def in_groups(setting: Setting, checks: Iterable[ServiceCase]) -> Order:
    """Return the groups of cases; where the clock turns, a single group acts in turn."""
    if setting.advance is not None:
        return Order(acting=tuple(checks))
    found: dict[str, list[ServiceCase]] = {}
    for case in checks:
        found.setdefault(_group(case), []).append(case)
    return Order(**{"acting": (), **{name: tuple(cases) for name, cases in found.items()}})


def is_beside(setting: Setting, case: ServiceCase) -> bool:
    """Tell whether others act during a case: while the case waits, or until a restart."""
    return setting.advance is None and (case.waits is not None or Need.RESTART in case.needs)


def _group(case: ServiceCase) -> str:
    if Need.RESTART in case.needs:
        return "restarting_with_faults" if case.disturbs else "restarting"
    if case.waits is not None:
        return "waiting_with_faults" if case.disturbs else "waiting"
    return "with_faults" if case.disturbs else "acting"


SPEC_PRICE_BASE = 10_000
"""The price for which the deposits of checks are declared."""
MOST_SESSIONS = 3
"""The most sessions of one case."""
CONTROL_REQUESTS = 2
"""A session of the control is worth two requests."""
CONTROL_TIMES = 2
"""A control is tried before the checks, and after them."""
WORK = 1.8
"""Measured time of a case's request, in times of an unpaid request: settlement, signature, and
requests to the world come on top."""
USUAL_REQUESTS = 8
"""The requests of an uncounted case."""
OF_TARGET = (Need.SESSIONS, Need.AGENTS, Need.LLMS, Need.RECORD, Need.SESSION_VIEW)
"""Needs that a target file can deny: a service may lack them, so a case does not apply."""
_LEVELS = {"MUST": 0, "SHOULD": 1, "MAY": 2}


class Cost(msgspec.Struct, frozen=True, array_like=True):
    """The cost of a case with our own service: requests, and seconds of waiting."""

    requests: int
    waits_s: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The most that a run will do. Amounts are in base units."""

    ids: int
    runnable_ids: int
    requests: int
    seconds: float
    payments: int = 0
    deposits_base: int = 0
    signs_base: int = 0
    """The sum that the payer signs for in the cases within the budget."""
    needs_base: int = 0
    """The sum that the payer would sign for in all cases."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The cases beyond the budget, by name, with the reason."""
    notes: tuple[str, ...] = ()
    """Further notes for the user."""


def costs(file: Path) -> dict[str, Cost]:
    """Return the cost of each case, by its name."""
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Cost])


def make_plan(
    setting: Setting,
    checks: list[ServiceCase],
    measured: Mapping[str, Cost],
    *,
    price_base: int,
    round_trip_s: float,
) -> Estimate:
    """Return the plan of a run in which a protected request costs `price_base`."""
    runnable = [case for case in checks if not why_left(setting, case)]
    spends = setting.options.payer is not None and setting.control is None
    taken, left = _fit(setting, runnable, price_base) if spends else (runnable, [])
    paid, needs_base = taken if spends else [], _signs_base(setting, runnable, price_base)
    begun = [case for case in taken if is_patient_enough(setting, case)]
    requests = setting.pace.requests + sum(_cost(measured, case).requests for case in begun)
    rate = setting.options.rate
    request_s = max(round_trip_s * WORK, 1 / rate if rate else 0)
    budget_base = setting.options.budget_base
    why = (
        f"left out: everything would sign for {to_decimal(needs_base, 6)} tokens, and the budget "
        f"is {to_decimal(budget_base, 6)}; give --budget {to_decimal(needs_base, 6)}"
    )
    return Estimate(
        ids=len({case.id for case in checks}),
        runnable_ids=len({case.id for case in taken}),
        requests=round(requests),
        seconds=_seconds(setting, begun, measured, request_s),
        payments=_payments(paid),
        deposits_base=_deposits_base(setting, paid, price_base),
        signs_base=_signs_base(setting, paid, price_base),
        needs_base=needs_base if spends else 0,
        left_out={case.name: why for case in left},
    )


def _seconds(
    setting: Setting, cases: list[ServiceCase], measured: Mapping[str, Cost], request_s: float
) -> float:
    """Return how long cases take, group by group (`Order`), at a target without defects."""

    def acting_s(*groups: Iterable[ServiceCase]) -> float:
        """Return how long the cases of groups act, one after the other."""
        costs = [(case, _cost(measured, case)) for cases in groups for case in cases]
        is_real = setting.advance is None
        own_s = sum(cost.waits_s for case, cost in costs if not (case.waits and is_real))
        return request_s * sum(cost.requests for _, cost in costs) + own_s

    def longest_s(cases: Iterable[ServiceCase]) -> float:
        """Return the longest wait of cases that wait beside each other."""
        return max((case.waits(setting) for case in cases if case.waits), default=0.0)

    order = in_groups(setting, cases)
    beside = (*order.waiting, *order.restarting)
    soon, late = ([case for case in beside if case.late is late] for late in (False, True))
    rest_s = acting_s(order.acting, soon, order.waiting_with_faults)  # the late begin to wait then
    seconds = max(rest_s + acting_s(late) + longest_s(late), longest_s(soon))
    seconds += acting_s(order.with_faults)
    restarts = order.restarting or order.restarting_with_faults
    if order.with_faults and (order.waiting_with_faults or restarts):
        seconds += usual_s(setting)
    seconds = max(seconds, longest_s(order.waiting_with_faults))  # these cases begin with the first
    if restarts:
        # a part of their waits comes before the restart, beside other cases
        seconds += acting_s(order.restarting_with_faults) + longest_s(order.restarting) / 2
    return seconds


def summary_lines(options: Options, plan: Estimate) -> tuple[str, ...]:
    """Return the plan in lines: the requests of a run, its signatures, and the cases left out."""
    lines = [f"note: {text}" for text in plan.notes]
    lines.append(
        f"Plan: {plan.runnable_ids} of {plan.ids} ids, about {plan.requests} requests, about "
        f"{max(plan.seconds, 1):.0f} s"
    )
    if plan.signs_base and options.payer is not None:
        budget = to_decimal(options.budget_base, 6)
        lines.append(
            f"It signs for at most {to_decimal(plan.signs_base, 6)} tokens ({plan.payments} "
            f"payments, deposits of {to_decimal(plan.deposits_base, 6)}), from "
            f"{options.payer.address}. The budget is {budget} tokens."
        )
    if plan.left_out:
        ids = dict.fromkeys(name.rpartition(":")[0] for name in plan.left_out)
        lines.append(
            f"Left out in part or in whole, because everything needs --budget "
            f"{to_decimal(plan.needs_base, 6)}: {', '.join(ids)}"
        )
    return tuple(lines)


def is_patient_enough(setting: Setting, case: ServiceCase) -> bool:
    """Tell whether a case begins: a case that waits for minutes needs a patient run."""
    waits_s = case.waits(setting) if case.waits and setting.advance is None else 0
    return waits_s <= PATIENCE_S or setting.options.patient


def cost_base(setting: Setting, case: ServiceCase, price_base: int) -> int:
    """Return the largest sum that one case signs for, in base units."""
    return case.pays * price_base + _deposit_base(setting, case, price_base)


def _deposit_base(setting: Setting, case: ServiceCase, price_base: int) -> int:
    declared_base = to_base(case.deposits, 6)
    if not declared_base:
        return 0
    requests = -(-declared_base // SPEC_PRICE_BASE)
    smallest_base = to_base(setting.target.sessions.smallest, 6)
    sessions = min(requests, MOST_SESSIONS)
    per_session_base = max(-(-requests * price_base // sessions), smallest_base)
    return sessions * (-(-per_session_base // CENT_BASE) * CENT_BASE)


def _signs_base(setting: Setting, cases: list[ServiceCase], price_base: int) -> int:
    return _payments(cases) * price_base + _deposits_base(setting, cases, price_base)


def _payments(cases: list[ServiceCase]) -> int:
    has_control = any(_spends(case) for case in cases)
    return sum(case.pays for case in cases) + CONTROL_TIMES * has_control


def _deposits_base(setting: Setting, cases: list[ServiceCase], price_base: int) -> int:
    wanted_base = max(CONTROL_REQUESTS * price_base, to_base(setting.target.sessions.smallest, 6))
    session_base = -(-wanted_base // CENT_BASE) * CENT_BASE
    times = CONTROL_TIMES * any(case.control == "session" for case in cases)
    return times * session_base + sum(_deposit_base(setting, case, price_base) for case in cases)


def _spends(case: ServiceCase) -> bool:
    is_paid = case.control in ("payment", "session")
    return is_paid or case.pays > 0 or case.deposits != "0"


def _fit(
    setting: Setting, cases: list[ServiceCase], price_base: int
) -> tuple[list[ServiceCase], list[ServiceCase]]:
    """Return the cases within the budget, and the others: MUST first, then by price.

    The budget also covers a second payment of the cases' controls, at the end.
    """
    dear = sorted(
        (case for case in cases if _spends(case)),
        key=lambda case: (_LEVELS[case.level], cost_base(setting, case, price_base)),
    )
    taken: list[ServiceCase] = []
    for case in dear:
        if _signs_base(setting, [*taken, case], price_base) <= setting.options.budget_base:
            taken.append(case)
    left = {*dear} - {*taken}
    return [case for case in cases if case not in left], [case for case in cases if case in left]


def why_left(setting: Setting, case: ServiceCase) -> Skipped | None:
    """Return why a case cannot run (skipped, or without a need), or None."""
    if (reason := setting.skip.get(case.name)) is not None:
        return Lacking(reason)
    if missing := [need for need in case.needs if setting.missing(need)]:
        implied = {each for need in missing for each in COMES_WITH.get(need, ())}
        ways = [HOW_TO_PROVIDE[need] for need in missing if need not in implied]
        kind = Lacking if set(missing).isdisjoint(OF_TARGET) else NotApplicable
        return kind(f"it needs {'; '.join(ways)}")
    return None


def _cost(measured: Mapping[str, Cost], case: ServiceCase) -> Cost:
    return measured.get(case.name, Cost(USUAL_REQUESTS))
