"""A payer's policies: retries and backoff, sessions, budgets, and the choice of a service.

`PayerPolicy` holds three of them: when to send a payment again, how to pay for many requests, and
how much to spend. The payer calls a policy's only method in one place; a user's own object with the
same method can replace the policy. By default a payer tries once, in two steps.

A payer cannot tell a lost request from a lost answer. The token accepts one authorization once,
so sending the same authorization again is safe; another authorization may be another charge. In
two steps, a retry repeats only the payment, and `PayAndWait` repeats the request with the proof. In
one step, the request that pays is also the request for the resource.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, Literal, Protocol, runtime_checkable

import msgspec

from x402sim.rng import Stream
from x402sim.text.arguments import (
    AboveZero,
    FromZero,
    Range,
    WholeFromZero,
    ZeroToOne,
    explained,
)
from x402sim.text.words import as_given, changed

# --- how long to wait before the next try ---------------------------------------------


@runtime_checkable
class Wait(Protocol):
    """How long a policy waits before it tries again, instead of a number of seconds."""

    def seconds(self, number: int, rng: Stream, asked_s: float | None) -> float:
        """Return the seconds before retry `number`; the first retry is number 0.

        `rng` is the payer's stream; `asked_s` is the last answer's Retry-After in seconds, or None.
        """


@explained
@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: `SameAuthorization(times=5, wait_s=Backoff())`.

    The wait before retry n (0, 1, 2, …) is random(c - jitter * c, c) seconds, where
    c = min(most_s, first_s * factor ** n): with the default jitter random(0, c), the "full
    jitter" of AWS's *Exponential Backoff And Jitter* and of gRPC's retries, without jitter c.
    Random numbers come from the payer's own stream.

    first_s
        c before the first retry, in seconds; default 1.0.
    factor
        The growth of c: each retry multiplies c by `factor`, 1 or more; default 2.0.
    jitter
        The share of c that is random, from 0 to 1; default 1.0.
    most_s
        The largest c, in seconds; default 60.0.
    retry_after
        Whether the wait lasts at least as long as the last answer's Retry-After asks for (RFC 9110,
        10.2.3), also beyond `most_s`; default True.
    """

    first_s: AboveZero = 1.0
    factor: Annotated[float, Range(1)] = 2.0
    jitter: ZeroToOne = 1.0
    most_s: AboveZero = 60.0
    retry_after: bool = True

    def seconds(self, number: int, rng: Stream, asked_s: float | None) -> float:
        """Return the seconds before a retry: a draw, and not less than the answer asks for."""
        is_beyond = number * math.log(self.factor) >= math.log(self.most_s / self.first_s)
        most_s = self.most_s if is_beyond else self.first_s * self.factor**number
        drawn_s = most_s - self.jitter * most_s * rng.random()
        return max(drawn_s, asked_s or 0.0) if self.retry_after else drawn_s


class Tried(Protocol):
    """What a policy may use to compute a wait: a random stream, and the last Retry-After."""

    @property
    def rng(self) -> Stream:
        """The payer's random stream for its policies."""

    @property
    def retry_after_s(self) -> float | None:
        """The seconds in the last answer's Retry-After; None without the header."""


def _seconds(wait: float | Wait, number: int, tried: Tried) -> float:
    if isinstance(wait, Wait):
        return wait.seconds(number, tried.rng, tried.retry_after_s)
    return wait


# --- a payment that was not made, or may have been ------------------------------------


@dataclass(frozen=True, slots=True)
class NewBlock:
    """The number of a block, and its time in Unix seconds."""

    number: int
    time_s: int


class Order(Tried, Protocol):
    """One order: a 402 to be paid, and the answers so far.

    Where the payer's `within_s` allows no more, `pay` and `wait` end the policy by an exception;
    the policy must not catch the exception.
    """

    @property
    def is_paid(self) -> bool:
        """Whether the last answer reports the payment as made."""

    @property
    def is_final(self) -> bool:
        """Whether the last answer reports that this authorization never pays (`final`)."""

    async def pay(self) -> None:
        """Send the authorization to the service; sign before the first send."""

    async def sign_again(self) -> None:
        """Sign another authorization for the same 402; `pay` sends the new authorization."""

    async def ask_again(self) -> None:
        """Request a new 402; `pay` pays the new 402."""

    async def wait(self, seconds: float) -> None:
        """Let time pass."""

    async def newest_block(self) -> NewBlock:
        """Return the chain's newest block."""


