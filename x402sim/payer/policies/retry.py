"""What a payer does about a payment that was not made, or may have been.

It cannot tell a lost request from a lost answer. The token accepts one authorization once, so to
send the same one again is safe; another authorization may be another charge. In two steps, only the
payment is repeated: the request that shows what was paid is for `PayAndWait` to repeat. In one
step they are the same request.
"""

from dataclasses import dataclass
from typing import Protocol

from x402sim.text.arguments import FromZero, WholeFromZero, explained


class SeenBlock(Protocol):
    """A block as a payer sees it: its number, and its time in Unix seconds."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def time_s(self) -> int:
        """Its time."""


class Order(Protocol):
    """One order: a 402 that is to be paid, and what came of it so far."""

    @property
    def is_paid(self) -> bool:
        """Whether the last answer says that the payment is made."""

    @property
    def is_final(self) -> bool:
        """Whether the last answer says that this authorization never pays (`final`)."""

    async def pay(self) -> None:
        """Send the authorization to the service; the first time, sign it."""

    async def sign_again(self) -> None:
        """Sign another authorization for the same 402, and send that from now on."""

    async def ask_again(self) -> None:
        """Ask for a new 402, and pay that from now on."""

    async def wait(self, seconds: float) -> None:
        """Let time pass."""

    async def newest_block(self) -> SeenBlock:
        """Return the chain's newest block."""


class Retry(Protocol):
    """How often an order is paid, and with which authorization."""

    async def pay(self, order: Order) -> None:
        """Pay an order, or give it up."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The default: try once."""

    async def pay(self, order: Order) -> None:
        """Pay."""
        await order.pay()


@dataclass(frozen=True, slots=True)
class _Again:
    """Pay, and up to `times` again, each after `wait_s`, until the answer is a yes."""

    times: WholeFromZero = 3
    wait_s: FromZero = 5.0

    async def pay(self, order: Order) -> None:
        """Pay, until the answer is a yes or this policy gives up."""
        await order.pay()
        for _ in range(self.times):
            if order.is_paid or self._gives_up(order):
                return
            await order.wait(self.wait_s)
            await self._prepare(order)
            await order.pay()

    def _gives_up(self, order: Order) -> bool:
        return False

    async def _prepare(self, order: Order) -> None:
        """Do what this policy does before it pays again."""


@explained
@dataclass(frozen=True, slots=True)
class SameAuthorization(_Again):
    """Send the same one again, up to `times`, each after `wait_s`, until a final refusal."""

    def _gives_up(self, order: Order) -> bool:
        return order.is_final


@explained
@dataclass(frozen=True, slots=True)
class SameThenNew(_Again):
    """As the service says: the same one while it may still pay, another once it never will.

    Safe with a service that tells the truth. One that has forgotten a payment, and says that
    nothing was charged, is paid twice. Up to `times` again, each after `wait_s`.
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
    """Naive: after every failure, ask for a new 402 and pay that.

    Up to `times`, each after `wait_s`. A lost answer to the payer is a second charge, whatever the
    service does.
    """

    async def _prepare(self, order: Order) -> None:
        await order.ask_again()
