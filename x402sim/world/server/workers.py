"""The tasks that answer requests, one after another: a new one for each costs more."""

import asyncio
from typing import Any


class Workers:
    """Tasks that answer a request, and then wait for another one; so many wait at most."""

    def __init__(self, most_idle: int = 64) -> None:
        self._most_idle = most_idle
        self._idle: list[tuple[asyncio.Task[Any], asyncio.Future[Any]]] = []

    def begin(self, exchange: Any, app: Any, busy: set[asyncio.Task[Any]]) -> None:
        """Answer a request in a task, which is among the `busy` meanwhile."""
        if self._idle:
            task, waiter = self._idle.pop()
            waiter.set_result((exchange, app))
        else:
            task = asyncio.create_task(self._work(exchange, app, busy))
            task.add_done_callback(busy.discard)
        busy.add(task)

    async def _work(self, exchange: Any, app: Any, busy: set[asyncio.Task[Any]]) -> None:
        task: Any = asyncio.current_task()
        loop = task.get_loop()
        while True:
            await exchange.run(app)
            busy.discard(task)
            if task.cancelling() or len(self._idle) >= self._most_idle:
                return
            del exchange, app  # who waits keeps no request
            waiter = loop.create_future()
            self._idle.append((task, waiter))
            exchange, app = await waiter

    def stop(self) -> None:
        """End the tasks that wait."""
        while self._idle:
            self._idle.pop()[1].cancel()
