"""An HTTP server: uvicorn with limits and deadlines, and connections that faults can break.

A head of more than 512 KiB is answered 431, and a request that arrives too slowly 408: its head has
10 seconds, its body 30. A connection without a request is closed, after 10 seconds if it never sent
one, and after 75 seconds otherwise: later than clients stop using it.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Literal, cast
from urllib.parse import unquote

import httptools
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from x402sim.http import web
from x402sim.protocol.refusals import RequestError, status_of
from x402sim.spec.decisions import Decisions
from x402sim.world.server.cycle import Cycle
from x402sim.world.server.workers import Workers
from x402sim.world.transport.middleware import ABORT

MAX_HEAD_BYTES = 512 * 1024
MAX_MESSAGE_BYTES = 8 * web.MAX_BODY_BYTES
"""The most bytes of a message on the wire, chunking and trailers included."""
GRACE_S = 5
"""Seconds that requests in flight may take to finish when the server stops."""
LINGER_S = 1
"""Seconds in which a client that is still sending can read why it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a connection may wait for its client, in seconds."""

    head_s: float = 10
    """For the head of a request: from its first byte, or from the connection if it is the first."""
    body_s: float = 30
    """For the body, from the end of the head."""
    idle_s: int = 75
    """For the next request on a connection."""


DEADLINES = Deadlines()
"""The deadlines of every server that states no others."""


_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}
_Awaited = Literal["head", "body", "nothing"]
"""What the client has to send next; nothing while its answer is on its way."""


class HttpProtocol(HttpToolsProtocol):
    """HTTP with limits on heads, chunks and trailers, and with deadlines."""

    def __init__(
        self, *args: Any, deadlines: Deadlines | None, workers: Workers, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines, self._workers = deadlines, workers
        self._message_bytes = 0
        self._has_begun = False
        self._awaited: _Awaited = "head"
        self._watched: _Awaited | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_refused = False
        self._idle_since: float | None = None
        self._begun: Any = None
        """The newest request that is not behind another one: `cycle` may be behind it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_watching()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self.cycle = self._begun  # it learns of the end; what is behind it never begins
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed data to the parser, or refuse the request if its head or the whole is too long."""
        self._message_bytes += len(data)
        in_head = self._awaited != "body"
        if self._is_refused:
            if self._message_bytes > MAX_MESSAGE_BYTES:
                self.transport.close()
        elif self._message_bytes <= (MAX_HEAD_BYTES if in_head else MAX_MESSAGE_BYTES):
            super().data_received(data)
            self._watch()
        elif in_head:
            self._refuse(RequestError.HEAD_TOO_LARGE, f"at most {MAX_HEAD_BYTES} bytes are read")
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        """Wait for this message's head."""
        self._has_begun = True
        self._awaited, self._watched = "head", None
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_headers_complete(self) -> None:
        """Begin the request, or put it behind another one; wait for the body.

        The ASGI scope tells of the connection, too, and has the function that breaks it, for
        faults.
        """
        parser, url, before = self.parser, httptools.parse_url(self.url), self.cycle
        path, version = url.path.decode("ascii"), parser.get_http_version()
        is_last = version == "1.0" or not parser.should_keep_alive()
        scope: Any = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": self.headers,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            ABORT: self._abort,
        }
        self.scope = scope
        # nothing can follow a request to upgrade, either: the parser takes it for a protocol
        self.cycle = cycle = Cycle(self, keep_alive=not (is_last or parser.should_upgrade()))
        self._awaited, self._watched = "body", None
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Let a worker answer a request."""
        self._begun = cycle
        self._workers.begin(cycle, app, self.tasks)

    async def _abort(self, how: str) -> None:
        """Break the connection; returns when it is broken.

        "cut" first lets what was written leave, as an abort would drop it.
        """
        cycle = self._begun
        if how == "cut":
            self.transport.close()
        else:
            self.transport.abort()
        while not (cycle.disconnected or cycle.response_complete):  # a slow reader may take long
            cycle.message_event.clear()
            await cycle.message_event.wait()

    def on_message_complete(self) -> None:
        """Reset the count."""
        self._message_bytes, self._has_begun = 0, False
        self._awaited, self._watched = "nothing", None
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._refuse(RequestError.INVALID_HTTP, None)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a request to upgrade is answered as if it did not ask."""

    def on_response_complete(self) -> None:
        """Begin the next request or wait for it: one timer a connection, not one a request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._close_when_idle()

    def _unset_keepalive_if_required(self) -> None:
        """Note that the connection is used; its timer runs on."""
        self._idle_since = None

    def _close_when_idle(self) -> None:
        """Close a connection that has been idle for long enough; otherwise look again."""
        now = self.loop.time()
        left_s = (self._idle_since or now) + self.timeout_keep_alive - now
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self._close_when_idle)
        else:
            self.timeout_keep_alive_handler()

    # --- deadlines -------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self) -> None:
        """Set the deadline for what the client has to send next, once."""
        if self._deadlines is None or self._is_refused:
            return
        if self._awaited == "nothing" and not self._is_answering:
            self._awaited = "head"  # the rest of a body that was answered before it came
            self._watched = None
        if self._awaited == self._watched:
            return
        self._stop_watching()
        self._watched = self._awaited
        if self._awaited != "nothing":
            is_head, most = self._awaited == "head", self._deadlines
            self._set_deadline(most.head_s if is_head else most.body_s)

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self.loop.call_later(seconds, self._too_late, seconds)

    def _stop_watching(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self, seconds: float) -> None:
        """Refuse a request that did not arrive in time, unless we did not read it."""
        is_behind = self._awaited == "head" and self._is_answering
        if is_behind or self.flow.read_paused:
            self._set_deadline(seconds)
        elif not self._has_begun:
            self.transport.close()
        else:
            self._refuse(RequestError.TIMED_OUT, f"its {self._awaited} has {seconds:g} s to arrive")

    # --- refusals --------------------------------------------------------------------

    def _refuse(self, wrong: RequestError, reason: str | None) -> None:
        """Answer an error unless an answer is on its way, and close the connection.

        What the client sends meanwhile is read and ignored, to a limit: otherwise the answer could
        be lost.
        """
        self._is_refused = True
        self._stop_watching()
        self._unset_keepalive_if_required()
        if self._awaited == "body" and self.cycle.response_started:
            self.transport.close()
            return
        if self._awaited != "body" and self._is_answering:
            self.cycle.keep_alive = False  # the answer to an earlier request is the last
            return
        if self.cycle:
            self.cycle.disconnected = True  # the application reads no more, and answers nobody
            self.cycle.message_event.set()
        self.flow.resume_reading()
        self.transport.write(_refusal(wrong, reason))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def _refusal(wrong: RequestError, reason: str | None) -> bytes:
    """Return the answer to a request that never reaches the application."""
    status = HTTPStatus(status_of(wrong, Decisions()))
    response = web.error(status, wrong.text, reason)
    response.headers["connection"] = "close"
    head = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
    line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    return line + head + b"\r\n" + bytes(response.body)


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
            if not scope[web.CONNECTION].response_started:
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
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._workers = Workers()
        protocol: Any = partial(HttpProtocol, deadlines=deadlines, workers=self._workers)
        config = uvicorn.Config(
            cast(Any, app),
            http=protocol,
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
