"""An exception in the user's own code fails the run, and the user's line is told first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from x402sim import LiveWorld, Settings, World, sweep
from x402sim.policies import ServicePolicy
from x402sim.population import Every

HERE = Path(__file__).name


def boom(*_: Any) -> Any:
    raise LookupError("boom")


LINE = f"{HERE}:{boom.__code__.co_firstlineno + 1}"


@dataclass
class Raises:
    """Has the methods of every policy, and raises in each."""

    counts_served = True
    is_random = False
    verifies = claims_before = serves = refund = of = intervals = moments = boom

    async def resolve(self, payment: Any) -> None:
        boom()

    def __hash__(self) -> int:
        return 1


class Ends:
    """Block times that end."""

    def intervals(self, stream: Any) -> Iterator[float]:
        yield 5.0


async def buys(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    bought = await alice.buy()
    await alice.ask(payment_id=bought.payment_id)
    await world.advance(1000)


async def one_session(world: LiveWorld) -> None:
    await (await world.payer("alice", balance="1.00")).open_session("0.05", 60)
    await world.advance(600)


async def odd_fault(world: LiveWorld) -> None:
    await world.fault(boom)
    await buys(world)


async def visits(world: LiveWorld) -> None:
    await world.population(2, arrivals=Raises())


async def behaves(world: LiveWorld) -> None:
    await world.population(2, arrivals=Every(1), behaviour=boom)


def policy(**choice: Any) -> dict[str, Any]:
    return {"service": Settings(policy=ServicePolicy(**choice))}


@pytest.mark.parametrize(
    ("story", "options"),
    [
        *((buys, policy(**{name: Raises()})) for name in ("verify", "claim", "serve")),
        (one_session, policy(refund=Raises())),
        (buys, {"service": Settings(reputation=Raises(), indexer_interval_s=10)}),
        (buys, {"latency": {"facilitator": boom}}),
        (buys, {"block_time_s": Raises()}),
        (odd_fault, {}),
        (visits, {}),
        (behaves, {}),
    ],
    ids=["verify", "claim", "serve", "refund", "reputation", "latency", "blocks", "fault",
         "arrivals", "behaviour"],
)  # fmt: skip
def test_an_exception_in_the_users_code_fails_the_run_with_its_line(
    story: Callable[[LiveWorld], Any], options: dict[str, Any], virtual: str
) -> None:
    run = World(on=virtual, **options).play(story)
    assert run.outcome == "failed"
    assert run.reason.startswith("LookupError: boom"), run.reason
    assert run.place == LINE


def test_block_times_that_end_fail_the_run() -> None:
    run = World(block_time_s=Ends()).play(buys)
    assert run.reason == "ValueError: block_time_s: the intervals of Ends(...) have ended"


def test_a_point_of_a_sweep_fails_with_that_line() -> None:
    def experiment(seed: int) -> int:
        return len(World(**policy(verify=Raises())).play(buys).transfers)

    with pytest.warns(UserWarning, match="The only point failed"):
        frame = sweep(experiment, {}, seeds=1, workers=0, on_error="record", progress=False)
    assert LINE in frame["error"][0]
