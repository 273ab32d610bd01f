"""Virtual time: an asyncio loop whose clock jumps to the next timer when nothing is ready.

Ordinary `async def` code runs on it unchanged, and a day passes in milliseconds. Time starts at 0
and moves only by jumps, so the same code always reads the same times. Simultaneous events have a
fixed order: timers in the order in which they were set, and messages one at a time (`turn`), each
after the tasks of the one before have come to rest. Work that lets no time pass, such as a retry
without a delay, would go on forever at one moment: after `MAX_STEPS` it is an error that names it.
"""

import asyncio
import heapq
import itertools
import linecache
import re
import selectors
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Executor, Future, wait
from contextvars import Context
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from x402sim.clock import is_periodic
from x402sim.text.tracebacks import is_users, shown

T = TypeVar("T")
GRACE_S = 1.0
"""The most real seconds that bytes may take between two sockets of this loop."""


MAX_STEPS = 1_000_000
"""The most steps of a loop within `MOMENT_S`; a payment takes about 10."""
MOMENT_S = 0.001
"""One moment of virtual time, in seconds: the journal's unit."""
_SAMPLE = 1000
"""The number of steps, the last ones before the error, of which it tells what ran."""


class Deadlock(RuntimeError):
    """Every task waits, or a story does, and no timer or I/O is pending that could wake it."""


class TimeStandsStill(RuntimeError):
    """Work goes on at one moment of virtual time, without end; the text says whose."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time; `time()` is in seconds since it was made."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """The virtual time, as `time` returns it."""
        self._in_threads = 0
        self._order = itertools.count()
        self._turns: list[tuple[int, int, asyncio.Future[None]]] = []
        self.in_transit: dict[str, bool] = {}
        """The exchanges over this loop's sockets, and whether their bytes are in transit."""
        self.newest: Callable[[], str] = lambda: ""
        """Says what happened last, for `TimeStandsStill`."""
        self.on_standstill: Callable[[TimeStandsStill], None] | None = None
        """Takes the first `TimeStandsStill`, if something can stop the work; else it is raised."""
        self._moment_s, self._steps = 0.0, 0
        self._seen: Counter[str] = Counter()
        super().__init__(_Jumping(self))
        # Far from 0 the default nanosecond is lost in rounding, and timers never fire.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the virtual time."""
        return self.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run a function in a thread; virtual time stops until it returns."""
        self._in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._left_thread)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Wait for the threads to end; virtual time stops meanwhile."""
        self._in_threads += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._in_threads -= 1

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer; timers of the same time fire in the order in which they were set."""
        timer = _Timer(when, callback, args, self, context)
        timer.rank = when, next(self._order)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    async def turn(self, order: int) -> None:
        """Return when nothing else can run; of several waiters the lowest `order` goes first."""
        if self._is_at_rest():
            return
        waiter: asyncio.Future[None] = self.create_future()
        heapq.heappush(self._turns, (order, next(self._order), waiter))
        await waiter

    def _is_at_rest(self) -> bool:
        """Whether nothing can run but the task that asks: neither task nor timer, nor bytes."""
        if self._ready or self._turns or self._in_threads or self._selector.has_sockets:  # type: ignore[attr-defined]
            return False
        scheduled = self._scheduled  # type: ignore[attr-defined]
        soon_s = self.now_s + self._clock_resolution
        return not scheduled or bool(scheduled[0].rank[0] >= soon_s)

    def give_turn(self) -> bool:
        """Wake the next waiter for a turn; False if there is none."""
        while self._turns:
            _, _, waiter = heapq.heappop(self._turns)
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def _left_thread(self, _: Any) -> None:
        self._in_threads -= 1

    def jump(self) -> None:
        """Jump to the next timer; raises `Deadlock` if there is none."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if not scheduled:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"nothing can wake these tasks: {', '.join(waiting) or 'none'}")
        self.now_s = max(self.now_s, scheduled[0].when())

    def step(self) -> None:
        """Count a step of the loop; raises `TimeStandsStill` after `MAX_STEPS` at one moment."""
        self._steps += 1
        if self.now_s - self._moment_s >= MOMENT_S:
            self._moment_s, self._steps = self.now_s, 0
        elif self._steps > MAX_STEPS - _SAMPLE:
            self._seen.update(_name(handle) for handle in self._ready)  # type: ignore[attr-defined]
            if self._steps >= MAX_STEPS:
                self._stand_still()

    def _stand_still(self) -> None:
        error = TimeStandsStill(
            f"virtual time stands still at {self.now_s:.3f} s, for {self._steps} steps. "
            f"The last {_SAMPLE} ran: {most_common(self._seen)}.{self.newest()} Look there for a "
            "loop or a retry that waits for nothing; if so much is meant to happen at one moment, "
            "give the world a latency, or let time pass in between"
        )
        self._steps = 0
        self._seen.clear()
        take, self.on_standstill = self.on_standstill, None
        if take is None:
            raise error
        take(error)

    def has_timer_besides(self, known: Collection[asyncio.TimerHandle | None]) -> bool:
        """Tell whether a timer is set that is neither known nor of periodic work."""
        return any(
            not timer.cancelled()
            and not timer._context.get(is_periodic, False)
            and not any(timer is each for each in known)
            for timer in self._scheduled  # type: ignore[attr-defined]
        )

    @property
    def grace_s(self) -> float:
        """Return how many real seconds to wait for bytes in transit between sockets."""
        return GRACE_S if any(self.in_transit.values()) else 0

    @property
    def must_wait(self) -> bool:
        """Whether a thread or bytes in transit run outside virtual time."""
        return self._in_threads > 0


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits for a timer: it lets the loop jump to it instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self._loop
        must_wait, ready = loop.must_wait, []
        is_idle = timeout != 0 and not must_wait
        if must_wait or self.has_sockets:  # else there is nothing to ask the system about
            ready = super().select(loop.grace_s if is_idle else timeout and None)
        if is_idle and not ready and not loop.give_turn():
            loop.jump()
        loop.step()
        return ready

    @property
    def has_sockets(self) -> bool:
        """Whether there is more to ask the system about than the loop's own wake-up."""
        return len(self._fd_to_key) > 1  # type: ignore[attr-defined]


