"""Tasks are cancelled in the order in which they began, so that the same seed has the same journal."""

import asyncio
from typing import Any

import pytest

from x402sim import Fault, LiveWorld, World
from x402sim.population import Every
from x402sim.tasks import Turns, together

MANY = 12
CLUTTER = list[object]()
"""What makes the addresses of one run's objects other than those of the run before."""


async def paying(world: LiveWorld) -> list[asyncio.Task[Any]]:
    """Let payers pay at a facilitator that answers late, until all wait for it."""
    payers = [await world.payer(f"p{i}", balance="2.00") for i in range(MANY)]
    late: dict[str, Any] = {"victim": "facilitator", "does": "delay answer", "seconds": 5}
    await world.fault(Fault(**late, times=100))
    tasks = [asyncio.create_task(each.buy()) for each in payers]
    await world.advance(1)
    return tasks


async def crashes(world: LiveWorld) -> None:
    tasks = await paying(world)
    await world.crash()
    await asyncio.gather(*tasks, return_exceptions=True)


async def ends(world: LiveWorld) -> None:
    await paying(world)


async def observes(world: LiveWorld) -> None:
    """Observers wait for their answers when the story ends."""
    other = await world.payer("other")
    world.observe(lambda _: other.ask(), at="facilitator")
    slow: dict[str, Any] = {"victim": "service", "does": "delay request", "seconds": 50}
    await world.fault(Fault(**slow, path="/api/perp/quote", times=100, skip=MANY))
    await paying(world)


async def fails(world: LiveWorld) -> None:
    """One visit fails, which ends those that wait."""
    late: dict[str, Any] = {"victim": "facilitator", "does": "delay answer", "seconds": 50}
    await world.fault(Fault(**late, times=100))

    async def visit(payer: Any, _: Any) -> None:
        if payer.name == f"payer {MANY}":
            raise ZeroDivisionError
        await payer.buy()

    with pytest.raises(BaseExceptionGroup):
        await world.population(MANY, arrivals=Every(0.1), behaviour=visit)


@pytest.mark.parametrize("stage", ["in-process", "tcp"])
@pytest.mark.parametrize("story", [crashes, ends, observes, fails])
def test_what_is_cancelled_is_recorded_in_the_same_order(story: Any, stage: Any) -> None:
    journals = set()
    for number in range(3):
        run = World(seed=1, on=stage).play(story)
        CLUTTER.append([object() for _ in range(1000 * number)])
        journals.add(tuple((entry.at_ms, repr(entry.event)) for entry in run.journal))
    assert len(journals) == 1


async def waits(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append(name)


@pytest.mark.parametrize("during", ["the block", "the end"])
def test_one_that_fails_ends_the_others_and_the_block(during: str) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise ZeroDivisionError

    async def run() -> list[str]:
        log = list[str]()

        async def block() -> None:
            async with together() as begin:
                for number in range(3):
                    begin(waits(log, str(number)), "waits")
                begin(fail(), "fails")
                if during == "the block":
                    await waits(log, "block")

        with pytest.raises(ExceptionGroup) as raised:
            await block()
        assert [type(each) for each in raised.value.exceptions] == [ZeroDivisionError]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # nothing is cancelled any more
        return log

    order = ["block"] if during == "the block" else []
    assert asyncio.run(run()) == [*order, "0", "1", "2"]


def test_a_cancellation_from_outside_is_passed_on() -> None:
    async def run() -> list[str]:
        log = list[str]()

        async def outer() -> None:
            async with together() as begin:
                begin(waits(log, "inner"), "inner")

        task = asyncio.create_task(outer())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return log

    assert asyncio.run(run()) == ["inner"]


def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    async def run() -> list[str]:
        log = list[str]()

        async def block() -> None:
            async with together() as begin:
                begin(waits(log, "inner"), "inner")
                await asyncio.sleep(0)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await block()
        return log

    assert asyncio.run(run()) == ["inner"]


def test_a_turn_of_the_loop_is_one_piece_of_work_in_order_of_arrival() -> None:
    turns, done = Turns(), list[tuple[int, int]]()

    async def work(name: int, pieces: int) -> None:
        for _ in range(pieces):
            await turns.mine()
            done.append((name, loop_turns))

    async def main() -> None:
        nonlocal loop_turns
        tasks = [asyncio.create_task(work(name, 3)) for name in range(4)]
        tasks.append(asyncio.create_task(work(9, 1)))
        tasks[-1].cancel()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            loop_turns += 1

    loop_turns = 0
    for _ in range(2):  # in a second loop, too
        done.clear()
        asyncio.run(main())
        assert [name for name, _ in done] == [0, *([0, 1, 2, 3] * 2), 1, 2, 3]
        shared = [turn for _, turn in done]
        assert max(map(shared.count, shared)) <= 2
