"""The audit at the end of a run sees what each naive policy of a service breaks.

Without the policy the same world breaks nothing, and the shipped alternatives that are not called
naive break nothing either.
"""

from dataclasses import dataclass, replace

import pytest

from x402sim import Fault
from x402sim.explore.audit import Law
from x402sim.explore.case import Again, Buy, Case, Crash, Deposit, Strike
from x402sim.explore.play import play
from x402sim.policies import (
    AskOnce,
    ClaimAfterSettle,
    ClaimAfterVerify,
    ClaimUnseen,
    FailToServe,
    Forget,
    NeverRefund,
    ReconcileLater,
    RefundLater,
    RefundLessFee,
    ServeBeforeSettle,
    ServeIndexed,
    ServicePolicy,
    SettleAgain,
    SkipVerify,
    VerifyFrom,
    VerifySome,
)
from x402sim.world.assembly.hooks import Hooks

LOST = Strike(fault=Fault(victim="facilitator", does="lose answer", path="/settle"))
REFUSED = Strike(fault=Fault(victim="facilitator", does="lose request", path="/settle", times=None))
CRASHED = Strike(fault=Fault(victim="facilitator", does="crash after", path="/settle"))
NO_LOGS = Strike(fault=Fault(victim="rpc", does="refuse", contains="eth_getLogs", times=None))
WAITS = Strike(fault=Fault(victim="facilitator", does="delay answer", path="/settle", seconds=5))
SPENT = Deposit(number=0, duration_s=60, spends=1)
TRAP = Case(steps=(LOST, Buy(number=0)))


def with_policy(policy: ServicePolicy) -> Hooks:
    return Hooks(
        setup=lambda setup: replace(setup, settings=replace(setup.settings, policy=policy))
    )


@dataclass(frozen=True)
class Naive:
    """A policy, a world that shows what it breaks, and the law."""

    policy: ServicePolicy
    law: Law
    case: Case


NAIVE = [
    Naive(ServicePolicy(lost_answer=Forget()), Law.PAID_IS_SERVED, TRAP),
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
    Naive(
        ServicePolicy(claim=ClaimUnseen()),
        Law.ONE_TRANSFER_PAYS_ONCE,
        Case(services=2, steps=(Buy(number=0), Again(at_s=30.0, of=0, service="service 2"))),
    ),
    Naive(ServicePolicy(refund=NeverRefund()), Law.REFUND_ARRIVES_ONCE, Case(steps=(SPENT,))),
    Naive(ServicePolicy(refund=RefundLessFee(5000)), Law.REFUND_ARRIVES_ONCE, Case(steps=(SPENT,))),
    Naive(
        ServicePolicy(serve=ServeBeforeSettle()),
        Law.DURING_THE_RUN,
        Case(steps=(REFUSED, Buy(number=0))),
    ),
    Naive(ServicePolicy(serve=FailToServe(1)), Law.RECEIPT_STAYS, Case(steps=(Buy(number=0),))),
]
SOUND = [
    ServicePolicy(lost_answer=ReconcileLater()),
    ServicePolicy(lost_answer=SettleAgain()),
    ServicePolicy(verify=SkipVerify()),
    ServicePolicy(verify=VerifySome(0.5)),
    ServicePolicy(verify=VerifyFrom(20_000)),
    ServicePolicy(claim=ClaimAfterVerify()),
    ServicePolicy(refund=RefundLater(120)),
    ServicePolicy(serve=ServeIndexed()),
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
