"""How a payer pays for many requests: each on its own, or with a session's deposit."""

from dataclasses import dataclass
from typing import Protocol

from x402sim.text.arguments import FromZero, WholeFromZero, explained


class Shopper(Protocol):
    """A payer that wants one more answer of a service, and what it has bought there already."""

    @property
    def payments(self) -> int:
        """How many payments were made here so far, deposits included."""

    @property
    def is_served(self) -> bool:
        """Whether the last request was served."""

    async def show_payment(self) -> None:
        """Request it with the newest payment id, if there is one."""

    async def show_session(self) -> None:
        """Request it with the newest session, if there is one."""

    async def buy(self) -> None:
        """Pay for the request, and send it with that payment id."""

    async def open_session(self, deposit: str, duration: int) -> None:
        """Pay a deposit, such as "0.10", for a session."""

    async def wait(self, seconds: float) -> None:
        """Let time pass."""


class Sessions(Protocol):
    """How to get one answer."""

    async def fetch(self, shopper: Shopper) -> None:
        """Get it, or give up."""


@dataclass(frozen=True, slots=True)
class PayEach:
    """The default: pay for each request."""

    async def fetch(self, shopper: Shopper) -> None:
        """Buy it."""
        await shopper.buy()


@explained
@dataclass(frozen=True, slots=True)
class PayAndWait:
    """Pay for each request, and show the payment id again, up to `times`, until it is served.

    For a service that waits for confirmations; each time after `wait_s`.
    """

    times: WholeFromZero = 30
    wait_s: FromZero = 10.0

    async def fetch(self, shopper: Shopper) -> None:
        """Buy it, and ask for it until it is served; if nothing was paid, there is no use."""
        before = shopper.payments
        await shopper.buy()
        for _ in range(self.times if shopper.payments > before else 0):
            if shopper.is_served:
                return
            await shopper.wait(self.wait_s)
            await shopper.show_payment()


@explained
@dataclass(frozen=True, slots=True)
class OpenSessions:
    """Open a session of `deposit` tokens for `duration` seconds, spend it, then open the next."""

    deposit: str = "0.10"
    duration: int = 3600

    async def fetch(self, shopper: Shopper) -> None:
        """Spend the session; open another if that is not served."""
        await shopper.show_session()
        if not shopper.is_served:
            await shopper.open_session(self.deposit, self.duration)
            await shopper.show_session()
