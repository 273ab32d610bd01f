"""What does a service do where the specification leaves it a choice? One small object a choice.

`ServicePolicy` holds five of them: lost answers, verification, the claim, refunds, and what is
served. Each has one method, which the service calls at one place, and a user's own object with
that method does as well. The defaults keep every law; those called naive break one, to show what
that costs.
"""

import msgspec

from x402sim.service.policies.lost_answer import LostAnswer, Reconcile
from x402sim.service.policies.serving import Refund, RefundAtExpiry, Serve, ServeSettled
from x402sim.service.policies.settling import Claim, ClaimFirst, Verify, VerifyFirst
from x402sim.text.printable import described


class ServicePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a service does about lost answers, verification, its claim, refunds and requests.

    lost_answer
        What to do about a settlement without an answer: `Reconcile()` (the default),
        `ReconcileLater()`, `AskOnce()`, `SettleAgain(...)`, `Forget()`.
    verify
        Which payments to verify before settling: `VerifyFirst()` (the default), `VerifySome(...)`,
        `VerifyFrom(...)`, `SkipVerify()`.
    claim
        When to write the payment's claim: `ClaimFirst()` (the default), `ClaimAfterVerify()`,
        `ClaimAfterSettle()`, `ClaimUnseen()`.
    refund
        What to pay back of a session: `RefundAtExpiry()` (the default), `RefundLater(...)`,
        `RefundLessFee(...)`, `NeverRefund()`.
    serve
        Which paid requests to serve: `ServeSettled()` (the default), `ServeIndexed()`,
        `ServeBeforeSettle()`, `FailToServe(...)`.

    All are in `x402sim.policies`, and each has one method; an object of your own with that method
    does as well.

    >>> from x402sim.policies import Forget
    >>> ServicePolicy(lost_answer=Forget())
    ServicePolicy(lost_answer=Forget())
    """

    lost_answer: LostAnswer = Reconcile()
    verify: Verify = VerifyFirst()
    claim: Claim = ClaimFirst()
    refund: Refund = RefundAtExpiry()
    serve: Serve = ServeSettled()

    def __post_init__(self) -> None:
        for name, method in _METHODS.items():
            given = getattr(self, name)
            if isinstance(given, type) or not callable(getattr(given, method, None)):
                raise ValueError(
                    f"{name}: expected an object with the method {method!r}, such as "
                    f"{_DEFAULTS[name]!r}, got {described(given)}"
                )

    def __repr__(self) -> str:
        changed = (
            f"{name}={described(getattr(self, name))}"
            for name, default in _DEFAULTS.items()
            if getattr(self, name) != default
        )
        return f"ServicePolicy({', '.join(changed)})"


_METHODS = {
    "lost_answer": "resolve",
    "verify": "verify",
    "claim": "settle",
    "refund": "refund",
    "serve": "serves",
}
_DEFAULTS = {each.name: each.default for each in msgspec.structs.fields(ServicePolicy)}
