"""The demands: the checks of each id, and the cases that one ground has in common.

`conformance/demands.md` has them all, with the sentence that each comes from; reports link to it.
"""

from collections.abc import Iterable

from x402sim.spec.ground import Ground
from x402sim.suite.check import Check

FILE = "demands.md"


def by_id(checks: Iterable[Check]) -> dict[str, list[Check]]:
    """Return the cases of each id."""
    found: dict[str, list[Check]] = {}
    for check in checks:
        found.setdefault(check.id, []).append(check)
    return found


def by_ground(cases: Iterable[Check]) -> list[tuple[Ground, list[Check]]]:
    """Return the cases of one id that have the same ground, together."""
    found: dict[Ground, list[Check]] = {}
    for case in cases:
        found.setdefault(case.ground, []).append(case)
    return list(found.items())
