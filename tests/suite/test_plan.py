"""The plan of a run, and its pace: what a run costs at most, and how long it waits."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.mutants.changes import setting
from tests.mutants.judging import quiet
from tests.suite.costs import FILE, counted
from tests.suite.deployment import Deployment
from tests.suite.gateway import Gateway, running
from x402sim import Settings, World
from x402sim.spec.needs import Need
from x402sim.story.stages import in_process
from x402sim.suite.options import flags_of
from x402sim.suite.report.results import Outcome
from x402sim.suite.service.case import PATIENCE_S, ServiceCase
from x402sim.suite.service.engine import all_checks, run, run_case
from x402sim.suite.service.options import Options
from x402sim.suite.service.plan import Cost, Estimate, cost_base, costs, make_plan
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.sending import reach, requested_wait_s
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.subject import parse
from x402sim.suite.service.target import Indexer, SessionsEndpoint, Target
from x402sim.world.loop import run_virtual

PRICE = 10_000
BUDGET = next(flag.default for flag in flags_of(Options) if flag.name == "budget")


@pytest.mark.waits
@pytest.mark.thorough
def test_no_case_signs_for_more_than_the_plan_says() -> None:
    deployment = Deployment()
    key = deployment.key

    async def main() -> tuple[int, int, list[str], int]:
        options = parse(deployment.url, payer_key=key, budget="50")
        checks = [case for case in all_checks() if case.pays or case.deposits != "0"]
        wrong = []
        async with reach(options) as setting:
            plan = await examine(setting, checks)
            for case in checks:
                before = setting.signed_base
                await run_case(setting, case)
                signed = setting.signed_base - before
                controls = PRICE + 2 * PRICE  # paid by the first case with the control
                if signed > cost_base(setting, case, PRICE) + controls * bool(case.control):
                    wrong.append(f"{case.name}: {signed}")
            return setting.signed_base, plan.signs_base, wrong, plan.needs_base

    try:
        signed, planned, wrong, needed = asyncio.run(main())
    finally:
        deployment.close()
    assert wrong == []
    assert 0 < signed <= planned == needed
    assert needed <= float(BUDGET) * 1_000_000, "the default budget fits the plan"


WITH_A_KEY = {
    "spec/5/resource-binding:a_list_of_agents_does_not_open_the_quote",
    "spec/5/session-debit:what_it_cannot_pay_for_costs_nothing",
}
"""They run only for agents that cost something, or for a second path that costs more than the first."""


def test_the_costs_are_those_of_the_checks_there_are() -> None:
    checks = all_checks()
    measured = costs(FILE)
    assert set(measured) <= {case.name for case in checks}, "run python -m tests.renew --only check"
    rare = {Need.CLOCK, Need.RESTART, Need.RECORD, Need.SESSION_VIEW}
    usual = [case for case in checks if not case.waits and rare.isdisjoint(case.needs)]
    left = {case.name for case in usual} - set(measured) - WITH_A_KEY
    assert not left, "run python -m tests.renew --only check"
    assert sum(cost.requests for cost in measured.values()) < 2200, "a run is a burden"


@pytest.mark.thorough
def test_the_costs_are_counted_and_not_measured() -> None:
    assert FILE.read_text("utf-8") == counted(), "run python -m tests.renew --only check"


PAYER = "0x" + "01" * 32


def planned(
    checks: list[ServiceCase],
    *,
    measured: dict[str, Cost] | None = None,
    price_base: int = PRICE,
    **options: Any,
) -> Estimate:
    async def main() -> Estimate:
        async with reach(parse("http://127.0.0.1:9", **options)) as setting:
            return make_plan(
                setting, checks, measured or {}, price_base=price_base, round_trip_s=0.001
            )

    return asyncio.run(main())


def test_what_is_left_out_is_not_must_and_not_cheap() -> None:
    checks = all_checks()
    plan = planned(checks, payer_key=PAYER, budget="0.50")
    dear = planned(checks, payer_key=PAYER, budget="0.50", price_base=10**6)
    free = planned(checks, payer_key=PAYER, budget="0.00")
    levels = {case.name: case.level for case in checks}
    assert plan.signs_base <= 500_000 < plan.needs_base
    assert "give --budget" in next(iter(plan.left_out.values()))
    assert any(levels[name] != "MUST" for name in plan.left_out)
    assert dear.needs_base > 50 * plan.needs_base
    assert dear.signs_base <= 500_000 or not dear.payments
    assert free.payments == 0
    assert free.runnable_ids > 20, "what costs nothing is checked all the same"


@pytest.mark.parametrize("budget", ["0.00", "0.01", "0.06", "1.00", "3.00"])
def test_the_plan_adds_up_and_fits_the_budget(budget: str) -> None:
    checks, price_base = all_checks(), 12_345
    plan = planned(checks, payer_key=PAYER, budget=budget, price_base=price_base)
    assert plan.signs_base == plan.payments * price_base + plan.deposits_base
    assert plan.signs_base <= round(float(budget) * 1_000_000)
    taken = {case.name for case in checks} - set(plan.left_out)
    assert not plan.payments or any(case.pays for case in checks if case.name in taken)


def test_what_waits_does_so_beside_the_others_and_a_first_request_is_no_measure() -> None:
    checks = [case for case in all_checks() if case.waits and Need.CLOCK not in case.needs]
    measured = {case.name: Cost(1, 20.0) for case in checks}
    plan = planned(checks, measured=measured, payer_key=PAYER)
    assert 10 < plan.seconds <= 2 * PATIENCE_S, "the longest waits, and not the sum of all"


def test_what_begins_to_wait_when_the_rest_is_over_comes_after_it() -> None:
    checks = all_checks()
    (late,) = [case for case in checks if case.name.endswith(":a_session_in_use_ends_too")]
    working = [case for case in checks if not case.needs and not case.waits][:5]
    measured = {case.name: Cost(0, 7.0) for case in working}
    alone, both = (
        planned(some, measured=measured, payer_key=PAYER) for some in (working, [*working, late])
    )
    assert both.seconds == pytest.approx(alone.seconds + 12, abs=0.1)


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("interval_s", "sweep_s", "refund_within_s", "has_restart"),
    [(2, 1, 10, True), (300, 10, 0, False)],
)
def test_the_plan_is_within_a_third_of_what_a_run_waits(
    interval_s: int, sweep_s: int, refund_within_s: int, has_restart: bool
) -> None:
    """In virtual time, in which requests take no time, and the clock is nobody's to advance."""
    sessions = SessionsEndpoint(duration_unit_s=1, refund_within_s=refund_within_s)
    target = Target(indexer=Indexer(interval_s=interval_s), sessions=sessions)
    quick = setting(indexer_interval_s=interval_s, session_sweep_s=sweep_s)

    async def main() -> tuple[float, float, list[str]]:
        world = World(seed=1, service=Settings(phase=0), heartbeat_s=300)
        async with in_process(quick(world)) as stage:
            assert stage.parts is not None
            process = stage.parts.process

            async def restart() -> None:
                process.crash()
                await process.runs()

            judged = Setting(
                options=Options(target=target),
                http=stage.client("suite"),
                clock=stage.clock,
                rng=stage.rng,
                control=stage.control,
                restart=restart if has_restart else None,
            )
            measured = costs(FILE)
            plan = make_plan(judged, all_checks(), measured, price_base=PRICE, round_trip_s=0)
            begun_s = stage.clock.now()
            found = [each async for each in run(judged, all_checks())]
            failed = [each.id for each in found if each.outcome is Outcome.FAILED]
            return plan.seconds, stage.clock.now() - begun_s, failed

    with quiet():
        planned_s, took_s, failed = run_virtual(main)
    assert failed == []
    assert planned_s == pytest.approx(took_s, rel=1 / 3)


