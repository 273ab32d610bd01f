"""Finds the smallest case that still breaks a law: fewer steps, then plainer ones."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from x402sim.explore.case import Buy, Case, Deposit, Step, Strike
from x402sim.world.transport.faults import Fault

_PLAINER = (
    "wallets", "market", "latency", "jitter", "block_time_s", "explorer_lag_s", "services", "seed"
)  # fmt: skip
MOST_PLAYS = 400
"""The most cases that are played for one failure."""
Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, most_plays: int = MOST_PLAYS) -> Case:
    """Return the smallest case found for which `fails` is true, as it must be for `case`."""
    budget = _Budget(fails, most_plays)
    before = None
    while case != before and budget.left:
        before = case
        case = _fewer_steps(case, budget)
        case = _plainer(case, budget)
    return case


class _Budget:
    """Asks whether a case fails, each case once, until no plays are left."""

    def __init__(self, fails: Fails, left: int) -> None:
        self._fails, self.left = fails, left
        self._known: dict[bytes, bool] = {}

    def __call__(self, case: Case) -> bool:
        key = msgspec.json.encode(case)
        if key not in self._known:
            if not self.left:
                return False
            self.left -= 1
            self._known[key] = self._fails(case)
        return self._known[key]


def _fewer_steps(case: Case, fails: _Budget) -> Case:
    """Remove steps by delta debugging: halves first, then smaller parts, down to single steps."""
    parts = 2
    while len(case.steps) > 0 and parts <= 2 * len(case.steps):
        size = max(1, len(case.steps) // parts)
        for start in range(0, len(case.steps), size):
            steps = case.steps[:start] + case.steps[start + size :]
            smaller = msgspec.structs.replace(case, steps=steps)
            if fails(smaller):
                case, parts = smaller, max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts *= 2
    return case


def _plainer(case: Case, fails: _Budget) -> Case:
    """Take every simplification that keeps the failure."""
    progress = True
    while progress and fails.left:
        progress = False
        for candidate in _simplifications(case):
            if candidate != case and fails(candidate):
                case, progress = candidate, True
                break
    return case


def _simplifications(case: Case) -> Iterator[Case]:
    """Yield cases that are a little plainer: options first, then each step."""
    defaults = Case()
    for name in _PLAINER:
        yield msgspec.structs.replace(case, **{name: getattr(defaults, name)})
    if case.services == 3:
        yield msgspec.structs.replace(case, services=2)
    for part in case.latency:
        less = {to: seconds for to, seconds in case.latency.items() if to != part}
        yield msgspec.structs.replace(case, latency=less)
    if len(case.balances) > 1:
        yield msgspec.structs.replace(case, balances=case.balances[:-1])
    for place, step in enumerate(case.steps):
        for plainer in _plainer_steps(step):
            steps = (*case.steps[:place], plainer, *case.steps[place + 1 :])
            yield msgspec.structs.replace(case, steps=tuple(sorted(steps, key=lambda s: s.at_s)))


def _plainer_steps(step: Step) -> Iterator[Step]:
    """Yield plainer versions of one step: each field at its default, times in whole seconds."""
    for name, default in _defaults(step):
        if getattr(step, name) != default:
            yield msgspec.structs.replace(step, **{name: default})
    if step.at_s != round(step.at_s):
        yield msgspec.structs.replace(step, at_s=float(round(step.at_s)))
        yield msgspec.structs.replace(step, at_s=round(step.at_s, 1))
    match step:
        case Strike(fault=fault):
            for name, default in _defaults(fault):
                if getattr(fault, name) != default and not (name == "seconds" and fault.seconds):
                    yield Strike(at_s=step.at_s, fault=_replace(fault, name, default))
        case Deposit():
            yield _bought(step)
        case _:
            pass


def _defaults(struct: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for each in msgspec.structs.fields(struct):
        if not each.required:
            yield each.name, each.default


def _replace(fault: Fault, name: str, value: object) -> Fault:
    return msgspec.structs.replace(fault, **{name: value})


def _bought(step: Deposit) -> Buy:
    """Return the purchase of a quote in place of a deposit."""
    shared = {name: getattr(step, name) for name in Buy.__struct_fields__ if name != "way"}
    return Buy(**shared)
