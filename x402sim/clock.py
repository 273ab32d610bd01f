"""The clock: the only file that reads the time.

All other code uses a `Clock`, whose source is the wall clock (a served mock) or a virtual loop (a
simulation). A clock can be advanced; its sleepers wake in order of deadline.

A system's clock is set back now and then. A sleeper that waits for a time of day would then sleep
for hours, so sleepers count the ticks of a clock that nobody sets.
"""

import asyncio
import heapq
import itertools
import math
import os
import time
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from pathlib import Path

real_now = time.time
"""Return real Unix seconds: to measure how long a server takes, never for what it answers."""
_SLACK_S = 1e-6
"""An event loop may fire a timer this much early. A sleeper that is due within it wakes: else its
timer would be set again, for a time that rounds to nothing, without end."""
JUMP_S = 5.0
"""A source that moved further from the ticks was set; a smaller difference may be drift."""

is_periodic: ContextVar[bool] = ContextVar("periodic work", default=False)
"""Whether the current task repeats something forever, so that nothing waits for its end."""


def periodic_context() -> Context:
    """Return a context for a task of periodic work, such as a sweep or the blocks."""
    context = copy_context()
    context.run(is_periodic.set, True)
    return context


_PERIODIC = periodic_context()
"""The context of the timers that wake sleepers. `Clock.is_awaited` counts the sleepers themselves;
a virtual loop would count each of them twice if their timers were not periodic."""


def _process_started_s() -> float:
    """Return when this process started, in real Unix seconds; now, where /proc does not say."""
    try:
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        # a tick more: a purchase that ended before the process began must not seem newer
        boot_s = (int(fields[19]) + 1) / os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - boot_s
    except (OSError, AttributeError):  # not Linux
        age_s = 0.0
    return time.time() - max(0.0, age_s)


_starts = itertools.chain((_process_started_s() for _ in range(1)), iter(time.time, None))


def command_started_s() -> float:
    """Return the start of this command, in real Unix seconds; each command calls once.

    The first command started with the process, before all imports; later commands, now.
    """
    return next(_starts)


