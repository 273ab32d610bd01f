"""Virtual time: an asyncio loop whose clock jumps to the next timer when nothing is ready.

Ordinary `async def` code runs on it unchanged, and a day passes in milliseconds. Time starts at 0
and moves only by jumps, so the same code always reads the same times. Simultaneous events have a
fixed order: timers in the order of their setting, and messages one at a time (`turn`), each after
the tasks of the earlier message have come to rest. Work without any time, such as a retry without
a delay, would go on forever at one moment: after `MAX_STEPS`, an error names the work.
"""

import asyncio
import heapq
import itertools
import selectors
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar

from x402sim.clock import is_periodic

T = TypeVar("T")
Found = list[tuple[selectors.SelectorKey, int]]
GRACE_S = 1.0
"""The most real seconds for bytes between two sockets of the loop."""
FEW_TIMERS = 200
"""As many timers may wait before the loop looks for cancelled ones."""
MAX_STEPS = 2_000_000
"""The most steps of a loop within `MOMENT_S`; a payment takes about 10."""
MOMENT_S = 0.001
"""One moment of virtual time, in seconds: the journal's unit."""
_SOON_S = 1e-6  # timers this close fire together: at large times, rounding loses a nanosecond
_SAMPLE = 1000  # how many of the last steps before the error it counts by name


class Deadlock(RuntimeError):
    """Every task waits, or the scenario, and no pending timer or I/O could wake a task."""


class TimeStandsStill(RuntimeError):
    """Work repeats without end at one moment of virtual time; the text says which."""


class _Call:
    """A call that a virtual loop will make, with the methods asyncio needs of handles."""

    __slots__ = ("args", "callback", "context")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context
    ) -> None:
        self.callback: Callable[..., Any] | None = callback
        """None once cancelled, or made."""
        self.args, self.context = args, context

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        """Tell whether the call was cancelled or made."""
        return self.callback is None


class _Timer(_Call):
    """A call at a time; can be cancelled until made."""

    __slots__ = ("_when_s",)

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, when_s: float
    ) -> None:
        self.callback, self.args, self.context = callback, args, context
        self._when_s = when_s

    def when(self) -> float:
        return self._when_s

    @property
    def is_periodic(self) -> bool:
        """Whether the timer belongs to periodic work: nobody waits for periodic work."""
        return self.context.get(is_periodic, False)


