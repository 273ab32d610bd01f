"""The audit at the end of a run sees what more naive policies of a service break (see `mutants`).

Without the policy the same world breaks nothing, and the shipped alternatives that are not called
naive break nothing either.
"""

from dataclasses import dataclass

import pytest

from tests.explore.case import Buy, Case, Crash, Deposit, Strike
from tests.explore.laws import Law
from tests.explore.mutants import with_policy
from tests.explore.play import play
from x402sim import Fault
from x402sim.policies import (
    AskOnce,
    ClaimAfterSettle,
    ClaimAfterVerify,
    EndedSession,
    FailToServe,
    Forget,
    PayBack,
    ServicePolicy,
    SettleAgain,
    SkipVerify,
)

LOST = Strike(fault=Fault(victim="facilitator", does="lose answer", path="/settle"))
CRASHED = Strike(fault=Fault(victim="facilitator", does="crash after", path="/settle"))
NO_LOGS = Strike(fault=Fault(victim="rpc", does="refuse", contains="eth_getLogs", times=None))
WAITS = Strike(fault=Fault(victim="facilitator", does="delay answer", path="/settle", seconds=5))
SPENT = Deposit(number=0, duration_s=60, spends=1)
TRAP = Case(steps=(LOST, Buy(number=0)))


class LessFee:
    """Refund less than the unspent balance."""

    def refund(self, session: EndedSession) -> PayBack:
        return PayBack(session.unspent_base - 5000)


@dataclass(frozen=True)
class Naive:
    """A policy, a world that shows what it breaks, and the law."""

    policy: ServicePolicy
    law: Law
    case: Case


NAIVE = [
    Naive(
        ServicePolicy(lost_answer=Forget()),
        Law.PAID_IS_SERVED,
        Case(steps=(CRASHED, Buy(number=0))),
    ),
    Naive(ServicePolicy(lost_answer=SettleAgain(then=Forget())), Law.PAID_IS_SERVED, TRAP),
    Naive(
        ServicePolicy(lost_answer=AskOnce()),
        Law.PAID_IS_SERVED,
        Case(steps=(LOST, NO_LOGS, Buy(number=0))),
    ),
    Naive(ServicePolicy(claim=ClaimAfterSettle()), Law.PAID_IS_SERVED, TRAP),
    Naive(
        ServicePolicy(claim=ClaimAfterSettle()),
        Law.PAID_IS_SERVED,
        Case(steps=(CRASHED, Buy(number=0))),
    ),
    Naive(ServicePolicy(refund=LessFee()), Law.REFUND_IS_THE_REST, Case(steps=(SPENT,))),
]
SOUND = [
    ServicePolicy(lost_answer=SettleAgain()),
    ServicePolicy(verify=SkipVerify()),
    ServicePolicy(claim=ClaimAfterVerify()),
    ServicePolicy(serve=FailToServe(0)),
]


@pytest.mark.parametrize("naive", NAIVE, ids=lambda naive: repr(naive.policy))
def test_a_naive_policy_breaks_its_law(naive: Naive) -> None:
    played = play(naive.case, with_policy(naive.policy))
    assert naive.law in played.laws, played.violations


@pytest.mark.parametrize("case", list({repr(n.case): n.case for n in NAIVE}.values()), ids=repr)
def test_the_default_holds_in_the_same_worlds(case: Case) -> None:
    assert not play(case).violations


@pytest.mark.parametrize("policy", SOUND, ids=repr)
def test_a_sound_policy_breaks_nothing(policy: ServicePolicy) -> None:
    for case in (
        TRAP,
        Case(steps=(CRASHED, Buy(number=0), Crash(at_s=40.0))),
        Case(steps=(SPENT,)),
    ):
        assert not play(case, with_policy(policy)).violations
