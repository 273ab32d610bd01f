"""Does a service verify a payment before it settles it, and when does it write its claim?

Clauses: 4.1/order, 4.1/verify-signature.
"""

from dataclasses import dataclass
from typing import Protocol

from x402sim.service.policies.bounds import require_amount, require_share


class UnverifiedPayment(Protocol):
    """A payment that is about to be settled."""

    @property
    def amount_base(self) -> int:
        """The amount, in base units."""

    async def ask_facilitator(self) -> None:
        """Have the facilitator verify it; raises what ends the attempt if it does not."""

    def draw(self, name: str) -> float:
        """Return a number in [0, 1) that depends on the world's seed, the payment and `name`."""


class Verify(Protocol):
    """Whether to have the facilitator verify a payment before it settles it."""

    async def verify(self, payment: UnverifiedPayment) -> None:
        """Verify the payment, or do not."""


@dataclass(frozen=True, slots=True)
class VerifyFirst:
    """The default: each payment is verified before it is settled (4.1/order)."""

    async def verify(self, payment: UnverifiedPayment) -> None:
        """Ask the facilitator."""
        await payment.ask_facilitator()


@dataclass(frozen=True, slots=True)
class SkipVerify:
    """Settle at once: one call fewer, and a bad signature is refused only by the settlement."""

    async def verify(self, payment: UnverifiedPayment) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class VerifySome:
    """Verify a payment with a probability."""

    probability: float

    def __post_init__(self) -> None:
        require_share("probability", self.probability)

    async def verify(self, payment: UnverifiedPayment) -> None:
        """Ask the facilitator, if the payment's number is below the probability."""
        if payment.draw("verify") < self.probability:
            await payment.ask_facilitator()


@dataclass(frozen=True, slots=True)
class VerifyFrom:
    """Verify payments of at least `least_base` base units."""

    least_base: int

    def __post_init__(self) -> None:
        require_amount("least_base", self.least_base)

    async def verify(self, payment: UnverifiedPayment) -> None:
        """Ask the facilitator, if the amount is large enough."""
        if payment.amount_base >= self.least_base:
            await payment.ask_facilitator()


# --- when the claim is written -----------------------------------------------------------


class Steps(Protocol):
    """The steps of one settlement; each raises what ends the attempt."""

    async def check(self, *, ask_chain: bool = True) -> bool:
        """Refuse a payment id or an authorization that is used; False if it is settled already.

        Without `ask_chain` only the service's own records are asked.
        """

    def record(self) -> object:
        """Write the claim: from now on a crash or a lost answer loses nothing."""

    async def verify(self) -> None:
        """Steps 2 and 3, as the policy `verify` says."""

    async def settle(self) -> None:
        """Step 4: have the facilitator settle."""


class Claim(Protocol):
    """In which order a payment is checked, recorded, verified and settled."""

    async def settle(self, steps: Steps) -> None:
        """Take the steps. Access is granted afterwards, if the payment was settled."""


@dataclass(frozen=True, slots=True)
class ClaimFirst:
    """The default: the claim is written before anybody is asked to move money."""

    async def settle(self, steps: Steps) -> None:
        """Check, record, verify, settle."""
        if await steps.check():
            steps.record()
            await steps.verify()
            await steps.settle()


@dataclass(frozen=True, slots=True)
class ClaimAfterVerify:
    """Write the claim after the verification: a bad header leaves no record."""

    async def settle(self, steps: Steps) -> None:
        """Check, verify, record, settle."""
        if await steps.check():
            await steps.verify()
            steps.record()
            await steps.settle()


@dataclass(frozen=True, slots=True)
class ClaimAfterSettle:
    """Naive: nothing is written before the facilitator has said that the money moved.

    A lost answer or a crash before that leaves no record: there is nothing that the policy
    `lost_answer` could look up, and the payer is charged and not served.
    """

    async def settle(self, steps: Steps) -> None:
        """Check, verify, settle, record."""
        if await steps.check():
            await steps.verify()
            await steps.settle()
            steps.record()


@dataclass(frozen=True, slots=True)
class ClaimUnseen:
    """Naive: take it that the authorization is unused, without asking the chain.

    One that has paid at another service of the same merchant can pay here again.
    """

    async def settle(self, steps: Steps) -> None:
        """Check the own records only, record, verify, settle."""
        if await steps.check(ask_chain=False):
            steps.record()
            await steps.verify()
            await steps.settle()
