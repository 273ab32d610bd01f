"""What a payer has signed for, within its budget, and the retries that it has left."""

import math
from array import array
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import takewhile

from x402sim.clock import Clock
from x402sim.payer.core import SpendingCapExceeded
from x402sim.payer.policies import Bill, PayerPolicy, RetryBudget
from x402sim.rng import Stream
from x402sim.text.printable import described
from x402sim.world.stages import Stage


class RetryTokens:
    """The tokens of a retry budget in one world: of one payer, or of all that share it."""

    def __init__(self, budget: RetryBudget) -> None:
        self._budget, self._tokens = budget, min(budget.reserve, budget.most)

    def add(self) -> None:
        """Add the share of an order."""
        self._tokens = min(self._budget.most, self._tokens + self._budget.share)

    def take(self) -> bool:
        """Take the token of a retry, if there is a whole one, and tell whether there was."""
        is_whole = self._tokens >= 1 - 1e-9  # ten times 0.1 is a little less than one
        self._tokens -= is_whole
        return is_whole


@dataclass(slots=True, eq=False)
class Signed:
    """An authorization that was signed: for how many tokens, and when it expires."""

    price: Decimal
    expires_s: float


@dataclass(slots=True)
class Spending:
    """What one payer has signed for, at all services, oldest first."""

    policy: PayerPolicy
    moments: "array[float]" = field(default_factory=lambda: array("d"))
    """When it signed, in Unix seconds."""
    prices: list[Decimal] = field(default_factory=list)
    """What for, each time."""
    total: Decimal = Decimal()
    paid: Decimal = Decimal()
    """The amount that answers have reported as paid."""
    unsure: list[Signed] = field(default_factory=list)
    """The authorizations that no answer has reported as paid, and that had not expired."""
    retries: RetryTokens | None = None
    """The tokens of the policy's retry budget, if it has one."""
    rng: Stream | None = None
    """The stream of its policies, once one of them draws."""

    def stream_of(self, stage: Stage, payer: str) -> Stream:
        """Return the random stream of the payer's policies, the same at all services."""
        if self.rng is None:
            self.rng = stage.stream(f"retries of {payer}")
        return self.rng

    def until_s(self, clock: Clock) -> float:
        """Return when an order that begins now is given up, in Unix seconds."""
        within_s = self.policy.within_s
        return math.inf if within_s is None else clock.now() + within_s

    def spend(self, price: Decimal, now_s: float, expires_s: float) -> Signed:
        """Count a price as signed for; raises `SpendingCapExceeded` if the budget forbids it."""

        def since(seconds: float) -> Decimal:
            signed = zip(reversed(self.moments), reversed(self.prices), strict=True)
            newest = takewhile(lambda each: each[0] > now_s - seconds, signed)
            return sum((price for _, price in newest), Decimal())

        self.unsure = [each for each in self.unsure if each.expires_s > now_s]
        unsure = sum((each.price for each in self.unsure), Decimal())
        budget = self.policy.budget
        bill = Bill(
            price=price, signed=self.total, signed_since=since, paid=self.paid, unsure=unsure
        )
        if not budget.allows(bill):
            raise SpendingCapExceeded(
                f"the 402 asks for {price}, {self.total} is signed for ({self.paid} of it paid, "
                f"{unsure} without an answer), and the budget is {described(budget)}; nothing was "
                "signed"
            )
        new = Signed(price, expires_s)
        self.moments.append(now_s)
        self.prices.append(price)
        self.unsure.append(new)
        self.total = self.total + price if self.total else price  # most payers pay once
        return new

    def note_paid(self, signed: Signed) -> None:
        """Count an authorization as paid, as an answer has reported."""
        if signed in self.unsure:
            self.unsure.remove(signed)
            self.paid = self.paid + signed.price if self.paid else signed.price
