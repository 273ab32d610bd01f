"""In which order the cases of a run act: those that wait; then those whose faults strike all.

What strikes the refunds of its own payers only waits beside all of them. A target may have one loop
for all that it does in the background, and index nothing while it repeats a refund that the
facilitator has refused: what fails beside such cases only is judged once more without them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from x402sim.spec.needs import Need
from x402sim.suite.service.check import Check
from x402sim.suite.service.setting import Setting


@dataclass(frozen=True, slots=True)
class Order:
    """The cases of a run, in the groups in which they act, one group after the other.

    Those of `acting` act one by one, those of `waiting` beside them. Those of `breaking` inject
    faults, one by one. Those of `troubled` wait beside all of these: their faults strike their own
    payers only. Those of `restarting` prepare beside the first groups, and share a restart at the
    end; those of `unsettling` among them inject a fault, and prepare immediately before it.
    """

    acting: tuple[Check, ...]
    waiting: tuple[Check, ...] = ()
    breaking: tuple[Check, ...] = ()
    troubled: tuple[Check, ...] = ()
    restarting: tuple[Check, ...] = ()
    unsettling: tuple[Check, ...] = ()


def in_groups(setting: Setting, checks: Iterable[Check]) -> Order:
    """Return the groups of these cases; where the clock turns, all act one after the other."""
    if setting.advance is not None:
        return Order(acting=tuple(checks))
    found: dict[str, list[Check]] = {}
    for case in checks:
        found.setdefault(_group(case), []).append(case)
    return Order(**{"acting": (), **{name: tuple(cases) for name, cases in found.items()}})


def is_beside(setting: Setting, case: Check) -> bool:
    """Tell whether others act during a case: while it waits, or until it is restarted."""
    return setting.advance is None and (case.waits is not None or Need.RESTART in case.needs)


def _group(case: Check) -> str:
    """Return the group of a case where no clock turns."""
    if Need.RESTART in case.needs:
        return "unsettling" if case.disturbs else "restarting"
    if case.waits is not None:
        return "troubled" if case.disturbs else "waiting"
    return "breaking" if case.disturbs else "acting"