class Clock:
    """Unix time that can be advanced, and the only way to sleep."""

    def __init__(
        self,
        source: Callable[[], float] = time.time,
        ticks: Callable[[], float] | None = None,
    ) -> None:
        """`ticks` counts seconds for the sleepers; the default is the system's monotonic clock for
        the system's time, and any other source itself.
        """
        self._source = source
        self._ticks = ticks or (time.monotonic if source is time.time else source)
        self._apart_s = 0.0 if self._ticks is source else source() - self._ticks()
        """Seconds of the source ahead of the ticks, at the last look."""
        self._offset_s = self._skipped_s = 0.0
        self.on_jump: Callable[[float], object] = lambda seconds: None
        """Called when the source was set, with how far: a negative number if back."""
        self._sleepers: list[tuple[float, int, asyncio.Future[None], bool]] = []
        """Each sleeper with the ticks of its end, as counted by `_ticked`."""
        self._order = itertools.count()
        self._alarms: list[tuple[float, asyncio.TimerHandle]] = []
        """The loop's timers for the next sleepers and when they ring, the next one last."""

    def now(self) -> float:
        """Return Unix seconds."""
        return self._source() + self._offset_s

    def now_s(self) -> int:
        """Return whole Unix seconds, the unit of EIP-3009 windows and block timestamps."""
        return int(self._source() + self._offset_s)

    def now_ms(self) -> int:
        """Return whole Unix milliseconds, the unit of receipts and stored records."""
        return int((self._source() + self._offset_s) * 1000)

    @property
    def offset_s(self) -> float:
        """How far this clock has been advanced past its source, in seconds."""
        return self._offset_s

    def advance(self, seconds: float) -> None:
        """Move this clock forward, never back, and wake the sleepers that are due.

        A sleeper wakes once, however many of its periods were jumped over, as a
        computer does after a night asleep.
        """
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"a clock goes forward by a finite time, not by {seconds} s")
        self._offset_s += seconds
        self._wake_anew()

    def give_back(self) -> None:
        """Show the source's time again. Sleepers sleep as long as they still had to."""
        ahead_s, self._offset_s = self._offset_s, 0.0
        self._sleepers = [(at - ahead_s, n, each, is_p) for at, n, each, is_p in self._sleepers]
        self._wake_anew()

    async def sleep(self, seconds: float) -> None:
        """Return `seconds` from now, or sooner if the clock is advanced."""
        await self.sleep_until(self.now() + seconds)

    async def sleep_until(self, at_s: float) -> None:
        """Return when this clock shows `at_s` (Unix seconds)."""
        if math.isnan(at_s):
            raise ValueError("cannot sleep until NaN")
        waiter = asyncio.get_running_loop().create_future()
        if self._ticks is not self._source:  # else equal, but for the last digits
            self._look()
            at_s = self._ticked() + at_s - self.now()
        sleeper = at_s, next(self._order), waiter, is_periodic.get()
        heapq.heappush(self._sleepers, sleeper)
        if self._sleepers[0] is sleeper:
            self._wake()
        if waiter.done():  # awaiting it would not let anything else run, as `sleep(0)` is to
            await asyncio.sleep(0)
            return
        try:
            await waiter
        except asyncio.CancelledError:
            # with its timer: a virtual loop would jump to the moment of a sleeper that is gone
            self._sleepers = [sleeper for sleeper in self._sleepers if not sleeper[2].done()]
            heapq.heapify(self._sleepers)
            self._wake_anew()
            raise

    @property
    def is_awaited(self) -> bool:
        """Whether anything sleeps that is not periodic work."""
        return any(not waiter.done() and not periodic for *_, waiter, periodic in self._sleepers)

    def _wake(self) -> None:
        """Wake the sleepers that are due, and set a timer for the next unless one rings by then."""
        sleepers, now_s = self._sleepers, self._ticked()
        while sleepers:
            at_s, _, waiter, _ = sleepers[0]
            if not waiter.done() and at_s - now_s > _SLACK_S:
                if not self._alarms or at_s < self._alarms[-1][0]:
                    loop = waiter.get_loop()
                    context = _PERIODIC.copy()  # two threads cannot be in one context at once
                    timer = loop.call_later(at_s - now_s, self._ring, context=context)
                    self._alarms.append((at_s, timer))
                return
            heapq.heappop(sleepers)
            if not waiter.done():
                waiter.set_result(None)

    def _ring(self) -> None:
        self._alarms.pop()
        self._look()
        self._wake()

    def _ticked(self) -> float:
        return self._ticks() + self._skipped_s + self._offset_s

    def _look(self) -> None:
        """Notice that the source was set. Forward counts as an advance of this clock."""
        jumped_s = self._source() - self._ticks() - self._apart_s
        if abs(jumped_s) > JUMP_S:
            self._apart_s += jumped_s
            if jumped_s > 0:
                self._skipped_s += jumped_s
                self._wake_anew()
            self.on_jump(jumped_s)

    def _wake_anew(self) -> None:
        """Wake the sleepers that are due, and replace all timers: they may ring at a wrong time."""
        for _, timer in self._alarms:
            timer.cancel()
        self._alarms.clear()
        self._wake()


class SkewedClock(Clock):
    """One actor's own clock, which is `skew_s` seconds ahead of the world's."""

    def __init__(self, truth: Clock) -> None:
        super().__init__(lambda: truth._source() + truth._offset_s + self.skew_s)
        self._truth = truth
        self.skew_s = 0.0

    def advance(self, seconds: float) -> None:
        """Advance the world's clock, which this one follows."""
        self._truth.advance(seconds)

    async def sleep_until(self, at_s: float) -> None:
        """Return when this clock shows `at_s`, if its skew stays as it is now."""
        await self._truth.sleep_until(at_s - self.skew_s)


def stopwatch() -> Callable[[], float]:
    """Start measuring real time; the returned function gives the seconds since."""
    start = time.perf_counter()
    return lambda: time.perf_counter() - start
