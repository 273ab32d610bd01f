"""Budgets: what a payer may sign for. A signed authorization counts, whether or not it was used."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

from x402sim.text.arguments import explained


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A price that is asked for, and what the payer has signed for before, in tokens.

    `signed_since` returns what was signed for in the last so many seconds.
    """

    price: Decimal
    signed: Decimal
    signed_since: Callable[[float], Decimal]


class Budget(Protocol):
    """What a payer may sign for."""

    def allows(self, bill: Bill) -> bool:
        """Tell whether the price may be signed for."""


@dataclass(frozen=True, slots=True)
class NoLimit:
    """The default: whatever is asked for."""

    def allows(self, bill: Bill) -> bool:
        """Return True."""
        return True


@explained
@dataclass(frozen=True, slots=True)
class AtMost:
    """At most `total` tokens in all, or in any `seconds`; at most `each` for one payment.

    Amounts are text, such as "1.00". None is no limit. A deposit counts as one payment.
    """

    total: str | None = None
    seconds: float | None = None
    each: str | None = None

    def __post_init__(self) -> None:
        _tokens("total", self.total)
        _tokens("each", self.each)
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds: expected a time above 0, got {self.seconds!r}")

    def allows(self, bill: Bill) -> bool:
        """Tell whether the price, and the total with it, stay within the limits."""
        if self.each is not None and bill.price > Decimal(self.each):
            return False
        if self.total is None:
            return True
        signed = bill.signed if self.seconds is None else bill.signed_since(self.seconds)
        return signed + bill.price <= Decimal(self.total)


def _tokens(name: str, amount: object) -> None:
    """Raise `ValueError` unless this is an amount of tokens as text, or None."""
    try:
        is_amount = amount is None or (isinstance(amount, str) and Decimal(amount) >= 0)
    except InvalidOperation:
        is_amount = False
    if not is_amount:
        raise ValueError(f'{name}: expected tokens as text, such as "1.00", got {amount!r}')