class Retry(Protocol):
    """How often an order is paid, and with which authorization."""

    async def pay(self, order: Order) -> None:
        """Pay an order, or give up."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The default: try once."""

    async def pay(self, order: Order) -> None:
        """Pay."""
        await order.pay()


@dataclass(frozen=True, slots=True)
class _Again:
    """Pay, and up to `times` again, each after `wait_s`, until the answer is a yes.

    `wait_s` is a number of seconds, or a `Wait` such as `Backoff()`.
    """

    times: WholeFromZero = 3
    wait_s: FromZero | Wait = 5.0

    async def pay(self, order: Order) -> None:
        """Pay, until the answer is a yes or this policy gives up."""
        await order.pay()
        for number in range(self.times):
            if order.is_paid or self._gives_up(order):
                return
            await order.wait(_seconds(self.wait_s, number, order))
            await self._prepare(order)
            await order.pay()

    def _gives_up(self, order: Order) -> bool:
        return False

    async def _prepare(self, order: Order) -> None:
        """Sign or ask anew, before the next payment, as the policy says."""


@explained
@dataclass(frozen=True, slots=True)
class SameAuthorization(_Again):
    """Send the same authorization, up to `times` again, each after `wait_s`, until a final no."""

    def _gives_up(self, order: Order) -> bool:
        return order.is_final


@explained
@dataclass(frozen=True, slots=True)
class SameThenNew(_Again):
    """As the service reports: the same authorization while it may pay, another after a final no.

    Safe if the service reports the truth. A service that has no record of the payment, and
    reports that nothing was charged, is paid twice. Up to `times` again, each after `wait_s`.
    """

    async def _prepare(self, order: Order) -> None:
        if order.is_final:
            await order.sign_again()


@explained
@dataclass(frozen=True, slots=True)
class NewAuthorization(_Again):
    """Naive: after every failure, sign another authorization for the same 402.

    Up to `times`, each after `wait_s`.
    """

    async def _prepare(self, order: Order) -> None:
        await order.sign_again()


@explained
@dataclass(frozen=True, slots=True)
class StartOver(_Again):
    """Naive: after every failure, request a new 402 and pay the new 402.

    Up to `times`, each after `wait_s`. If the answer to the payment was lost, the payer is charged
    twice, whatever the service does.
    """

    async def _prepare(self, order: Order) -> None:
        await order.ask_again()


# --- many requests: each paid on its own, or with a session's deposit -----------------


class Shopper(Tried, Protocol):
    """A payer before the next request to a service, and the purchases there so far.

    Beyond the payer's `within_s`, `wait` ends the policy by an exception; let the exception pass.
    """

    @property
    def payments(self) -> int:
        """How many payments were made here so far, deposits included."""

    @property
    def is_served(self) -> bool:
        """Whether the last request was served."""

    async def show_payment(self) -> None:
        """Repeat the request with the newest payment id, if any."""

    async def show_session(self) -> None:
        """Repeat the request with the newest session, if any."""

    async def buy(self) -> None:
        """Pay for the request, and send the request with the new payment id."""

    async def open_session(self, deposit: str, duration: int) -> None:
        """Pay a deposit, such as "0.10", for a session."""

    async def wait(self, seconds: float) -> None:
        """Let time pass."""


class Sessions(Protocol):
    """How to get one answer from a service."""

    async def fetch(self, shopper: Shopper) -> None:
        """Pay for and request one answer, or give up."""


@dataclass(frozen=True, slots=True)
class PayEach:
    """The default: pay for each request."""

    async def fetch(self, shopper: Shopper) -> None:
        """Buy one answer."""
        await shopper.buy()


@explained
@dataclass(frozen=True, slots=True)
class PayAndWait:
    """Pay for each request, and show the payment id again, up to `times`, until it is served.

    For a service that waits for confirmations; each time after `wait_s`.
    """

    times: WholeFromZero = 30
    wait_s: FromZero | Wait = 10.0

    async def fetch(self, shopper: Shopper) -> None:
        """Buy, and if that paid, repeat the request until the service serves."""
        before = shopper.payments
        await shopper.buy()
        for number in range(self.times if shopper.payments > before else 0):
            if shopper.is_served:
                return
            await shopper.wait(_seconds(self.wait_s, number, shopper))
            await shopper.show_payment()