class _Selector(selectors.DefaultSelector):
    """Runs the virtual loop in place of asyncio's wait: `select`, called idle in each step."""

    def __init__(self, loop: "VirtualLoop") -> None:
        super().__init__()
        self._loop = loop
        self.has_sockets = False
        """Whether anything is registered but the loop's own wake-up."""

    def register(self, *args: Any, **named: Any) -> selectors.SelectorKey:
        key = super().register(*args, **named)
        self.has_sockets = len(self.get_map()) > 1
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self.has_sockets = len(self.get_map()) > 1
        return key

    def select(self, timeout: float | None = None) -> Found:
        """Make the calls of the loop until there is I/O, and return the I/O.

        The timeout is None unless asyncio itself has something to do.
        """
        return self._loop.make_calls(super().select, is_alone=timeout is None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time; `time()` is in seconds since it was made.

    The loop never waits for a timer, but jumps to the timer's time, and keeps calls and timers
    itself: asyncio's step takes three times as long, asyncio's timers with the same time have no
    order, and asyncio computes a delay, not a time, so that rounding changes the time. asyncio has
    the sockets, the threads and the signals. In `select`, where asyncio would wait, this loop makes
    its calls, in steps: a step makes the calls present at its beginning.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        """The virtual time, as `time` returns it."""
        self._calls: deque[_Call] = deque()
        self._in_threads = 0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._most_timers = FEW_TIMERS  # with more timers, the loop looks for cancelled ones
        self._turns: list[tuple[int, int, asyncio.Future[None]]] = []
        self._is_interrupted = False
        """Whether asyncio has something to do: the loop is to stop, or a thread has called."""
        self.in_transit: dict[str, bool] = {}
        """The exchanges over the loop's sockets, and whether bytes are in transit."""
        self.newest: Callable[[], str] = lambda: ""
        """Returns a sentence about the newest events, for the text of `TimeStandsStill`."""
        self.on_standstill: Callable[[TimeStandsStill], None] | None = None
        """Takes the first `TimeStandsStill`, if something can stop the work; else it is raised."""
        self._moment_s, self._steps = 0.0, 0
        self._recent: Counter[str] = Counter()
        self._watched = _Selector(self)
        super().__init__(self._watched)

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
        """Turn asyncio's debug mode on or off.

        asyncio calls `get_debug` for every future and handle: a partial of a builtin answers it
        without a frame of Python.
        """
        super().set_debug(enabled)
        self.get_debug = partial(bool, enabled)  # type: ignore[method-assign]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Call:
        """Have a function called in the next step."""
        call = _Call(callback, args, copy_context() if context is None else context)
        self._calls.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Have a function called soon, from another thread or from a signal."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._is_interrupted = True
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Timer:
        """Set a timer in seconds from now."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Timer:
        """Set a timer; timers of the same time fire in the order of their setting."""
        timers = self._timers
        if len(timers) > self._most_timers:
            timers[:] = [each for each in timers if each[2].callback is not None]
            heapq.heapify(timers)
            self._most_timers = max(FEW_TIMERS, 2 * len(timers))
        timer = _Timer(callback, args, copy_context() if context is None else context, when)
        heapq.heappush(timers, (when, next(self._order), timer))
        return timer

    def stop(self) -> None:
        """Stop after this step."""
        super().stop()
        self._is_interrupted = True

    async def turn(self, order: int) -> None:
        """Return when nothing else can run; of several waiters the lowest `order` goes first."""
        is_free = not (self._calls or self._in_threads or self._is_interrupted) and (
            not self._watched.has_sockets and (not self._timers or self._timers[0][0] > self.now_s)
        )
        if is_free and not (self._turns and self._turns[0][0] < order):
            return  # at once: the next step would return here
        waiter = asyncio.Future[None](loop=self)
        heapq.heappush(self._turns, (order, next(self._order), waiter))
        await waiter

    def _give_turn(self) -> bool:
        """Wake the next waiter for a turn; False if there is none."""
        while self._turns:
            _, _, waiter = heapq.heappop(self._turns)
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def _left_thread(self, _: Any) -> None:
        self._in_threads -= 1

    def make_calls(self, select: Callable[[float | None], Found], *, is_alone: bool) -> Found:
        """Make calls, step by step, until there is I/O or work for asyncio; return the I/O.

        `is_alone`: asyncio has no work now. asyncio gets I/O at once, before further calls: a call
        may remove the I/O's reader.
        """
        calls = self._calls
        while True:
            for _ in range(len(calls)):
                call = calls.popleft()
                callback, call.callback = call.callback, None
                if callback is None:
                    continue
                if self._steps > MAX_STEPS - _SAMPLE:
                    self._recent[_name(callback)] += 1
                try:
                    call.context.run(callback, *call.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does
                    message = f"Exception in callback {callback}"
                    self.call_exception_handler({"message": message, "exception": error})
            if self._is_interrupted:
                self._is_interrupted = False
                return []
            found = self._pass_time(select, is_idle=is_alone and not calls)
            if found or not is_alone:
                return found

    def _pass_time(self, select: Callable[[float | None], Found], *, is_idle: bool) -> Found:
        """Count a step, and fire the timers that are due in it; return the I/O that is ready.

        `is_idle`: nothing can run yet, not even the end of the loop. Then bytes and threads come
        first, then the next waiter for a turn, and time passes only if there is none.
        """
        timers, found = self._timers, []
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        # what is due now runs before a turn is given, and before time passes
        is_idle = is_idle and not (timers and timers[0][0] <= self.now_s)
        if self._in_threads or self._watched.has_sockets:  # else no I/O can come: save the call
            grace_s = GRACE_S if any(self.in_transit.values()) else 0.0
            may_wait_s = None if self._in_threads else grace_s
            found = select(may_wait_s if is_idle else 0)
            is_idle = is_idle and not found and not self._in_threads
        if is_idle and not self._give_turn():
            if not self._timers:
                waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
                raise Deadlock(f"nothing can wake these tasks: {', '.join(waiting) or 'none'}")
            self.now_s = max(self.now_s, self._timers[0][0])
        self._steps += 1
        if self.now_s - self._moment_s >= MOMENT_S:
            self._moment_s, self._steps = self.now_s, 0
        elif self._steps >= MAX_STEPS:
            self._stand_still()
        soon_s = self.now_s + _SOON_S
        while timers and timers[0][0] < soon_s:
            timer = heapq.heappop(timers)[2]
            if timer.callback is not None:
                self._calls.append(timer)
        return found

    def _stand_still(self) -> None:
        """Take, or raise, `TimeStandsStill`: `MAX_STEPS` were at one moment."""
        error = TimeStandsStill(
            f"virtual time stands still at {self.now_s:.3f} s, for {self._steps} steps. "
            f"The last {_SAMPLE} ran: {most_common(self._recent)}.{self.newest()} Look there for a "
            "loop or a retry that waits for nothing; if so much is meant to happen at one moment, "
            "give the world a latency, or let time pass in between"
        )
        self._steps = 0
        self._recent.clear()
        take, self.on_standstill = self.on_standstill, None
        if take is None:
            raise error
        take(error)

    @property
    def is_awaited(self) -> bool:
        """Whether a timer is set that is not of periodic work."""
        return any(not timer.cancelled() and not timer.is_periodic for *_, timer in self._timers)

    @property
    def must_wait(self) -> bool:
        """Whether a thread runs, which virtual time waits for."""
        return self._in_threads > 0


def _name(callback: Callable[..., Any]) -> str:
    """Return the name of the task that a callback continues, or of the called function."""
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return getattr(callback, "__qualname__", repr(callback))
    name: str = task.get_name()
    return getattr(task.get_coro(), "__qualname__", name) if name.startswith("Task-") else name


def most_common(counts: Counter[str]) -> str:
    """Return the five most common names, each with its count."""
    return ", ".join(f"{name} ({count} times)" for name, count in counts.most_common(5))


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` to the end in virtual time and return the result.

    Raises what `main` raises, `Deadlock`, and `TimeStandsStill`.
    """
    return run_anywhere(main, VirtualLoop)


def run_anywhere(
    main: Callable[[], Coroutine[Any, Any, T]],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run `main()` to the end on a new loop and return the result.

    Works in a script and in a notebook cell, where a loop is running already: there, in a new
    thread. Ctrl-C cancels `main`, which may write down the place.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(main, loop_factory)
    future: Future[T] = Future()
    cancels: list[Callable[[], object]] = []
    is_interrupted = threading.Event()

    async def cancelled_by_us() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancels.append(partial(loop.call_soon_threadsafe, task.cancel))
        if is_interrupted.is_set():  # Ctrl-C came before there was anything to cancel
            task.cancel()
        return await main()

    def work() -> None:
        try:
            future.set_result(_run(cancelled_by_us, loop_factory))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            future.set_exception(error)

    thread = threading.Thread(target=work, name="x402sim")
    try:
        thread.start()  # Ctrl-C may come before it returns, when the thread is already at work
        return future.result()
    except KeyboardInterrupt:
        is_interrupted.set()
        with suppress(RuntimeError):  # its loop has ended already
            for cancel in () if future.done() else cancels:
                cancel()
        # a thread without an `ident` has not begun, and may never: do not wait for it. If it begins
        # after all, `is_interrupted` ends it at once
        if thread.ident is not None:
            wait([future])
        raise


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
