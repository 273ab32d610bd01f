"""An HTTP server: uvicorn on connections of our own, with limits and deadlines.

A head of more than 512 KiB is answered 431, and a request that arrives too slowly 408: its head has
10 seconds, its body 30. A connection without a request is closed, after 10 seconds if it never sent
one, and after 75 seconds otherwise: later than clients stop using it.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from x402sim.http import web
from x402sim.protocol.refusals import RequestError
from x402sim.world.server.connection import DEADLINES, Deadlines, HttpConnection, Shared
from x402sim.world.server.workers import Workers

GRACE_S = 5
"""Seconds that requests in flight may take to finish when the server stops."""


def outermost(app: ASGIApp, trusted: str | list[str]) -> ASGIApp:
    """Return `app`, with 400 for a request that has no Host header, or several (RFC 9112, 3.2).

    Of a proxy at a `trusted` address, it believes for whom and by what scheme it asks. It answers
    503 to requests that are unfinished when the server stops.
    """
    proxied: Any = ProxyHeadersMiddleware(cast(Any, app), trusted)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers, asked = scope["headers"], app
        names, hosts = dict(headers), 1
        if len(names) != len(headers) or b"host" not in names:
            hosts = [name for name, _ in headers].count(b"host")
        if hosts != 1:
            wrong = RequestError.INVALID_HOST
            asked = web.error(400, wrong.text, f"expected one Host header, got {hosts}")
        elif b"x-forwarded-proto" in names or b"x-forwarded-for" in names:
            asked = proxied
        try:
            await asked(scope, receive, send)
        except asyncio.CancelledError:  # unfinished when a stopping server's grace period ends
            if not scope[web.CONNECTION].is_started:
                stopped = web.error(503, "Server stopped", "ask again when it is back")
                await stopped(scope, receive, send)

    return serve


class Server(uvicorn.Server):
    """Uvicorn without signal handlers: the code that started it sets `should_exit`."""

    def __init__(
        self,
        app: ASGIApp,
        on_ready: Callable[[], None],
        deadlines: Deadlines = DEADLINES,
        *,
        on_stop: Callable[[], None] = lambda: None,
        has_websocket: Callable[[str], bool] = lambda _: False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._workers = Workers()
        shared = Shared(self._workers, deadlines, has_websocket=has_websocket)

        def connected(*, config: Any, server_state: Any, **_: Any) -> HttpConnection:
            return HttpConnection(config.loaded_app, server_state, shared)

        config = uvicorn.Config(
            cast(Any, app),
            http=cast(Any, connected),
            timeout_keep_alive=deadlines.idle_s,
            log_config=None,  # uvicorn logs to the handlers of the program, as all else does
            log_level="error",  # a warning for each request that is not HTTP would fill a disk
            access_log=False,
            server_header=False,
            proxy_headers=False,  # `outermost` reads them
            interface="asgi3",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
        config.app = cast(Any, outermost(app, config.forwarded_allow_ips))
        super().__init__(config)
        self._on_ready, self._on_stop, self._tls = on_ready, on_stop, tls

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `on_ready`."""
        self.config.ssl = self._tls
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_stop`, which ends what would never end by itself, then wait for the requests."""
        self._on_stop()
        await super().shutdown(sockets)
        self._workers.stop()
