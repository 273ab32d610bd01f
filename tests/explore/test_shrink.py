"""The shrinker keeps what makes a case fail, and nothing else."""

from x402sim import Fault
from x402sim.explore.case import Buy, Case, Crash, Deposit, Reorganise, Strike
from x402sim.explore.draw import draw
from x402sim.explore.shrink import shrink

LARGE = Case(
    seed=9,
    balances=("1.00", "1.00"),
    services=3,
    latency={"rpc": 0.1, "service": 0.5},
    jitter=0.5,
    block_time_s=5.0,
    steps=(
        Buy(number=0, payer=1, tries=8),
        Deposit(at_s=3.217, number=1, spends=4),
        Crash(at_s=5.0),
        Strike(at_s=6.0, fault=Fault(victim="rpc", does="refuse", times=6, skip=2)),
        Crash(at_s=7.5, service="service 2"),
        Reorganise(at_s=9.0, depth=5, drop=True),
    ),
)


def test_it_finds_the_one_step_that_matters() -> None:
    small = shrink(LARGE, lambda case: any(isinstance(step, Crash) for step in case.steps))
    assert small == Case(steps=(Crash(),))


def test_it_keeps_steps_that_fail_only_together() -> None:
    def fails(case: Case) -> bool:
        kinds = {type(step) for step in case.steps}
        return {Buy, Reorganise} <= kinds and case.block_time_s is not None

    small = shrink(LARGE, fails)
    assert {type(step) for step in small.steps} == {Buy, Reorganise}
    assert small.block_time_s == 5.0
    assert small.latency == {}
    assert small.services == 1


def test_it_makes_a_fault_plainer() -> None:
    def fails(case: Case) -> bool:
        return any(isinstance(step, Strike) and step.fault.times == 6 for step in case.steps)

    small = shrink(LARGE, fails)
    assert small.steps == (Strike(fault=Fault(victim="rpc", does="refuse", times=6)),)


def test_it_never_returns_a_case_that_holds() -> None:
    for seed in range(30):
        case = draw(seed, adversary=True)
        small = shrink(case, lambda case: len(case.steps) >= 2, most_plays=50)
        assert len(small.steps) == 2


def test_it_stops_when_its_plays_are_used_up() -> None:
    played = []

    def fails(case: Case) -> bool:
        played.append(case)
        return len(case.steps) > 3

    shrink(LARGE, fails, most_plays=5)
    assert len(played) == 5
