"""An HTTP server: uvicorn with limits on message sizes, and connections that faults can break."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from x402sim import web
from x402sim.protocol.refusals import RequestError
from x402sim.world.transport.middleware import ABORT

MAX_HEAD_BYTES = 512 * 1024
MAX_MESSAGE_BYTES = 8 * web.MAX_BODY_BYTES
"""The most bytes of a message on the wire, chunking and trailers included."""
GRACE_S = 5
"""Seconds that requests in flight may take to finish when the server stops."""


class HttpProtocol(HttpToolsProtocol):
    """HTTP with limits on heads, chunks and trailers."""

    _message_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """Feed data to the parser, or close the connection if the message is too long."""
        self._message_bytes += len(data)
        limit = MAX_HEAD_BYTES if self._in_head else MAX_MESSAGE_BYTES
        if self._message_bytes > limit:
            self.transport.close()
        else:
            super().data_received(data)

    def on_headers_complete(self) -> None:
        """Put the function that breaks this connection into the ASGI scope, for faults."""
        self._in_head = False
        self.scope[ABORT] = self._abort  # type: ignore[literal-required]
        super().on_headers_complete()

    async def _abort(self, _: str) -> None:
        """Break the connection; returns when it is broken."""
        self.transport.abort()
        while not self.cycle.disconnected:
            await asyncio.tasks.sleep(0)

    def on_message_complete(self) -> None:
        """Reset the count."""
        self._in_head, self._message_bytes = True, 0
        super().on_message_complete()


def one_host(app: ASGIApp) -> ASGIApp:
    """Return `app`, with 400 for a request that has no Host header, or several (RFC 9112, 3.2)."""

    async def require(scope: Scope, receive: Receive, send: Send) -> None:
        hosts = sum(name == b"host" for name, _ in scope["headers"])
        if hosts == 1:
            await app(scope, receive, send)
        else:
            wrong = RequestError.INVALID_HOST
            refusal = web.error(400, wrong.text, f"expected one Host header, got {hosts}")
            await refusal(scope, receive, send)

    return require


class Server(uvicorn.Server):
    """Uvicorn without signal handlers: the code that started it sets `should_exit`."""

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            one_host(app),
            http=HttpProtocol,
            log_config=None,  # uvicorn logs to the handlers of the program, as all else does
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `on_ready`."""
        await super().startup(sockets)
        self._on_ready()
