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
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
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


MOST_CANCELLED = 100
"""How many cancelled timers may wait for their time, if they are not half of all."""
MAX_STEPS = 1_000_000
"""The most steps of a loop within `MOMENT_S`; a payment takes about 10."""
MOMENT_S = 0.001
"""One moment of virtual time, in seconds: the journal's unit."""
_SOON_S = 1e-6
"""Timers so near fire together: far from 0, the nanosecond of asyncio is lost in rounding."""
_SAMPLE = 1000
"""The number of steps, the last ones before the error, of which it tells what ran."""


class Deadlock(RuntimeError):
    """Every task waits, or a story does, and no timer or I/O is pending that could wake it."""


class TimeStandsStill(RuntimeError):
    """Work goes on at one moment of virtual time, without end; the text says whose."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time; `time()` is in seconds since it was made.

    It never waits for a timer, but jumps to it. Its timers are compared as tuples, which takes less
    than half the time of asyncio's.
    """

    # asyncio's own
    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self) -> None:
        self.now_s = 0.0
        """The virtual time, as `time` returns it."""
        self._in_threads = 0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._turns: list[tuple[int, int, asyncio.Future[None]]] = []
        self._awaited: list[asyncio.Future[Any]] = []
        """What the callers of tasks in their first step wait for, the innermost last."""
        self.in_transit: dict[str, bool] = {}
        """The exchanges over this loop's sockets, and whether their bytes are in transit."""
        self.newest: Callable[[], str] = lambda: ""
        """Says what happened last, for `TimeStandsStill`."""
        self.on_standstill: Callable[[TimeStandsStill], None] | None = None
        """Takes the first `TimeStandsStill`, if something can stop the work; else it is raised."""
        self._moment_s, self._steps = 0.0, 0
        self._seen: Counter[str] = Counter()
        super().__init__()
        self._sockets: Mapping[int, object] = self._selector._fd_to_key  # type: ignore[attr-defined]
        """What to ask the system about; one is the loop's own wake-up."""

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

    def set_debug(self, enabled: bool) -> None:
        """Turn asyncio's debug mode on or off; it is asked for with every future and handle."""
        super().set_debug(enabled)
        self.get_debug = partial(bool, enabled)  # type: ignore[method-assign]  # no frame of Python

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Have a function called in the next step."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Set a timer; timers of the same time fire in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    async def begin(
        self, work: Coroutine[Any, Any, None], name: str, result: asyncio.Future[Any]
    ) -> asyncio.Task[None]:
        """Return a new task whose `result` the caller is about to await.

        If nothing else can run, its first step is done: in the order of any task, but without two
        steps of the loop. It must see what goes on forever, so this counts as one.
        """
        task = asyncio.Task(work, loop=self, name=name)
        self._steps += 1
        first = self._ready.pop()
        if not self._is_at_rest() or self._steps > MAX_STEPS - _SAMPLE:
            self._ready.append(first)
            return task
        caller = asyncio.current_task(self)
        assert caller is not None
        self._awaited.append(result)
        asyncio.tasks._leave_task(self, caller)
        try:
            first._run()
        finally:
            asyncio.tasks._enter_task(self, caller)
            self._awaited.pop()
        if result.done() and not self._is_at_rest():
            await asyncio.sleep(0)  # noqa: TID251 - no time passes
        return task

    async def turn(self, order: int) -> None:
        """Return when nothing else can run; of several waiters the lowest `order` goes first."""
        if self._is_at_rest():
            return
        waiter: asyncio.Future[None] = self.create_future()
        heapq.heappush(self._turns, (order, next(self._order), waiter))
        await waiter

    def _is_at_rest(self) -> bool:
        """Whether nothing can run but the task that asks: neither task nor timer, nor bytes."""
        if self._ready or self._turns or self._in_threads or len(self._sockets) > 1:
            return False
        if self._awaited and self._awaited[-1].done():  # its caller can go on
            return False
        return not self._timers or self._timers[0][0] >= self.now_s + _SOON_S

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

    def _run_once(self) -> None:
        """Run all that is ready, the bytes of sockets and the timers that are due among it."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._timer_cancelled_count -= 1
        is_idle = not (ready or self._stopping or (timers and timers[0][0] <= self.now_s))
        if self._in_threads or len(self._sockets) > 1:  # else there is nothing to ask about
            grace_s = GRACE_S if any(self.in_transit.values()) else 0.0
            may_wait_s = None if self._in_threads else grace_s
            found = self._selector.select(may_wait_s if is_idle else 0)
            self._process_events(found)  # type: ignore[attr-defined]
            is_idle = is_idle and not found and not self._in_threads
        if is_idle and not self.give_turn():
            self._jump()
        self._step()
        soon_s = self.now_s + _SOON_S
        while timers and timers[0][0] < soon_s:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):  # what these make ready is for the next time
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Count a cancelled timer; drop all of them if they are many."""
        super()._timer_handle_cancelled(handle)  # type: ignore[misc]
        timers = self._timers
        if self._timer_cancelled_count > max(MOST_CANCELLED, len(timers) // 2):
            timers[:] = [each for each in timers if not each[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0

    def _jump(self) -> None:
        """Jump to the next timer; raises `Deadlock` if there is none."""
        if not self._timers:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"nothing can wake these tasks: {', '.join(waiting) or 'none'}")
        self.now_s = max(self.now_s, self._timers[0][0])

    def _step(self) -> None:
        """Count a step of the loop; raises `TimeStandsStill` after `MAX_STEPS` at one moment."""
        self._steps += 1
        if self.now_s - self._moment_s >= MOMENT_S:
            self._moment_s, self._steps = self.now_s, 0
        elif self._steps > MAX_STEPS - _SAMPLE:
            self._seen.update(_name(handle) for handle in self._ready)
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

    @property
    def is_awaited(self) -> bool:
        """Whether a timer is set that is not of periodic work."""
        return any(
            not timer._cancelled and not timer._context.get(is_periodic, False)  # type: ignore[attr-defined]
            for *_, timer in self._timers
        )

    @property
    def must_wait(self) -> bool:
        """Whether a thread or bytes in transit run outside virtual time."""
        return self._in_threads > 0


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
