"""The service as a process that can crash at any moment and restart on its database."""

import asyncio
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from x402sim.service.app import service_app
from x402sim.service.background import run_background
from x402sim.service.state import Service, restarted
from x402sim.world.assembly.hooks import NO_HOOKS, Hooks
from x402sim.world.transport.middleware import ABORT


class Process:
    """An ASGI application and its background work, which crash and restart together.

    `hooks` may change the service and its application at each start.
    """

    def __init__(self, service: Service, hooks: Hooks = NO_HOOKS) -> None:
        self._plain, self._hooks = service, hooks
        self._load()
        self.crashes = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._background: asyncio.Task[None] | None = None

    def _load(self) -> None:
        self.service = self._hooks.service(self._plain)
        app = service_app(self.service)
        self.paths = paths_of(app)
        """The paths that the service serves, as its routes spell them."""
        self._app = self._hooks.app(self.service, app)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a crash of the service breaks the connection."""
        life, task = self.crashes, asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if life == self.crashes:
                raise
            task.uncancel()
            await scope[ABORT]("lost")
        finally:
            self._tasks.discard(task)

    def start_background(self) -> None:
        """Start the indexer, the sweeps and the reconciler."""
        self._background = asyncio.create_task(run_background(self.service))

    def crash(self) -> None:
        """Crash and restart: only the database survives, and requests in flight are aborted."""
        self.crashes += 1
        for task in self._tasks:
            task.cancel()
        self._plain = restarted(self._plain)
        self._load()
        if self._background:
            self._background.cancel()
            self.start_background()

    async def stop(self) -> None:
        """Stop the background work."""
        if self._background:
            self._background.cancel()
            with suppress(asyncio.CancelledError):
                await self._background


def paths_of(app: Starlette) -> list[str]:
    """Return the paths that an application serves, as its routes spell them."""
    return [route.path for route in app.routes if isinstance(route, Route)]