def test_the_time_of_a_request_is_not_that_of_the_first_one(deployment: Deployment) -> None:
    """The first one waits for a connection, and for a service that has just started."""

    class Cold(Gateway):
        is_warm = False

        async def forward(self, request: Any, path: str) -> Any:
            if not self.is_warm:
                self.is_warm = True
                await asyncio.sleep(0.5)
            return await super().forward(request, path)

    async def main(url: str) -> float:
        async with reach(parse(url)) as setting:
            return (await examine(setting, all_checks())).seconds

    with running(Cold(deployment.url, api_key=None)) as gateway:
        assert asyncio.run(main(gateway.url)) < 300  # 530 if each request took as long


@pytest.mark.parametrize(
    ("status", "headers", "may_retry_503", "seconds"),
    [
        (200, {}, True, None),
        (402, {"retry-after": "5"}, True, None),
        (429, {}, True, 1.0),
        (429, {"retry-after": "7"}, True, 7.0),
        (429, {"retry-after": "0"}, True, 1.0),
        (429, {"retry-after": "soon"}, True, 1.0),
        (429, {"retry-after": "Thu, 01 Jan 1970 00:01:50 GMT"}, True, 10.0),
        (503, {"retry-after": "3"}, True, 3.0),
        (503, {"retry-after": "3"}, False, None),
        (503, {}, True, None),
    ],
)
def test_how_long_an_answer_asks_to_wait(
    status: int, headers: dict[str, str], may_retry_503: bool, seconds: float | None
) -> None:
    answer = httpx.Response(status, headers=headers)
    assert requested_wait_s(answer, 0, 100.0, may_retry_503=may_retry_503) == seconds
