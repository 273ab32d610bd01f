"""The policies for a settlement whose answer was lost.

Clauses: 3/pending-resolved.
"""

from dataclasses import dataclass
from typing import Protocol

from x402sim.protocol.refusals import ChainFinding
from x402sim.text.arguments import FromZero, explained


class PendingPayment(Protocol):
    """A claimed payment whose outcome is not known."""

    @property
    def in_background(self) -> bool:
        """Whether no payer waits: the request is over, or the service has started again."""

    async def ask_chain(self) -> ChainFinding:
        """Ask the chain's node; the record follows what it says, and a paid payment is granted."""

    async def settle_again(self) -> ChainFinding:
        """Send it to the facilitator once more; one that is settled now is granted.

        PAID if it is settled. NOT_YET if it was refused, and UNKNOWN if the answer is lost again;
        the record stays pending then.
        """

    async def wait(self, seconds: float) -> None:
        """Let time pass; other requests for this payment id wait, too."""

    def forget(self) -> None:
        """Delete the record. The payer is told that nothing was charged."""


class LostAnswerPolicy(Protocol):
    """What to do about a payment whose settlement was not answered."""

    async def resolve(self, payment: PendingPayment) -> None:
        """Find out what became of it, or do not.

        Called in the request that lost the answer, and then again and again in the background
        while the record is pending.
        """


@dataclass(frozen=True, slots=True)
class Reconcile:
    """The default: ask the chain at once, and in the background until it says yes or never."""

    async def resolve(self, payment: PendingPayment) -> None:
        """Ask the chain."""
        await payment.ask_chain()


@dataclass(frozen=True, slots=True)
class Forget:
    """Naive: a lost answer is taken for a refusal, and the record is deleted.

    With probability p of a lost answer, a payer is charged and not served with p, and charged
    again with p if it signs another authorization.
    """

    async def resolve(self, payment: PendingPayment) -> None:
        """Delete the record."""
        payment.forget()


@dataclass(frozen=True, slots=True)
class AskOnce:
    """Half naive: ask the chain once, and forget the payment unless it says yes.

    A payer is charged and not served if its answer is lost (probability p) and the question to the
    chain fails, too: p times q. One question takes several requests to the node; q is the chance
    that at least one of them fails.
    """

    async def resolve(self, payment: PendingPayment) -> None:
        """Ask the chain; forget the payment if it is not paid."""
        if await payment.ask_chain() is not ChainFinding.PAID:
            payment.forget()


@explained
@dataclass(frozen=True, slots=True)
class SettleAgain:
    """Ask the facilitator again, up to `times`, each after `wait_s`; then do as `then` says.

    This helps if the request was lost. If the answer was lost, the nonce is used and the
    facilitator refuses: with `then=Forget()` the payer is charged and not served as often as by
    `Forget` alone.
    """

    times: int = 3
    wait_s: FromZero = 1.0
    then: LostAnswerPolicy = Reconcile()

    async def resolve(self, payment: PendingPayment) -> None:
        """Settle again until the facilitator answers."""
        for _ in range(self.times):
            await payment.wait(self.wait_s)
            match await payment.settle_again():
                case ChainFinding.PAID:
                    return
                case ChainFinding.NOT_YET | ChainFinding.NEVER:
                    break
                case ChainFinding.UNKNOWN:
                    pass
        await self.then.resolve(payment)
