"""Virtual time: it jumps, it is exact, it stands still for threads, and it says when it is stuck."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from x402sim import LiveWorld, World
from x402sim.http.exchange import within
from x402sim.story.payer import Payer
from x402sim.world import loop
from x402sim.world.loop import Deadlock, TimeStandsStill, run_virtual


def test_time_stands_still_while_a_thread_works() -> None:
    async def main() -> tuple[str, float]:
        async def tick() -> None:
            await asyncio.sleep(5)

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0)
        done = await asyncio.to_thread(lambda: time.sleep(0.02) or "worked")
        at_s = asyncio.get_running_loop().time()
        await ticking
        return done, at_s

    assert run_virtual(main) == ("worked", 0)


def test_a_deadlock_is_named_and_not_waited_for() -> None:
    async def main() -> None:
        asyncio.current_task().set_name("the one who waits")
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match="the one who waits"):
        run_virtual(main)


def test_it_runs_inside_a_running_loop_as_in_a_notebook() -> None:
    async def inner() -> None:
        await asyncio.sleep(1000)
        raise KeyError(asyncio.get_running_loop().time())

    async def cell() -> None:
        run_virtual(inner)

    with pytest.raises(KeyError, match="1000"):
        run_virtual(inner)
    with pytest.raises(KeyError, match="1000"):
        asyncio.run(cell())


def test_timers_fire_at_their_time_and_as_they_were_set_however_many_others_are_cancelled() -> None:
    """Those of the same time, too; three of four are cancelled, and dropped before their time."""
    seen: list[tuple[float, int]] = []

    def at(number: int) -> tuple[float, int]:
        return number * 37 % 50 / 10, number

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(1e6, seen.append, (1e6, 0))
        timers = [
            loop.call_at(at(n)[0], lambda n=n: seen.append((loop.time(), n))) for n in range(400)
        ]
        for number, timer in enumerate(timers):
            if number % 4:
                timer.cancel()
        await asyncio.sleep(2e6)

    run_virtual(main)
    assert seen == [*sorted(map(at, range(0, 400, 4))), (1e6, 0)]


def test_a_timer_can_be_cancelled_until_it_has_run() -> None:
    """Also by another one of the same time, and once more when nothing is left to cancel."""
    ran: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        first = loop.call_later(1, lambda: (ran.append("first"), second.cancel()))
        second = loop.call_later(1, ran.append, "second")
        third = loop.call_later(1, ran.append, "third")
        await asyncio.sleep(2)
        for timer in (first, second, third):
            timer.cancel()
        assert second.when() == 1
        assert second.cancelled()

    run_virtual(main)
    assert ran == ["first", "third"]


def test_messages_are_delivered_one_by_one_the_lowest_number_first() -> None:
    told: list[str] = []

    async def deliver(number: int) -> None:
        await asyncio.get_running_loop().turn(number)
        told.append(f"{number} arrives")
        for _ in range(number):  # however long the way within the instant
            await asyncio.sleep(0)
        told.append(f"{number} rests")

    async def main() -> float:
        await asyncio.gather(*(deliver(number) for number in (3, 1, 9, 2)))
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 0
    assert told == [f"{n} {does}" for n in (1, 2, 3, 9) for does in ("arrives", "rests")]


def test_a_cancelled_wait_for_a_turn_blocks_no_other() -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        impatient = asyncio.create_task(loop.turn(1))
        await asyncio.sleep(0)
        impatient.cancel()
        await loop.turn(2)
        return "my turn"

    assert run_virtual(main) == "my turn"


# --- work that lets no time pass ------------------------------------------------------


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MAX_STEPS", 4_000)


async def spin(seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("seconds", [0, 1e-9])
def test_work_that_lets_no_time_pass_is_named(seconds: float) -> None:
    async def main() -> None:
        await asyncio.sleep(5)
        asyncio.create_task(spin(seconds), name="the one who spins").add_done_callback(print)
        await asyncio.sleep(1)

    with pytest.raises(TimeStandsStill, match=r"at 5\.000 s.*the one who spins \(\d+ times\)"):
        run_virtual(main)


@pytest.mark.usefixtures("few_steps")
def test_a_story_in_which_time_stands_still_fails_and_keeps_its_journal(virtual: str) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice")
        asking = asyncio.create_task(ask(alice), name="asking")
        try:
            await world.advance(60)
        finally:
            asking.cancel()
            await asyncio.wait({asking})

    async def ask(payer: Payer) -> None:
        while True:
            await payer.ask()

    run = World(seed=1, on=virtual).play(story)
    assert run.outcome == "failed"
    assert "TimeStandsStill: virtual time stands still at 0.000 s, for 4000 steps" in run.reason
    assert "asking (" in run.reason
    assert "alice asks service /api/perp/quote (" in run.reason
    assert len(run.journal) > 200


@pytest.mark.usefixtures("few_steps")
def test_a_world_that_cannot_be_stopped_is_an_error() -> None:
    async def story(world: LiveWorld) -> None:
        async def stubborn() -> None:
            for _ in range(9_000):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)

        await asyncio.create_task(stubborn(), name="stubborn")

    with pytest.raises(TimeStandsStill, match="stubborn"):
        World(seed=1).play(story)


# --- a deadline -----------------------------------------------------------------------------


async def _answers() -> str:
    await asyncio.sleep(1)
    return "answered"


async def _at_once() -> str:
    return "answered"


async def _fails() -> str:
    await asyncio.sleep(1)
    raise ValueError


async def _too_long() -> str:
    await asyncio.sleep(1)
    await asyncio.sleep(5)
    return "late"


async def _ignores_the_end() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(5)
    await asyncio.sleep(1)
    return "late"


async def _fails_at_the_end() -> str:
    try:
        await asyncio.sleep(5)
    except asyncio.CancelledError:
        raise ValueError from None
    return "late"


async def _has_a_deadline() -> str:
    return await within(2, _too_long())


async def _by_timeout(seconds: float, work: Awaitable[str]) -> str:
    async with asyncio.timeout(seconds):
        return await work


@pytest.mark.parametrize("cancelled_s", [None, 0.5, 2, 2.5])
@pytest.mark.parametrize(
    "work",
    [
        *(_answers, _at_once, _fails, _too_long, _ignores_the_end, _fails_at_the_end),
        _has_a_deadline,
    ],
)
def test_work_with_a_deadline_ends_as_in_asyncio_timeout(
    work: Callable[[], Awaitable[str]], cancelled_s: float | None
) -> None:
    async def outcome(limit: Callable[[float, Awaitable[str]], Awaitable[str]]) -> Any:
        loop, seen = asyncio.get_running_loop(), list[Any]()

        async def limited() -> None:
            task = asyncio.current_task()
            assert task is not None
            try:
                seen.append(await limit(2, work()))
            except BaseException as raised:  # noqa: BLE001 - compared
                seen.append(type(raised))
            seen.extend((loop.time(), task.cancelling()))

        task = asyncio.create_task(limited())
        if cancelled_s is not None:
            loop.call_later(cancelled_s, task.cancel)
        await asyncio.wait([task])
        return seen

    assert run_virtual(lambda: outcome(within)) == run_virtual(lambda: outcome(_by_timeout))
