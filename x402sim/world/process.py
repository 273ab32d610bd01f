"""A service as a process: application and background work crash and restart together."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.clock import periodic_context
from x402sim.events import Part
from x402sim.service.app import service_app
from x402sim.service.background import Phases, in_step, run_background
from x402sim.service.sessions import undo_debits
from x402sim.service.state import Service, restarted
from x402sim.tasks import InFlight, cancel_all
from x402sim.world.strike import ABORT, Queue
from x402sim.world.world import Hooks

T = TypeVar("T")

RESTART_S = 1.0
"""Seconds of the world's time from a crash until the service runs again. After no time at all, a
fault that crashes the service at each start would strike without end at one moment."""


class ServiceProcess:
    """An ASGI application with background work, which crash and restart together.

    `hooks` may change the service and its application at each start. `phases` say when periodic
    work begins after the first start, as if the service had been running already; a restart begins
    every interval anew. `outside` has the parts called by the service, behind the faults that may
    crash the service. `queue` makes the queue of each start, given the paths; None is no queue.
    """

    def __init__(
        self,
        service: Service,
        hooks: Hooks = Hooks(),  # noqa: B008 - frozen, without state
        phases: Phases = in_step,
        outside: Mapping[Part, ASGIApp] | None = None,
        queue: Callable[[Sequence[str]], Queue | None] = lambda _: None,
    ) -> None:
        self._plain, self._hooks, self._phases = service, hooks, phases
        self._make_queue = queue
        self._queue: Queue | None = None
        self.outside = outside or {}
        self.app: ASGIApp = self
        """What callers reach: this process, in a world behind faults and perhaps a cache."""
        self._load()
        self.crashes = 0
        self._tasks = InFlight()
        self._has_background = False
        self._background: asyncio.Task[None] | None = None
        self._restart: asyncio.Task[None] | None = None

    def _load(self) -> None:
        self.service = self._hooks.service(self._plain)
        app = service_app(self.service)
        self.paths = [] if self.service.env.shop else paths_of(app)
        """The paths of the service, as the routes spell them; empty if a user adds others."""
        self._app = self._hooks.app(self.service, app)
        if self._queue is not None:
            self._queue.lose()
        self._queue = self._make_queue(self.paths)
        if self._queue is not None:
            self._app = self._queue.before(self._app)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one request; a crash breaks the connection, a restart refuses the request."""
        if self._restart is not None:
            refuse: Callable[[str], Awaitable[None]] = scope[ABORT]
            return refuse("refused")
        return self._cut_by_a_crash(self._app(scope, receive, send), scope.get(ABORT))

    async def do(self, job: Callable[[Service], Awaitable[T]]) -> T | None:
        """Return `job(service)`, done once the process runs; None after a crash."""
        await self.runs()
        return await self._cut_by_a_crash(job(self.service))

    async def _cut_by_a_crash(
        self, work: Awaitable[T], abort: Callable[[str], Awaitable[None]] | None = None
    ) -> T | None:
        """Await work of this process; if a crash ends the work, break the client's connection."""
        task = asyncio.current_task()
        assert task is not None
        life, cancellations = self.crashes, task.cancelling()
        self._tasks.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            for _ in range(self.crashes - life):
                task.uncancel()
            if life == self.crashes or task.cancelling() > cancellations:
                raise  # something else has cancelled it, too
        finally:
            self._tasks.discard(task)
        if abort is not None:
            await abort("lost")
        return None

    def start_background(self) -> None:
        """Start the indexer, the sweeps and the reconciler, now and after each restart."""
        self._has_background = True
        phases = in_step if self.crashes else self._phases
        self._background = asyncio.create_task(
            run_background(self.service, phases),
            name="the service's background work",
            context=periodic_context(),
        )

    def crash(self) -> None:
        """Crash and restart: only the database survives, and requests in flight are aborted.

        Until the service runs again, `RESTART_S` later, connections are refused. A crash during
        the restart begins this time anew.
        """
        self.crashes += 1
        for task in self._tasks:
            task.cancel()
        self._plain = restarted(self._plain)
        self._load()
        for work in (self._background, self._restart):
            if work is not None:
                work.cancel()
        self._restart = asyncio.create_task(self._start_again(), name="the service's restart")

    async def _start_again(self) -> None:
        await self._plain.clock.sleep(RESTART_S)
        self._restart = None
        if self._has_background:
            self.start_background()

    async def runs(self) -> None:
        """Return when the service runs: at once, unless it is restarting."""
        while self._restart is not None:
            await asyncio.wait({self._restart})

    async def stop(self) -> None:
        """Stop the background work and a restart, and undo the debits that are still to undo."""
        await cancel_all(work for work in (self._restart, self._background) if work is not None)
        undo_debits(self.service)

    async def close(self) -> None:
        """Stop the process, and close the database."""
        await self.stop()
        self.service.store.close()


def paths_of(app: Starlette) -> list[str]:
    """Return the paths of an application, as the routes spell them."""
    return [route.path for route in app.routes if isinstance(route, Route)]
