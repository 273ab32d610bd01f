"""What was not judged in full is said, by id, and --require can demand that refunds were."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.mutants.rows import MUTANTS
from tests.suite.cases import case
from x402sim import Settings, World
from x402sim.policies import NeverRefund, ServicePolicy
from x402sim.report.results import Outcome, Result
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.left_open import lacking, not_in_full
from x402sim.suite.service.local import judge
from x402sim.suite.service.options import Options
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import SessionsEndpoint, Target
from x402sim.suite.verdict import NotReady, Skipped

REFUNDS = [case for case in all_checks() if case.id == "spec/3/expiry-refund"]


def judged(refund_within_s: int, **options: Any) -> Result:
    """Judge the refunds of a service that refunds nothing, whose clock nobody turns."""
    never = Settings(policy=ServicePolicy(refund=NeverRefund()))
    sessions = SessionsEndpoint(duration_unit_s=1, refund_within_s=refund_within_s)
    (result,) = judge(
        World(seed=1, service=never),
        target=Target(sessions=sessions), checks=REFUNDS, has_clock=False, patient=False,
    )  # fmt: skip
    return result


def judged_apart() -> Result:
    """Judge an id of which a case that is not decisive leaves open what it is about."""
    cases = [case("2.1/amount"), case("2.1/amount", ends=Skipped("not known"))]
    (result,) = judge(World(seed=1), checks=cases)
    return result


def test_a_must_that_was_judged_in_part_is_named() -> None:
    """One without the decisive case, such as that of a refund, has not passed."""
    result = judged(0)
    assert (result.outcome, result.in_part) == (Outcome.SKIPPED, "3 of 7 cases")
    assert "set sessions.refund_within_s, and give --patient" in result.reason
    (said,) = not_in_full([judged_apart()])
    assert said == "not judged in full (1 of 2 cases): spec/2.1/amount, a MUST: not known"
    assert lacking([result], ()) == lacking([result], ("expiry",)) == []
    for lacks in lacking([result], ("refunds",)):
        assert lacks.startswith("--require refunds: spec/3/expiry-refund was not judged in full")


@pytest.mark.parametrize(
    ("defect", "outcome", "lacks"),
    [("served-after-expiry", Outcome.FAILED, 0), ("never-expires", Outcome.INCONCLUSIVE, 1)],
)
def test_an_end_that_the_service_tells_is_judged_without_the_unit(
    defect: str, outcome: Outcome, lacks: int
) -> None:
    """One that is too far away is not waited for, and --require expiry says so."""
    world = MUTANTS[defect].world(World(seed=1))
    (result,) = judge(world, target=Target(), checks=REFUNDS, has_clock=False, patient=False)
    assert (result.outcome, len(lacking([result], ("expiry",)))) == (outcome, lacks)


def test_with_the_key_a_refund_that_never_comes_fails() -> None:
    result = judged(10)
    assert result.outcome is Outcome.FAILED
    assert result.exchange.startswith("POST http"), "it is the payment of the deposit"
    assert "/api/pay\n" in result.exchange
    assert '"paymentHeader":{"from":' in result.exchange
    assert not_in_full([result]) == lacking([result], ("refunds",)) == []


@pytest.mark.parametrize(
    ("refund_within_s", "patient", "has_world", "said"),
    [
        (0, False, True, "set sessions.refund_within_s in the target file, or --patient"),
        (10, False, False, "give --world"),
        (10, False, True, None),
        (0, True, True, None),
    ],
)
def test_refunds_can_be_required(
    refund_within_s: int, patient: bool, has_world: bool, said: str | None
) -> None:
    target = Target(sessions=SessionsEndpoint(refund_within_s=refund_within_s))
    http: Any = httpx.AsyncClient(base_url="http://127.0.0.1:9")
    options = Options(target=target, patient=patient, require=("refunds",))
    setting = Setting(options=options, http=http, control=http if has_world else None)
    with pytest.raises(NotReady) as raised:
        asyncio.run(examine(setting, REFUNDS))
    if said is None:
        assert "no answer from" in str(raised.value), "nothing is lacking; nobody is there"
    else:
        assert "--require refunds: this run lacks" in str(raised.value)
        assert said in str(raised.value)
