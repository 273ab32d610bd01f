"""What a payer's policies decide about retries and budgets, without a world."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from x402sim.payer.policies.budget import Bill
from x402sim.policies import (
    AtMost,
    GiveUp,
    NewAuthorization,
    NoLimit,
    PayerPolicy,
    SameAuthorization,
    SameThenNew,
    StartOver,
)

LOST, FINAL, PAID = "lost", "final", "paid"


class Order:
    """An order whose payments are answered as the test says; it writes down what is done."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.done, self.last = list(answers), list[str](), ""

    @property
    def is_paid(self) -> bool:
        return self.last == PAID

    @property
    def is_final(self) -> bool:
        return self.last == FINAL

    async def pay(self) -> None:
        self.last = self.answers.pop(0)
        self.done.append("pay")

    async def sign_again(self) -> None:
        self.done.append("sign")

    async def ask_again(self) -> None:
        self.done.append("ask")

    async def wait(self, seconds: float) -> None:
        self.done.append(f"wait {seconds:g}")


@pytest.mark.parametrize(
    ("policy", "answers", "done"),
    [
        (GiveUp(), [LOST, PAID], "pay"),
        (SameAuthorization(), [PAID], "pay"),
        (SameAuthorization(), [LOST, LOST, PAID], "pay, wait 5, pay, wait 5, pay"),
        (SameAuthorization(times=1, wait_s=2), [LOST, LOST, PAID], "pay, wait 2, pay"),
        (SameAuthorization(), [FINAL, PAID], "pay"),
        (SameThenNew(), [LOST, FINAL, PAID], "pay, wait 5, pay, wait 5, sign, pay"),
        (SameThenNew(times=1), [FINAL, FINAL, PAID], "pay, wait 5, sign, pay"),
        (NewAuthorization(), [LOST, PAID], "pay, wait 5, sign, pay"),
        (NewAuthorization(times=0), [LOST, PAID], "pay"),
        (StartOver(), [LOST, FINAL, PAID], "pay, wait 5, ask, pay, wait 5, ask, pay"),
    ],
    ids=str,
)
def test_how_an_order_is_paid(policy: Any, answers: list[str], done: str) -> None:
    order = Order(*answers)
    asyncio.run(policy.pay(order))
    assert ", ".join(order.done) == done


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
