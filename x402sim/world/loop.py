"""Virtual time: an asyncio loop whose clock jumps to the next timer when nothing is ready.

Ordinary `async def` code runs on it unchanged, and a day passes in milliseconds. Time
starts at 0 and moves only by jumps, so the same code always sees the same times.
"""

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Everybody waits, and nothing is left that could wake anyone."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time; `time()` is in seconds since it was made."""

    def __init__(self) -> None:
        self._virtual_s = 0.0
        self._in_threads = 0
        super().__init__(_Jumping(self))
        # Far from 0 the default of a nanosecond is lost in rounding, and timers never fire.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        """Return the virtual time."""
        return self._virtual_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run a function in a thread; virtual time stands still until it is done."""
        self._in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._left_thread)
        return future

    async def shutdown_default_executor(self, *timeout: Any) -> None:
        """Let the threads end; time stands still until they have."""
        self._in_threads += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._in_threads -= 1

    def _left_thread(self, _: Any) -> None:
        self._in_threads -= 1

    def jump(self) -> None:
        """Move on to the next timer; raises `Deadlock` if there is none."""
        scheduled = self._scheduled  # type: ignore[attr-defined]
        if not scheduled:
            waiting = sorted(task.get_name() for task in asyncio.all_tasks(self))
            raise Deadlock(f"nothing can wake these tasks: {', '.join(waiting) or 'none'}")
        self._virtual_s = max(self._virtual_s, scheduled[0].when())

    @property
    def must_wait(self) -> bool:
        """Whether something outside virtual time is under way."""
        return self._in_threads > 0


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits for a timer: it lets the loop jump to it instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0 or self._loop.must_wait:
            return super().select(timeout and None)
        ready = super().select(0)
        if not ready:
            self._loop.jump()
        return ready


def run_virtual(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `main()` to its end in virtual time and return its result.

    Works in a script and in a notebook cell, where a loop is running already: there it
    takes a thread of its own. Raises what `main` raises, and `Deadlock`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(main)
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(_run(main))
        except BaseException as error:  # noqa: BLE001 - handed to the cell that asked
            future.set_exception(error)

    thread = threading.Thread(target=work, name="x402sim virtual time")
    thread.start()
    thread.join()
    return future.result()


def _run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())
