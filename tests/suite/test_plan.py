"""The plan of a run, and its pace: what a run costs at most, and how long it waits."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.suite.duo import Duo, conformance
from tests.suite.gateway import Gateway, running
from x402sim.clock import Clock
from x402sim.spec.needs import Need
from x402sim.suite.check import PATIENCE_S, Check
from x402sim.suite.engine import all_checks, folder, run_case
from x402sim.suite.flags import FLAGS
from x402sim.suite.parse_options import parse
from x402sim.suite.plan import Cost, cost_base, costs, make_plan
from x402sim.suite.preflight import examine
from x402sim.suite.remote import reach
from x402sim.suite.wire import Pace, wait_s

PRICE = 10_000
BUDGET = next(flag.default for flag in FLAGS if flag.name == "budget")


@pytest.mark.thorough
def test_no_case_signs_for_more_than_the_plan_says() -> None:
    duo = Duo()
    key = duo.key

    async def main() -> tuple[int, int, list[str], int]:
        options = parse(duo.url, payer_key=key, budget="50")
        checks = [case for case in all_checks() if case.pays or case.deposits != "0"]
        wrong = []
        async with reach(options) as setting:
            ready = await examine(setting, checks)
            for case in checks:
                before = ready.state.signed_base
                await run_case(ready.setting, ready.state, case)
                signed = ready.state.signed_base - before
                baselines = PRICE + 2 * PRICE  # the first case that has one pays for it
                if signed > cost_base(setting, case, PRICE) + baselines * bool(case.baseline):
                    wrong.append(f"{case.name}: {signed}")
            return ready.state.signed_base, ready.plan.signs_base, wrong, ready.plan.needs_base

    try:
        signed, planned, wrong, needed = asyncio.run(main())
    finally:
        duo.close()
    assert wrong == []
    assert 0 < signed <= planned == needed
    assert needed <= float(BUDGET) * 1_000_000, "the default budget fits the plan"


WITH_A_KEY = {
    "spec/4.2/quote:another_pair_has_another_quote",
    "spec/5/resource-binding:a_list_of_agents_does_not_open_the_quote",
}
"""They run only for a target file that names another pair, or agents that cost something."""


def test_the_costs_are_those_of_the_checks_there_are() -> None:
    checks = all_checks()
    measured = costs(folder() / "costs.json")
    assert set(measured) <= {case.name for case in checks}, "run python -m tests.suite.costs"
    rare = {Need.CLOCK, Need.RESTART, Need.RECORD, Need.SESSION_VIEW}
    usual = [case for case in checks if not case.waits and rare.isdisjoint(case.needs)]
    left = {case.name for case in usual} - set(measured) - WITH_A_KEY
    assert not left, "run python -m tests.suite.costs"
    assert sum(cost.requests for cost in measured.values()) < 1750, "a run is a burden"


def plan_of(setting: Any, checks: list[Check], price_base: int = PRICE) -> Any:
    return make_plan(setting, checks, {}, price_base=price_base, round_trip_s=0.01)


def test_what_is_left_out_is_not_must_and_not_cheap() -> None:
    async def main() -> tuple[Any, Any, Any]:
        payer = "0x" + "01" * 32
        small = parse("http://127.0.0.1:9", payer_key=payer, budget="0.50")
        free = parse("http://127.0.0.1:9", payer_key=payer, budget="0.00")
        async with reach(small) as one, reach(free) as other:
            return plan_of(one, all_checks()), plan_of(one, all_checks(), 10**6), plan_of(
                other, all_checks()
            )  # fmt: skip

    plan, dear, free = asyncio.run(main())
    levels = {case.name: case.level for case in all_checks()}
    assert plan.signs_base <= 500_000 < plan.needs_base
    assert "give --budget" in next(iter(plan.left_out.values()))
    assert any(levels[name] != "MUST" for name in plan.left_out)
    assert dear.needs_base > 50 * plan.needs_base
    assert dear.signs_base <= 500_000 or not dear.payments
    assert free.payments == 0
    assert free.runnable_ids > 20, "what costs nothing is checked all the same"


@pytest.mark.parametrize("budget", ["0.00", "0.01", "0.03", "0.05", "0.06", "0.20", "1.00", "2.00"])
@pytest.mark.parametrize("price_base", [PRICE, 20_000, 12_345])
def test_the_plan_adds_up_and_fits_the_budget(budget: str, price_base: int) -> None:
    payer = "0x" + "01" * 32

    async def main() -> Any:
        means = parse("http://127.0.0.1:9", payer_key=payer, budget=budget)
        async with reach(means) as setting:
            return plan_of(setting, all_checks(), price_base), setting.options.budget_base

    plan, budget_base = asyncio.run(main())
    assert plan.signs_base == plan.payments * price_base + plan.deposits_base <= budget_base
    taken = {case.name for case in all_checks()} - set(plan.left_out)
    assert not plan.payments or any(case.pays for case in all_checks() if case.name in taken)


def test_the_duration_follows_rate_and_waits() -> None:
    async def main() -> tuple[float, float]:
        checks = all_checks()[:10]
        measured = {case.name: Cost(10, 1.0) for case in checks}
        found = []
        for rate in (None, 2.0):
            means = parse("http://127.0.0.1:9", rate=rate)
            async with reach(means) as setting:
                plan = make_plan(setting, checks, measured, price_base=1, round_trip_s=0.001)
                found.append((plan.seconds, plan.requests))
        (fast, requests), (slow, _) = found
        assert slow == pytest.approx(fast + requests * (0.5 - 0.001))
        return fast, slow

    fast, slow = asyncio.run(main())
    assert 0 < fast < slow


def test_what_waits_does_so_beside_the_others_and_a_first_request_is_no_measure() -> None:
    async def main() -> tuple[float, float]:
        checks = [case for case in all_checks() if case.waits and Need.CLOCK not in case.needs]
        measured = {case.name: Cost(1, 20.0) for case in checks}
        payer = "0x" + "01" * 32
        async with reach(parse("http://127.0.0.1:9", payer_key=payer)) as it:
            plan = make_plan(it, checks, measured, price_base=1, round_trip_s=0.001)
            return plan.seconds, max(case.waits(it) for case in checks if case.waits)

    seconds, _ = asyncio.run(main())
    assert 10 < seconds <= PATIENCE_S, "the longest wait, and not the sum of all"


def test_the_time_of_a_request_is_not_that_of_the_first_one(duo: Duo) -> None:
    """The first one waits for a connection, and for a service that has just started."""

    class Cold(Gateway):
        is_warm = False

        async def forward(self, request: Any, path: str) -> Any:
            if not self.is_warm:
                self.is_warm = True
                await asyncio.sleep(1)
            return await super().forward(request, path)

    with running(Cold(duo.url, api_key=None)) as gateway:
        done = conformance(gateway.url, "--only", "1/,2.1/,2.2/")
    plan = next(line for line in done.stderr.splitlines() if line.startswith("Plan:"))
    assert int(plan.split()[-2]) < 60, plan


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
    assert wait_s(answer, before=0, now_s=100.0, may_retry_503=may_retry_503) == seconds


def test_requests_of_one_run_share_a_pace() -> None:
    async def main() -> float:
        clock, pace = Clock(), Pace(rate=50)
        before = clock.now()
        await asyncio.gather(*(pace.turn(clock) for _ in range(11)))
        assert pace.requests == 11
        return clock.now() - before

    assert asyncio.run(main()) >= 10 / 50 - 0.01
