"""The queue before a part's servers: so many requests at a time, first in, first out.

A request takes a server for its service time and then for the part's own work, until it is
answered. Faults act before a request queues and after it is answered. A client that gives up stays
in the queue, and is served in its turn: a server seldom knows that it is gone.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.durations import service_times
from x402sim.events import Part, RequestArrived, RequestEnded, RequestStarted, clipped
from x402sim.explorer.index import ExplorerSettings
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.http import web
from x402sim.journal import Journal
from x402sim.rng import Stream
from x402sim.service.settings import Settings
from x402sim.world.transport.faults import require_path
from x402sim.world.transport.strike import read_request, replay

_full = web.error(503, "Queue full", "as many requests wait as can; try again later")


class Queue:
    """The servers of one part, and who waits for them; `numbers` numbers requests of all parts.

    Raises `ValueError` for the time of a path that the part lacks.
    """

    def __init__(
        self,
        part: Part,
        settings: FacilitatorSettings | ExplorerSettings | Settings,
        paths: Sequence[str],
        clock: Clock,
        journal: Journal,
        stream: Stream,
        numbers: Iterator[int],
    ) -> None:
        assert settings.servers is not None
        self._part, self._clock, self._journal = part, clock, journal
        self._stream, self._numbers = stream, numbers
        self._servers, self._most = settings.servers, float("inf")
        if settings.queue_length is not None:
            self._most = settings.servers + settings.queue_length
        self._times = service_times(settings.service_time_s)
        for path in self._times:
            try:
                require_path(part, path, paths)
            except ValueError as wrong:
                raise ValueError(f"service_time_s: {wrong}") from None
        self._inside: set[int] = set()
        """The requests that wait or are served."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def before(self, app: ASGIApp) -> ASGIApp:
        """Return an application whose requests queue here."""

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["path"] if scope["type"] == "http" else None
            times = (each for end, each in self._times.items() if path and path.endswith(end))
            if (duration := next(times, None)) is None:  # it takes no server
                await app(scope, receive, send)
            else:  # a whole request has arrived: no bytes of it are on their way while it waits
                messages, _ = await read_request(receive)
                whole = replay(messages, receive)
                await self._serve(app, duration(self._stream), scope, whole, send)

        return serve

    def lose(self) -> None:
        """Forget all requests: the part has crashed, and their tasks are cancelled."""
        for request in sorted(self._inside):
            self._record(RequestEnded(self._part, request, "lost"))
        self._inside.clear()

    async def _serve(
        self, app: ASGIApp, service_s: float, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # drawn on arrival: more servers give the same requests the same times
        request, ahead = next(self._numbers), len(self._inside)
        self._record(RequestArrived(self._part, request, clipped(scope["path"]), ahead))
        if ahead >= self._most:
            self._record(RequestEnded(self._part, request, "refused"))
            await _full(scope, receive, send)
            return
        self._inside.add(request)
        try:
            if ahead >= self._servers:
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
            self._record(RequestStarted(self._part, request))
            if service_s:
                await self._clock.sleep(service_s)
            await app(scope, receive, send)
        finally:
            self._free(request, scope.get(web.CONNECTION, web.UNKNOWN))

    def _free(self, request: int, connection: web.Connection) -> None:
        if request not in self._inside:
            return  # lost
        self._inside.discard(request)
        task = asyncio.current_task()
        if not (task and task.cancelling()):  # else the world ends: its journal has ended, too
            is_answered = connection.is_answered()
            self._record(RequestEnded(self._part, request, "served" if is_answered else "left"))
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its task may have been cancelled
                turn.set_result(None)
                return

    def _record(self, event: RequestArrived | RequestStarted | RequestEnded) -> None:
        self._journal.record(self._clock.now_ms(), event)
