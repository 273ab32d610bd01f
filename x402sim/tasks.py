"""Tasks in flight, the oldest first.

asyncio keeps tasks in sets, ordered by address in memory. If a crash, or the end of a world,
cancelled tasks in this order, the journal would differ from run to run.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any


class InFlight(dict[asyncio.Task[Any], None]):
    """The tasks that have begun and not ended, the oldest first."""

    __slots__ = ()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Keep a task."""
        self[task] = None

    def discard(self, task: asyncio.Task[Any]) -> None:
        """Drop a task, if it is kept."""
        self.pop(task, None)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a task until it ends."""
        self.add(task)
        task.add_done_callback(self.discard)


class Turns:
    """Runs one piece of work in each turn of the event loop, in order of arrival.

    However much work some clients have for a server, every other client waits for one piece only.
    """

    __slots__ = ("_taken_in", "_waiting")

    def __init__(self) -> None:
        self._waiting = deque[Callable[[], object]]()
        self._taken_in: asyncio.AbstractEventLoop | None = None
        """The loop whose turn is taken; work waiting in an ended loop is dropped."""

    def later(self, work: Callable[[], object]) -> None:
        """Call `work` in its turn: at once if the present turn is free."""
        if self._takes():
            work()
        else:
            self._waiting.append(work)

    async def mine(self) -> None:
        """Return when the caller's turn comes; the turn lasts until the caller's next await."""
        if self._takes():
            return
        waiter = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():  # else cancelled
                waiter.set_result(None)

        self._waiting.append(wake)
        await waiter

    def _takes(self) -> bool:
        """Take the present turn, and return whether it was free."""
        loop = asyncio.get_running_loop()
        if self._taken_in is loop:
            return False
        self._taken_in = loop
        self._waiting.clear()
        loop.call_soon(self._next, loop)
        return True

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            self._taken_in = None
            return
        loop.call_soon(self._next, loop)
        self._waiting.popleft()()


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks in order, and return when all have ended; their errors are dropped."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


@asynccontextmanager
async def together() -> AsyncIterator[Callable[[Coroutine[Any, Any, None], str], None]]:
    """Run tasks beside a `with` block, and wait for all tasks at the end.

    If a task fails, or the block raises, the other tasks are cancelled, the oldest first. Raises an
    `ExceptionGroup` of what the tasks raised. An `asyncio.TaskGroup` does the same, but cancels in
    the order of a set.
    """
    outer = asyncio.current_task()
    assert outer is not None
    running, failures, cancellations = InFlight(), list[BaseException](), outer.cancelling()
    is_over = False

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            failures.append(failure)
            if len(failures) == 1 and not is_over:
                outer.cancel()  # the block, or the end of it, may be waiting for something else

    def begin(work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        running.keep(task)
        task.add_done_callback(ended)

    try:
        yield begin
        while running:
            await asyncio.wait(running)
    except asyncio.CancelledError:
        if not failures or outer.uncancel() > cancellations:
            raise  # something else has cancelled it
    finally:
        is_over = True
        await cancel_all(running)
    if failures:
        raise BaseExceptionGroup("tasks failed", failures)
