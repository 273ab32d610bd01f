"""The outcomes of plays: a payment with its answers and transfers, once or in several requests."""

from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.suite.money import Transfer
from x402sim.suite.server.payment import Payment
from x402sim.suite.server.raw import Answer
from x402sim.text.words import counted, often


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """A payment, its answers, and its transfers in the end."""

    payment: Payment
    answers: Sequence[Answer]
    moved: Sequence[Transfer]
    settled: int
    """How often settle was called."""

    @property
    def is_served(self) -> bool:
        """Whether an answer was a success."""
        return any(each.is_sale for each in self.answers)

    @property
    def summary(self) -> str:
        """The answers, and the transfers."""
        first, *again = self.answers
        later = [f"the same payment again: {each.how}" for each in again[-1:]]
        moved = (
            f"{counted(len(self.moved), 'transfer')} of "
            f"{sum(m.amount_base for m in self.moved)} base units"
        )
        requested = f"settle was requested {often(self.settled)}"
        return "; ".join([first.how, *later, moved, requested])


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """One payment in several requests: the answers, and the transfers."""

    payment: Payment
    answers: Sequence[Answer]
    moved: Sequence[Transfer]
    runs: int | None = None
    """How often handlers ran, by --counter; None if unknown."""
    unused: Sequence[Answer] = ()
    """The answers that have used nothing, sold `upto`: they buy nothing."""

    @property
    def successes(self) -> list[Answer]:
        """The answers with goods, repeated or new, without the unused."""
        return [each for each in self.answers if each.is_sale and each not in self.unused]

    @property
    def served(self) -> list[Answer]:
        """The answers with different goods."""
        return list({each.goods: each for each in self.successes}.values())

    @property
    def sold(self) -> int:
        """The number of items sold: runs of the handler, or else different goods."""
        if not self.runs:
            return len(self.served)
        return min(len(self.successes), max(1, self.runs - len(self.unused)))

    @property
    def extra(self) -> int:
        """The number of items sold beyond one for each transfer, at least one."""
        return max(0, self.sold - max(1, len(self.moved)))

    @property
    def summary(self) -> str:
        """The answers, the transfers, and the runs of handlers."""
        hows = "; ".join(f"{n}: {each.how}" for n, each in enumerate(self.answers, 1))
        ran = "" if self.runs is None else f"; handlers ran {often(self.runs)}"
        return f"{hows}; {counted(len(self.moved), 'transfer')}{ran}"


@dataclass(frozen=True, slots=True)
class Try:
    """A request, in words, and the answer."""

    about: str
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpaidTries:
    """Requests without a good payment, the goods of a payment, and their price in base units."""

    tries: Sequence[Try]
    goods: Answer
    price: int
    made: int | None = None
    """How often the paid handler ran for the requests; None if not counted."""
