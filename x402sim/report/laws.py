"""The laws of a run: which held, which were switched off, and which broke, in cases and money."""

import re
from collections.abc import Iterator
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
_ABOUT = re.compile(r"\b(?:pay_|session_)\w+|\b[0-9a-f]{64}\b")
_AT_STAKE = re.compile(r"; (\d+) base units at stake$")


def laws(journal: Journal, begin: Begin, *, is_ours: bool) -> Iterator[dict[str, Any]]:
    """Yield a row for each law, as `Run.summary` shows it; `is_ours`: the world was built here."""
    state = "off" if begin.options.get("invariants") == "False" else "held"
    broken: dict[str, dict[str, int]] = {}
    for entry in journal.of(Check):
        check = entry.event
        if isinstance(check, Check) and not check.ok and check.clause in LAWS:
            about, stake = _ABOUT.search(str(check.actual)), _AT_STAKE.search(str(check.actual))
            cases = broken.setdefault(check.clause, {})
            cases[about[0] if about else ""] = int(stake[1]) if stake else 0  # the newest counts
    for law, meaning in LAWS.items():
        found = broken.get(law, {})
        yield {
            "law": law,
            "state": "broken" if found else state if is_ours else "not checked",
            "cases": len(found),
            "money": float(Decimal(sum(found.values())).scaleb(-begin.decimals)),
            "meaning": meaning,
        }
