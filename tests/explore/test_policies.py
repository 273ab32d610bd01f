"""The audit at the end of a run sees what more naive policies of a service break (see `mutants`).

Without the policy the same world breaks nothing, and the shipped alternatives that are not called
naive break nothing either.
"""

import pytest

from tests.explore.case import Buy, Case, Crash, Deposit, Strike
from tests.explore.laws import Law
from tests.explore.mutants import LOST, with_policy
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

CRASHED = Strike(fault=Fault(victim="facilitator", does="crash after", path="/settle"))
NO_LOGS = Strike(fault=Fault(victim="rpc", does="refuse", contains="eth_getLogs", times=None))
TRAP = Case(steps=(LOST, Buy(number=0)))


class LessFee:
    """Refund less than the unspent balance."""

    def refund(self, session: EndedSession) -> PayBack:
        return PayBack(session.unspent_base - 5000)


KILLED = Case(steps=(CRASHED, Buy(number=0), Crash(at_s=40.0)))
BLIND = Case(steps=(LOST, NO_LOGS, Buy(number=0)))
SPENT = Case(steps=(Deposit(number=0, duration_s=60, spends=1),))

NAIVE = [
    (ServicePolicy(lost_answer=Forget()), Law.PAID_IS_SERVED, KILLED),
    (ServicePolicy(lost_answer=SettleAgain(then=Forget())), Law.PAID_IS_SERVED, TRAP),
    (ServicePolicy(lost_answer=AskOnce()), Law.PAID_IS_SERVED, BLIND),
    (ServicePolicy(claim=ClaimAfterSettle()), Law.PAID_IS_SERVED, TRAP),
    (ServicePolicy(claim=ClaimAfterSettle()), Law.PAID_IS_SERVED, KILLED),
    (ServicePolicy(refund=LessFee()), Law.REFUND_IS_THE_REST, SPENT),
]
SOUND = [
    ServicePolicy(lost_answer=SettleAgain()),
    ServicePolicy(verify=SkipVerify()),
    ServicePolicy(claim=ClaimAfterVerify()),
    ServicePolicy(serve=FailToServe(0)),
]


@pytest.mark.parametrize(("policy", "law", "case"), NAIVE)
def test_a_naive_policy_breaks_its_law(policy: ServicePolicy, law: Law, case: Case) -> None:
    played = play(case, with_policy(policy))
    assert law in played.laws, played.violations


@pytest.mark.parametrize("policy", [ServicePolicy(), *SOUND], ids=repr)
def test_a_sound_policy_breaks_nothing(policy: ServicePolicy) -> None:
    for case in (TRAP, KILLED, SPENT, *([BLIND] if policy == ServicePolicy() else [])):
        assert not play(case, with_policy(policy)).violations
