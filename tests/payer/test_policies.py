"""What a budget allows; tests/world/test_policies.py has what a payer does about failures."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from x402sim.payer.policies import Bill
from x402sim.policies import AtMost, NoLimit, PayerPolicy


@pytest.mark.parametrize(
    ("budget", "price", "signed", "lately", "allowed"),
    [
        (NoLimit(), "1e9", "1e9", "1e9", True),
        (AtMost("1.00"), "0.01", "0.99", "0", True),
        (AtMost("1.00"), "0.02", "0.99", "0", False),
        (AtMost(each="0.05"), "0.05", "9", "9", True),
        (AtMost(each="0.05"), "0.06", "0", "0", False),
        (AtMost("0.10", seconds=60), "0.01", "9", "0.09", True),
        (AtMost("0.10", seconds=60), "0.01", "9", "0.10", False),
        (AtMost("0.10", counts="paid"), "0.02", "9", "9", True),
        (AtMost("0.10", counts="paid"), "0.03", "9", "9", False),
        (AtMost("0.10", counts="exposed"), "0.01", "9", "9", True),
        (AtMost("0.10", counts="exposed"), "0.02", "9", "9", False),
    ],
    ids=str,
)
def test_what_a_budget_allows(
    budget: Any, price: str, signed: str, lately: str, allowed: bool
) -> None:
    bill = Bill(
        price=Decimal(price),
        signed=Decimal(signed),
        signed_since=lambda _: Decimal(lately),
        paid=Decimal("0.08"),
        unsure=Decimal("0.01"),
    )
    assert budget.allows(bill) is allowed


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: AtMost("much"), "total: expected tokens as text"),
        (lambda: AtMost(each="-1"), "each: expected tokens as text"),
        (lambda: AtMost("1", seconds=9, counts="paid"), 'counts: with `seconds` it is "signed"'),
        (lambda: AtMost("1", counts="all"), "counts: unknown word 'all'. Possible: signed, exp"),  # type: ignore[arg-type]
        (lambda: PayerPolicy(steps=3), "steps: expected 1 or 2, got 3"),  # type: ignore[arg-type]
    ],
)
def test_an_impossible_policy_is_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()
