"""What does a payer do about a payment that was not made, or may have been?

It cannot tell a lost request from a lost answer. The token accepts one authorization once, so to
send the same one again is safe; another authorization may be another charge.
"""

from dataclasses import dataclass
from typing import Protocol


class Order(Protocol):
    """One order: a 402 that is to be paid, and what came of it so far."""

    @property
    def is_paid(self) -> bool:
        """Whether the last answer says that the payment is made."""

    @property
    def is_over(self) -> bool:
        """Whether the last answer says that this authorization never pays (`final`)."""

    async def pay(self) -> None:
        """Send the authorization to the service; the first time, sign it."""

    async def sign_again(self) -> None:
        """Sign another authorization for the same 402, and send that from now on."""

    async def ask_again(self) -> None:
        """Ask for a new 402, and pay that from now on."""

    async def wait(self, seconds: float) -> None:
        """Let time pass."""


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
class SameAuthorization:
    """Send the same authorization again, up to `times`, each after `wait_s`, unless it is over."""

    times: int = 3
    wait_s: float = 5.0

    async def pay(self, order: Order) -> None:
        """Pay, until the answer is a yes or final."""
        await order.pay()
        for _ in range(self.times):
            if order.is_paid or order.is_over:
                return
            await order.wait(self.wait_s)
            await order.pay()


@dataclass(frozen=True, slots=True)
class SameThenNew:
    """As the service says: the same one while it may still pay, another once it never will.

    Safe with a service that tells the truth. One that has forgotten a payment, and says that
    nothing was charged, is paid twice.
    """

    times: int = 3
    wait_s: float = 5.0

    async def pay(self, order: Order) -> None:
        """Pay, until the answer is a yes; sign again after a final no."""
        await order.pay()
        for _ in range(self.times):
            if order.is_paid:
                return
            await order.wait(self.wait_s)
            if order.is_over:
                await order.sign_again()
            await order.pay()


@dataclass(frozen=True, slots=True)
class NewAuthorization:
    """Naive: after every failure, sign another authorization for the same 402."""

    times: int = 3
    wait_s: float = 5.0

    async def pay(self, order: Order) -> None:
        """Pay, until the answer is a yes."""
        await order.pay()
        for _ in range(self.times):
            if order.is_paid:
                return
            await order.wait(self.wait_s)
            await order.sign_again()
            await order.pay()


@dataclass(frozen=True, slots=True)
class StartOver:
    """Naive: after every failure, ask for a new 402 and pay that.

    A lost answer to the payer is a second charge, whatever the service does.
    """

    times: int = 3
    wait_s: float = 5.0

    async def pay(self, order: Order) -> None:
        """Pay, until the answer is a yes."""
        await order.pay()
        for _ in range(self.times):
            if order.is_paid:
                return
            await order.wait(self.wait_s)
            await order.ask_again()
            await order.pay()
