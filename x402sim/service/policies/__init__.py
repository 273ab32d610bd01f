"""The policies of a service: one small object for each choice that the specification leaves.

`ServicePolicy` holds six of them: lost answers, verification, the claim, refunds, what is served,
and what caches are told. Each is an object with one method, and replaces one step of the service;
an object of your own with that method works, too. The defaults keep every law; those called naive
break one, to show what that costs.
"""

from dataclasses import dataclass

from x402sim.service.policies.lost_answer import LostAnswerPolicy, Reconcile
from x402sim.service.policies.serving import (
    CachePolicy,
    NoStore,
    RefundAtExpiry,
    RefundPolicy,
    ServePolicy,
    ServeSettled,
)
from x402sim.service.policies.settling import ClaimFirst, ClaimPolicy, VerifyFirst, VerifyPolicy
from x402sim.text.arguments import explained
from x402sim.text.printable import changed


@explained
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ServicePolicy:
    """What a service does about lost answers, verification, its claim, refunds and requests.

    lost_answer
        What to do about a settlement without an answer: `Reconcile()` (the default), `AskOnce()`,
        `SettleAgain(...)`, `Forget()`.
    verify
        Which payments to verify before settling: `VerifyFirst()` (the default), `SkipVerify()`.
    claim
        When to write the payment's claim: `ClaimFirst()` (the default), `ClaimAfterVerify()`,
        `ClaimAfterSettle()`, `NoClaim()`.
    refund
        What to pay back of a session: `RefundAtExpiry()` (the default), `NeverRefund()`.
    serve
        Which paid requests to serve: `ServeSettled()` (the default), `ServeConfirmed(...)`,
        `ServeBeforeSettle()`, `FailToServe(...)`.
    cache
        What to tell caches of a protected content: `NoStore()` (the default), or
        `CacheControl("public, max-age=60")` and the like.

    All are in `x402sim.policies`, and each has one method; an object of your own with that method
    works, too.

    >>> from x402sim.policies import Forget
    >>> ServicePolicy(lost_answer=Forget())
    ServicePolicy(lost_answer=Forget())
    >>> class VerifyDear:
    ...     def verifies(self, amount_base):
    ...         return amount_base >= 20_000
    >>> ServicePolicy(verify=VerifyDear())
    ServicePolicy(verify=VerifyDear(...))
    """

    lost_answer: LostAnswerPolicy = Reconcile()
    verify: VerifyPolicy = VerifyFirst()
    claim: ClaimPolicy = ClaimFirst()
    refund: RefundPolicy = RefundAtExpiry()
    serve: ServePolicy = ServeSettled()
    cache: CachePolicy = NoStore()

    @property
    def reserves(self) -> bool:
        """Whether `claim` ever reserves an authorization for one payment id."""
        return getattr(self.claim, "reserves", True)

    @property
    def serves_first(self) -> bool:
        """Whether `serve` serves a payment in one step before it is settled."""
        return getattr(self.serve, "before_settlement", False)

    @property
    def counts_confirmations(self) -> bool:
        """Whether `serve` wants to know confirmations; for any other, the chain is not asked."""
        return getattr(self.serve, "counts_confirmations", False)

    def __repr__(self) -> str:
        return changed(self)