class _Timer(asyncio.TimerHandle):
    """A timer with its rank: its time, and its place among timers of the same time."""

    rank: tuple[float, int]

    def __lt__(self, other: Any) -> bool:
        return bool(self.rank < other.rank)


def _name(handle: asyncio.Handle) -> str:
    """Return the name of the task that a handle continues, or of the function that it calls."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return getattr(callback, "__qualname__", repr(callback))
    name: str = task.get_name()
    return getattr(task.get_coro(), "__qualname__", name) if name.startswith("Task-") else name


def most_common(counts: Counter[str]) -> str:
    """Return the five most common names, each with its count."""
    return ", ".join(f"{name} ({count} times)" for name, count in counts.most_common(5))


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` to its end in virtual time and return its result.

    Raises what `main` raises, `Deadlock`, and `TimeStandsStill`.
    """
    return run_anywhere(main, VirtualLoop)


def run_anywhere(
    main: Callable[[], Coroutine[Any, Any, T]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run `main()` to its end on a loop of its own and return its result.

    Works in a script and in a notebook cell, where a loop is running already: there it
    takes a thread of its own. Ctrl-C cancels `main`, which may write down where it was.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(main, loop_factory)
    _require_no_import()
    future: Future[T] = Future()
    cancels: list[Callable[[], object]] = []

    async def cancelled_by_us() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancels.append(partial(loop.call_soon_threadsafe, task.cancel))
        return await main()

    def work() -> None:
        try:
            future.set_result(_run(cancelled_by_us, loop_factory))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            future.set_exception(error)

    threading.Thread(target=work, name="x402sim").start()
    try:
        return future.result()
    except KeyboardInterrupt:
        for cancel in () if future.done() else cancels:
            cancel()
        wait([future])
        raise


def _require_no_import() -> None:
    """Raise `RuntimeError` for a file that a library imports in the place of its dependency.

    A world that such a file plays waits for that import, which waits for the world. The library's
    line names the module; one that runs a cell, a test or an application does not.
    """
    frame: FrameType | None = sys._getframe(2)
    user = module = ""
    while frame is not None:
        name = shown(frame.f_code.co_filename)
        if frame.f_code.co_name == "<module>" and is_users(name):
            user, module = name, str(frame.f_globals.get("__name__"))
        elif user and not name.startswith("python/"):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            if not is_users(name) and re.search(rf"\b(from|import) +{re.escape(module)}\b", line):
                raise RuntimeError(
                    f"{user} plays a world while {name} imports it, in the place of a package of "
                    "that name: neither can ever start. Rename the file"
                )
            user = ""
        frame = frame.f_back


def _run(
    main: Callable[[], Coroutine[Any, Any, T]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> T:
    async def named() -> T:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("the main task")
        return await main()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(named())
