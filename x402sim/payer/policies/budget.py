"""Budgets: what a payer may sign for. A signed authorization counts, whether or not it was used."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol


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


@dataclass(frozen=True, slots=True)
class AtMost:
    """At most this many tokens in all, such as "1.00"."""

    total: str

    def __post_init__(self) -> None:
        _tokens("total", self.total)

    def allows(self, bill: Bill) -> bool:
        """Tell whether the total stays within the limit."""
        return bill.signed + bill.price <= Decimal(self.total)


@dataclass(frozen=True, slots=True)
class AtMostEach:
    """At most this many tokens for one payment, deposits included."""

    price: str

    def __post_init__(self) -> None:
        _tokens("price", self.price)

    def allows(self, bill: Bill) -> bool:
        """Tell whether the price is within the limit."""
        return bill.price <= Decimal(self.price)


@dataclass(frozen=True, slots=True)
class AtMostPer:
    """At most this many tokens in any `seconds`."""

    total: str
    seconds: float

    def __post_init__(self) -> None:
        _tokens("total", self.total)
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"seconds: expected a time above 0, got {self.seconds!r}")

    def allows(self, bill: Bill) -> bool:
        """Tell whether the last seconds stay within the limit."""
        return bill.signed_since(self.seconds) + bill.price <= Decimal(self.total)


def _tokens(name: str, amount: object) -> None:
    """Raise `ValueError` unless this is an amount of tokens as text."""
    try:
        is_amount = isinstance(amount, str) and Decimal(amount) >= 0
    except InvalidOperation:
        is_amount = False
    if not is_amount:
        raise ValueError(f'{name}: expected tokens as text, such as "1.00", got {amount!r}')
