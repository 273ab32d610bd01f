"""Budgets: what a payer may sign for.

By default a signed authorization counts, whether or not it was used: only the chain can tell.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal, Protocol

from x402sim.text.arguments import AboveZero, explained


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A price that is asked for, and what the payer has signed for before, in tokens.

    `signed_since` returns what was signed for in the last so many seconds. Of `signed`, an answer
    said of `paid` that it is paid; `unsure` has no such answer and has not expired.
    """

    price: Decimal
    signed: Decimal
    signed_since: Callable[[float], Decimal]
    paid: Decimal = Decimal()
    unsure: Decimal = Decimal()


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

    counts
        What counts against `total`. "signed" (the default): all that was ever signed, so that no
        more can be charged, whatever is lost. "exposed": what an answer said is paid, and what is
        signed and has not expired; charges whose answer was lost are forgotten when they expire.
        "paid", naive: only what an answer said is paid, so that each lost answer may overrun it.
    """

    total: str | None = None
    seconds: AboveZero | None = None
    each: str | None = None
    counts: Literal["signed", "exposed", "paid"] = "signed"

    def __post_init__(self) -> None:
        if self.total is None and self.each is None:
            raise ValueError(
                'AtMost: expected a total or each, such as AtMost("1.00"), got neither'
            )
        _tokens("total", self.total)
        _tokens("each", self.each)
        if self.seconds is not None and self.counts != "signed":
            raise ValueError(f'counts: with `seconds` it is "signed", got {self.counts!r}')

    def allows(self, bill: Bill) -> bool:
        """Tell whether the price, and the total with it, stay within the limits."""
        if self.each is not None and bill.price > Decimal(self.each):
            return False
        if self.total is None:
            return True
        return self._counted(bill) + bill.price <= Decimal(self.total)

    def _counted(self, bill: Bill) -> Decimal:
        if self.seconds is not None:
            return bill.signed_since(self.seconds)
        if self.counts == "signed":
            return bill.signed
        return bill.paid if self.counts == "paid" else bill.paid + bill.unsure


def _tokens(name: str, amount: object) -> None:
    """Raise `ValueError` unless this is an amount of tokens as text, or None."""
    try:
        is_amount = amount is None or (isinstance(amount, str) and Decimal(amount) >= 0)
    except InvalidOperation:
        is_amount = False
    if not is_amount:
        raise ValueError(f'{name}: expected tokens as text, such as "1.00", got {amount!r}')
