"""The laws of a run: which held, which were switched off, and which broke, in cases and money."""

from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any

from x402sim.events import Begin, Check
from x402sim.journal import Journal

LAWS = {
    "invariant/value-conserved": "the sum of all balances is what was minted",
    "invariant/released-within-deposit": "no session spends more than its deposit",
    "invariant/granted-only-if-transferred": "access is granted for money that moved",
    "invariant/one-transfer-per-payment": "a payment id is paid at most once",
    "invariant/one-order-per-authorization": "an authorization buys one order",
    "invariant/served-only-if-transferred": "a transfer stands when what it pays is served",
}
"""The invariants that a world checks after every event."""
UNDONE = "undone after serving"
_MOST_NAMED = 10


def laws(journal: Journal, begin: Begin, *, is_ours: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each law, as `Run.summary` shows it; `is_ours`: the world was built here.

    And one for money that the chain took back when it was served for already, if there is any.
    """
    from x402sim.report.orders import orders_of  # it needs the extra `report`

    state = "off" if begin.options.get("invariants") == "False" else "held"
    broken: dict[str, dict[str, int]] = {}
    for check in journal.events(Check):
        if not check.ok and check.clause in LAWS:
            cases = broken.setdefault(check.clause, {})
            cases[check.about or ""] = int(check.at_stake_base or 0)  # the newest counts
    for law, meaning in LAWS.items():
        found = broken.get(law, {})
        is_broken = "broken" if found else state if is_ours else "not checked"
        yield _row(law, is_broken, found.values(), begin.decimals, meaning)
    lost = {each.number: each.lost_base for each in orders_of(journal) if each.lost_base}
    if lost:
        named = ", ".join(map(str, list(lost)[:_MOST_NAMED])) + ", …" * (len(lost) > _MOST_NAMED)
        meaning = f"no law: the chain undid a payment after it was served, of the orders {named}"
        yield _row(UNDONE, "seen", lost.values(), begin.decimals, meaning)


def _row(
    law: str, state: str, stakes: Collection[int], decimals: int, meaning: str
) -> dict[str, Any]:
    money = float(Decimal(sum(stakes)).scaleb(-decimals))
    return {"law": law, "state": state, "cases": len(stakes), "money": money, "meaning": meaning}