# --- spending limits ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The price of a 402, and the amounts that the payer has signed for before, in tokens.

    `signed_since(seconds)` returns the amount signed for in the last `seconds`. Of `signed`, `paid`
    is reported as paid by answers; `unsure` is not, and has not expired.
    """

    price: Decimal
    signed: Decimal
    signed_since: Callable[[float], Decimal]
    paid: Decimal = Decimal()
    unsure: Decimal = Decimal()


class Budget(Protocol):
    """How much a payer may sign for."""

    def allows(self, bill: Bill) -> bool:
        """Return whether the price may be signed for."""


@dataclass(frozen=True, slots=True)
class NoLimit:
    """The default: sign for any price."""

    def allows(self, bill: Bill) -> bool:
        """Return True."""
        return True


@explained
@dataclass(frozen=True, slots=True)
class AtMost:
    """At most `total` tokens in all, or in any `seconds`; at most `each` for one payment.

    Amounts are text, such as "1.00". None is no limit. A deposit counts as one payment.

    counts
        Which amounts count against `total`. "signed" (the default): all that was ever signed, so
        that no more can be charged, even if answers are lost. "exposed": amounts reported as paid,
        and signed amounts that have not expired; a charge whose answer was lost stops counting when
        it expires. "paid", naive: only amounts reported as paid; a lost answer may overrun `total`.
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
            raise ValueError(f'counts: with `seconds` it is "signed", got {as_given(self.counts)}')

    def allows(self, bill: Bill) -> bool:
        """Return whether the price, and the total with it, stay within the limits."""
        if self.each is not None and bill.price > Decimal(self.each):
            return False
        if self.total is None:
            return True
        if self.seconds is not None:
            counted = bill.signed_since(self.seconds)
        elif self.counts == "signed":
            counted = bill.signed
        else:
            counted = bill.paid if self.counts == "paid" else bill.paid + bill.unsure
        return counted + bill.price <= Decimal(self.total)


def _tokens(name: str, amount: object) -> None:
    """Raise `ValueError` unless this is an amount of tokens as text, or None."""
    try:
        is_amount = amount is None or (isinstance(amount, str) and Decimal(amount) >= 0)
    except InvalidOperation:
        is_amount = False
    if not is_amount:
        raise ValueError(f'{name}: expected tokens as text, such as "1.00", got {as_given(amount)}')


# --- the choice of a service ----------------------------------------------------------


class ListedService(msgspec.Struct, frozen=True, kw_only=True):
    """A service as a buyer sees it in its list of agents (GET /api/agents).

    `price_base` is the price of a quote in base units, `pay_to` the merchant's address.
    """

    name: str
    """The service's name."""
    price_base: int
    """The price of a quote, in base units."""
    reputation: int
    pay_to: str
    """The merchant's address."""


Choose = Callable[[Sequence[ListedService]], str]
"""Chooses one of the services; returns its name."""


def cheapest(services: Sequence[ListedService]) -> str:
    """Choose the lowest price."""
    return min(services, key=lambda service: service.price_base).name


def best_reputation(services: Sequence[ListedService]) -> str:
    """Choose the highest reputation."""
    return max(services, key=lambda service: service.reputation).name


# --- all policies ---------------------------------------------------------------------


@explained
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PayerPolicy:
    """A payer's answer to failures, sessions and budget, and the way to pay and wait.

    retry
        The policy for a payment that fails or is not answered (`PayAndWait` repeats the request
        after the payment): `GiveUp()` (the default),
        `SameAuthorization(...)`, `SameThenNew(...)`, `NewAuthorization(...)`, `StartOver(...)`.
    sessions
        How to pay for many requests: `PayEach()` (the default), `PayAndWait()`.
    budget
        How much to spend: `NoLimit()` (the default), `AtMost(...)`.

    steps
        How many steps a payment takes: 2 (the default), or 1, in the request itself, as version 2
        of the x402 standard says. A deposit always takes two.
    timeout_s
        Seconds that each request waits for its answer; default None, which is 90.
    within_s
        Seconds from the first request of an order until its deadline, for all attempts together.
        After the deadline the payer neither pays nor shows the payment again, and no wait begins
        that would end later. A request sent before the deadline waits for its answer; default None,
        no deadline.

    The first three are in `x402sim.policies`, and each has one method; your own object with the
    same method works, too.

    >>> from x402sim.policies import SameAuthorization
    >>> PayerPolicy(retry=SameAuthorization(times=2))
    PayerPolicy(retry=SameAuthorization(times=2, wait_s=5.0))
    """

    retry: Retry = GiveUp()
    sessions: Sessions = PayEach()
    budget: Budget = NoLimit()
    steps: Literal[1, 2] = 2
    timeout_s: AboveZero | None = None
    within_s: AboveZero | None = None

    def __repr__(self) -> str:
        return changed(self)
