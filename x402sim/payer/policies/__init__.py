"""Policies: what a payer does where it has a choice, one small object a choice.

`PayerPolicy` holds three of them: what to do about a payment that was not made, how to pay for
many requests, and what may be spent. Each has one method, which the payer calls at one place, and
a user's own object with that method does as well. The defaults are a payer that tries once, in two
steps.
"""

from dataclasses import dataclass
from typing import Literal

from x402sim.payer.policies.budget import Budget, NoLimit
from x402sim.payer.policies.retry import GiveUp, Retry
from x402sim.payer.policies.sessions import PayEach, Sessions
from x402sim.text.arguments import AboveZero, explained
from x402sim.text.printable import changed


@explained
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PayerPolicy:
    """What a payer does about failures, sessions and its budget, and how it pays and waits.

    retry
        What to do if a payment fails or is not answered (`PayAndWait` repeats the request that
        comes after the payment): `GiveUp()` (the default),
        `SameAuthorization(...)`, `SameThenNew(...)`, `NewAuthorization(...)`, `StartOver(...)`.
    sessions
        How to pay for many requests: `PayEach()` (the default), `PayAndWait()`,
        `OpenSessions(...)`.
    budget
        What may be spent: `NoLimit()` (the default), `AtMost(...)`.

    steps
        How many steps a payment takes: 2 (the default), or 1, in the request itself, as version 2
        of the x402 standard says. A deposit always takes two.
    timeout_s
        Seconds that each request waits for its answer; default None, which is 90.

    The first three are in `x402sim.policies`, and each has one method; an object of your own with
    that method does as well.

    >>> from x402sim.policies import SameAuthorization
    >>> PayerPolicy(retry=SameAuthorization(times=2))
    PayerPolicy(retry=SameAuthorization(times=2, wait_s=5.0))
    """

    retry: Retry = GiveUp()
    sessions: Sessions = PayEach()
    budget: Budget = NoLimit()
    steps: Literal[1, 2] = 2
    timeout_s: AboveZero | None = None

    def __repr__(self) -> str:
        return changed(self)
