"""Policies: what a payer does where it has a choice, one small object a choice.

`PayerPolicy` holds three of them: what to do about a payment that was not made, how to pay for
many requests, and what may be spent. Each has one method, which the payer calls at one place, and
a user's own object with that method does as well. The defaults are a payer that tries once.
"""

import msgspec

from x402sim.payer.policies.budget import Budget, NoLimit
from x402sim.payer.policies.retry import GiveUp, Retry
from x402sim.payer.policies.sessions import PayEach, Sessions
from x402sim.text.printable import described


class PayerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a payer does about failures, sessions and its budget.

    retry
        What to do about a payment that was not made: `GiveUp()` (the default),
        `SameAuthorization(...)`, `SameThenNew(...)`, `NewAuthorization(...)`, `StartOver(...)`.
    sessions
        How to pay for many requests: `PayEach()` (the default), `ReusePayment()`,
        `OpenSessions(...)`, `SessionAfter(...)`.
    budget
        What may be spent: `NoLimit()` (the default), `AtMost(...)`, `AtMostEach(...)`,
        `AtMostPer(...)`.

    All are in `x402sim.policies`, and each has one method; an object of your own with that method
    does as well.

    >>> from x402sim.policies import SameAuthorization
    >>> PayerPolicy(retry=SameAuthorization(times=2))
    PayerPolicy(retry=SameAuthorization(times=2, wait_s=5.0))
    """

    retry: Retry = GiveUp()
    sessions: Sessions = PayEach()
    budget: Budget = NoLimit()

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
        return f"PayerPolicy({', '.join(changed)})"


_METHODS = {"retry": "pay", "sessions": "fetch", "budget": "allows"}
_DEFAULTS = {each.name: each.default for each in msgspec.structs.fields(PayerPolicy)}
