import asyncio
import threading
import time

import pytest

from x402sim.clock import Clock, stopwatch


class Dial:
    """A source that stands still until it is set."""

    def __init__(self, seconds: float = 1_700_000_000.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def sleeper(clock: Clock, seconds: float, name: object, names: list) -> None:
    await clock.sleep(seconds)
    names.append(name)


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan"), float("inf"), float("-inf")], ids=str)
def test_a_clock_never_goes_back_nor_nowhere(seconds):
    clock = Clock(Dial(100.0))
    with pytest.raises(ValueError, match="a clock goes forward"):
        clock.advance(seconds)
    assert clock.now() == 100
    assert clock.offset_s == 0


def woken(naps: list[float], *advances: float, cancelled: int | None = None) -> list[list[int]]:
    """Return which sleepers, by number, have woken after each step of the clock."""

    async def story() -> list[list[int]]:
        clock, names = Clock(Dial()), []
        tasks = [
            asyncio.create_task(sleeper(clock, nap, number, names))
            for number, nap in enumerate(naps)
        ]
        await settle()
        if cancelled is not None:
            tasks[cancelled].cancel()
        seen = []
        for seconds in advances:
            clock.advance(seconds)
            await settle()
            seen.append([*names])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return seen

    return asyncio.run(story())


def test_advance_wakes_those_who_are_due_in_order_of_deadline_and_arrival():
    assert woken([30, 10, 20, 3600], 0, 9.9, 50) == [[], [], [1, 2, 0]]
    assert woken([300] * 20, 300) == [[*range(20)]]
    assert woken([10, float("nan"), 20, 5], 6) == [[3]], "what is no time keeps nobody asleep"


@pytest.mark.parametrize("cancelled", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_cancelled_sleeper_does_no_harm(cancelled):
    (names,) = woken([10, 20, 30], 30, cancelled=cancelled)
    assert names == [n for n in range(3) if n != cancelled]


def test_sleep_takes_real_time_on_the_wall_clock_and_none_for_no_time():
    async def story() -> float:
        for seconds in (0, -5, -1e9):
            await asyncio.wait_for(Clock(Dial()).sleep(seconds), 0.5)
        elapsed = stopwatch()
        await Clock().sleep(0.02)
        return elapsed()

    assert 0.015 < asyncio.run(story()) < 0.5


def test_sleep_until_returns_when_the_clock_shows_that_time():
    async def story() -> float:
        clock = Clock()
        at_s = clock.now() + 3600.01
        task = asyncio.create_task(clock.sleep_until(at_s))
        await settle()
        clock.advance(3600)
        assert not task.done()
        await asyncio.wait_for(task, 1)
        return clock.now() - at_s

    assert -1e-4 < asyncio.run(story()) < 0.5


def test_a_timer_rings_while_one_of_another_thread_does():
    """Servers of one process have threads of their own: a timer that was lost woke nobody again."""
    rings, goes_on = threading.Event(), threading.Event()
    start = time.time()

    def source() -> float:
        if time.time() > start + 0.05:
            rings.set()
            goes_on.wait(5)
        return time.time()

    other = threading.Thread(target=lambda: asyncio.run(Clock(source).sleep(0.06)))
    other.start()
    try:
        assert rings.wait(5)
        asyncio.run(asyncio.wait_for(Clock().sleep(0.01), 2))
    finally:
        goes_on.set()
        other.join()


@pytest.mark.parametrize("jump_s", [-10_800, 10_800])
def test_a_system_clock_that_is_set_stops_no_sleeper_and_is_told(jump_s):
    ahead, told = 0.0, list[float]()

    async def story() -> None:
        nonlocal ahead
        clock = Clock(lambda: time.time() + ahead, time.monotonic)
        clock.on_jump = told.append
        naps = [asyncio.create_task(clock.sleep(seconds)) for seconds in (0.05, 0.1)]
        later = asyncio.create_task(clock.sleep_until(clock.now() + 3600))
        await settle()
        ahead = jump_s
        await asyncio.wait_for(asyncio.gather(*naps), 5)
        assert clock.now() == pytest.approx(time.time() + jump_s, abs=1)
        await asyncio.wait_for(clock.sleep(0.05), 5)
        assert later.done() is (jump_s > 0)
        later.cancel()

    asyncio.run(story())
    assert told == [pytest.approx(jump_s, abs=1)]
