"""A connection of the server: HTTP/1.1 on httptools, with limits, deadlines and backpressure.

Requests on one connection are answered one after another, each by an `Exchange`. While a request is
answered, later bytes stay unparsed, and reading pauses as soon as any come. So a connection holds
little, however much the client pipelines.

The head of an answer is written together with the first part of the body. An application that calls
`is_closed` is about to charge the client. From then on the connection is checked before the head
and again before the body, nothing is written to a client after the hang-up, and `is_answered`
reports whether both were written.
"""

import asyncio
import logging
import re
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, NoReturn, cast
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp, Message, Scope
from uvicorn.server import ServerState

from x402sim.http import web
from x402sim.http.limits import (
    BODY_S,
    FREE_BYTES,
    FREE_UNREAD_BYTES,
    HEAD_S,
    IDLE_S,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_HELD_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_TARGET_BYTES,
    MAX_UNREAD_BYTES,
    READ_BYTES,
    UNREAD_S,
)
from x402sim.protocol.refusals import RequestError, status_of
from x402sim.spec.decisions import Decisions
from x402sim.tasks import Turns
from x402sim.world.strike import ABORT


class Wire:
    """The transport of a connection, with backpressure for the answers."""

    def __init__(self, transport: asyncio.Transport, shared: "Shared") -> None:
        self.transport, self._shared = transport, shared
        self._unread_bytes = 0  # what is counted in `shared`
        self._deadline: asyncio.TimerHandle | None = None
        self.is_lost = self.is_paused = False
        self._poll: Any = None
        self._may_write, self._has_ended = asyncio.Event(), asyncio.Event()

    @property
    def is_closing(self) -> bool:
        """Whether nothing that is written from now on can leave."""
        return self.is_lost or self.transport.is_closing()

    def has_ended(self) -> bool:
        """Return whether the client has closed its side, by polling the socket.

        The event loop may not have polled it since, and does not while reading is paused.
        """
        if self.is_closing:
            return True
        if self._poll is None:
            # uvloop would buffer the next write until its iteration ends; it must be sent now
            self.transport.set_write_buffer_limits(high=0)
            self._poll = _eof_poll(self.transport.get_extra_info("socket").fileno())
        return bool(self._poll())

    def write(self, data: bytes) -> None:
        """Write; if the client is found gone, `is_closing` is true afterwards.

        The connection is broken if all clients together have too much to read already.
        """
        is_long, shared = len(data) > FREE_UNREAD_BYTES, self._shared
        if is_long and shared.unread_bytes + len(data) > MAX_UNREAD_BYTES:
            self.transport.abort()
            return
        self.transport.write(data)
        if is_long:
            self._count_unread()

    def close(self) -> None:
        """End the connection after the pending writes, if the client reads in time."""
        self.transport.close()
        if self.transport.get_write_buffer_size() and self._shared.deadlines is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(self._shared.deadlines.unread_s, self.transport.abort)

    def pause(self) -> None:
        """Note that the client does not read, and wait no longer than the deadline."""
        self.is_paused = True
        self._may_write.clear()
        self._wait_for_reader()

    def resume(self) -> None:
        """Resume the answers: the client has read."""
        self.is_paused = False
        self._may_write.set()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._count_unread()

    def lose(self) -> None:
        """Note that the connection has ended."""
        self.is_lost = True
        self._has_ended.set()
        self.resume()

    def _count_unread(self) -> None:
        size = 0 if self.is_lost else self.transport.get_write_buffer_size()
        counted = size if size > FREE_UNREAD_BYTES else 0
        self._shared.unread_bytes += counted - self._unread_bytes
        self._unread_bytes = counted

    def _wait_for_reader(self) -> None:
        if self._shared.deadlines is not None:
            self._deadline = asyncio.get_running_loop().call_later(
                self._shared.deadlines.unread_s,
                self._require_reader,
                self.transport.get_write_buffer_size(),
            )

    def _require_reader(self, before: int) -> None:
        """Break the connection if its client has read too little of the bytes `before`."""
        if before - self.transport.get_write_buffer_size() < READ_BYTES:
            self.transport.abort()
        else:
            self._count_unread()
            self._wait_for_reader()

    async def drained(self) -> None:
        """Return when the client has read enough to write more, or is gone."""
        while self.is_paused:
            await self._may_write.wait()

    async def lost(self) -> None:
        """Return when the connection has ended."""
        await self._has_ended.wait()


def _eof_poll(number: int) -> Any:
    """Return a poll of whether the peer of a socket has closed."""
    if hasattr(select, "POLLRDHUP"):
        stream = select.poll()
        stream.register(number, select.POLLRDHUP)  # poll reports errors and resets always
        return partial(stream.poll, 0)
    return lambda: _peek_is_eof(number)


def _peek_is_eof(number: int) -> bool:
    """Peek at the next byte of a socket: there is none at the end of the stream."""
    with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as copy:
        try:
            return copy.recv(1, socket.MSG_PEEK) == b""
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # it was reset
            return True


log = logging.getLogger("x402sim")
_NO_TOKEN = re.compile(rb"[^!#$%&'*+.^_`|~0-9a-z-]|^$")
_CONTROLS = bytes({*range(32), 127} - {9})
"""The bytes that no header may hold; each line of a head ends with two of them."""
_ERROR = b"Internal Server Error"


class Exchange(web.Connection):
    """A request with a body in parts, and the answer."""

    is_socket = True

    def __init__(
        self,
        wire: Wire,
        scope: Scope,
        headers: list[tuple[bytes, bytes]],
        *,
        keep_alive: bool,
        wants_continue: bool,
        on_read: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        """`headers` begin every answer.

        `on_read` is called when a part of the body was read and more comes, `on_end` when the
        answer is complete.
        """
        self.scope, self.headers, self.keep_alive = scope, headers, keep_alive
        scope[web.CONNECTION] = self
        self._wire, self._on_read, self._on_end = wire, on_read, on_end
        self._wants_continue = wants_continue
        self._body, self._head = b"", b""
        self._form: _Form
        self._left = 0  # the announced bytes of the body still to write
        self._waiter: asyncio.Future[None] | None = None
        self._is_guarded = self._is_read = False
        self.more_body = True
        """Whether the client has more of the body to send."""
        self.is_gone = self.is_started = self.is_complete = False

    # --- calls of the application ----------------------------------

    async def drained(self) -> None:
        """Return when earlier answers have left, or the client."""
        await self._wire.drained()

    def is_closed(self) -> bool:
        """Return whether the client has hung up; from now on, check its answer (see the top)."""
        self._is_guarded = True
        return self.is_gone or self._wire.has_ended()

    def is_answered(self) -> bool:
        """Return whether the whole answer was written before the client hung up."""
        return self.is_complete

    # --- calls of the connection --------------------------------------------------------

    @property
    def waiting_bytes(self) -> int:
        """The bytes of the body that the application has not taken yet."""
        return len(self._body)

    def feed(self, data: bytes) -> None:
        """Take a part of the body; after the answer it is dropped."""
        if not (self.is_complete or self.is_gone):
            self._body += data
            self._wake()

    def end_of_body(self) -> None:
        """Note that the body is complete."""
        self.more_body = False
        self._wake()

    def leave(self) -> None:
        """Note that the client is gone, or gets an error instead: nothing more is written."""
        if not self.is_complete:
            self.is_gone, self._body = True, b""
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- ASGI -----------------------------------------------------------------------------

    async def run(self, app: ASGIApp) -> None:
        """Have an application answer; after a failure the client gets 500, or is cut off."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            # an application of ours has logged the error and answered 500: log it only if nothing
            # was answered; if the answer had begun, the connection is cut off below
            if not self.is_started:
                log.exception("an application raised, and had not answered")
        finally:
            if not (self.is_started or self.is_gone):
                self.keep_alive = False
                head = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_ERROR))]
                await self.send({"type": "http.response.start", "status": 500, "headers": head})
                await self.send({"type": "http.response.body", "body": _ERROR})
            elif not (self.is_complete or self.is_gone):
                self._wire.close()
            del self.scope  # a cycle with this object would wait for the garbage collector

    async def receive(self) -> Message:
        """Return the next part of the body; after it, "http.disconnect" once the client leaves."""
        if self._wants_continue and not self._wire.is_closing:
            self._wants_continue = False
            self._wire.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self.is_gone or self.is_complete) and (
            self._is_read or (self.more_body and not self._body)
        ):
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self.is_gone or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        self._is_read = not self.more_body
        if self.more_body:
            self._on_read()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        """Write a part of the answer; raises `RuntimeError` for a malformed answer."""
        if self._wire.is_paused:
            await self._wire.drained()
        if self.is_gone:
            return
        is_start = message["type"] == "http.response.start"
        if self.is_complete or self.is_started is is_start:
            raise RuntimeError(f"{message['type']!r} is not what follows here")
        if is_start:
            self._start(message["status"], message.get("headers", ()))
            return
        more, data = message.get("more_body", False), message.get("body", b"")
        head, data = self._head, self._framed(data, more)
        self._head = b""
        if not self._is_guarded:
            self._wire.write(head + data)
        elif not self._write_checked(head) or not self._write_checked(data):
            self.is_gone = True
            self._wire.close()
            return
        if not more:
            self.is_complete, self._body = True, b""
            self._wake()
            if not self.keep_alive:
                self._wire.close()
            self._on_end()

    def _write_checked(self, data: bytes) -> bool:
        """Write to a client that is still connected; return whether it was, as far as is known.

        A client that hangs up after the head is noticed before the body is written, and pays
        nothing. There is no check after the body: a client could read it, hang up at once, and
        have been served for nothing.
        """
        if not data:
            return True
        if self._wire.has_ended():
            return False
        self._wire.write(data)
        return not self._wire.is_closing  # unless the write has met a reset

    def _start(self, status: int, headers: Any) -> None:
        """Make the head; it is written with the body, unless the body is streamed."""
        pairs = [*self.headers, *headers]
        names, values = zip(*pairs, strict=True) if pairs else ((), ())
        scope = self.scope
        form = _form(
            status,
            names,
            has_body=scope["method"] != "HEAD" and status not in (204, 304),
            can_chunk=scope["http_version"] != "1.0",
            is_last=not self.keep_alive,
        )
        head = form.text % values
        if len(head) - len(head.translate(None, _CONTROLS)) != 2 * form.lines:
            raise RuntimeError("a header of the answer holds a control character")
        if form.length_at is not None:
            self._left = int(values[form.length_at])
        if form.close_at is not None:
            self.keep_alive = self.keep_alive and b"close" not in values[form.close_at].lower()
        self.is_started, self._wants_continue = True, False
        self._form, self._head = form, head
        if form.has_body and form.length_at is None:  # a body of no known length is streamed
            self._wire.write(self._head)
            self._head = b""

    def _framed(self, data: bytes, more: bool) -> bytes:
        form = self._form
        if not form.has_body:
            return b""
        if form.is_chunked:
            chunk = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        if form.length_at is not None:
            self._left -= len(data)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of the answer has not the length that its head says")
        return data


class _Form(NamedTuple):
    """The head of answers with a status and these headers."""

    text: bytes
    """With a %b for each value."""
    lines: int
    length_at: int | None
    """The index of the Content-Length among the headers, if the length counts."""
    close_at: int | None
    """The index of Connection among the headers."""
    has_body: bool
    is_chunked: bool


@lru_cache(maxsize=64)  # an application has few forms, and a head is made for each answer
def _form(
    status: int, names: tuple[bytes, ...], *, has_body: bool, can_chunk: bool, is_last: bool
) -> _Form:
    """Return the form of a head; raises `RuntimeError` for a name that no header may have."""
    lowered = tuple(name.lower() for name in names)
    if wrong := [name for name in lowered if _NO_TOKEN.search(name)]:
        raise RuntimeError(f"no header is named {wrong[0]!r}")
    is_chunked = has_body and can_chunk and b"content-length" not in lowered
    own = []
    if is_last and b"connection" not in lowered:
        own.append(b"connection: close\r\n")
    if is_chunked and b"transfer-encoding" not in lowered:
        own.append(b"transfer-encoding: chunked\r\n")
    phrase = HTTPStatus(status).phrase if status in _STATUSES else ""
    lines = [b"%b: %%b\r\n" % name.replace(b"%", b"%%") for name in lowered]
    first = f"HTTP/1.1 {status} {phrase}\r\n".encode()
    return _Form(
        text=b"".join([first, *lines, *own, b"\r\n"]),
        lines=len(lines) + len(own) + 2,
        length_at=lowered.index(b"content-length")
        if b"content-length" in lowered and has_body
        else None,
        close_at=lowered.index(b"connection") if b"connection" in lowered else None,
        has_body=has_body,
        is_chunked=is_chunked,
    )


_STATUSES = {each.value for each in HTTPStatus}


# --- the connection ---------------------------------------------------------------------

LINGER_S = 1
"""Seconds for a client that is still sending to read the refusal."""
MOST_WAITING_BYTES = 64 * 1024
"""Reading pauses above so many bytes of a body not yet taken by the application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long a connection may wait for its client, in seconds."""

    head_s: float = HEAD_S
    """For a head: from the first byte; for the first request, from the connection."""
    body_s: float = BODY_S
    """For the body, from the end of the head."""
    idle_s: int = IDLE_S
    """For the next request on a connection."""
    unread_s: float = UNREAD_S
    """The deadline for a client to read some of the written bytes."""


DEADLINES = Deadlines()
"""The default deadlines of a server."""


class Workers:
    """A pool of tasks that each answer one request at a time; at most `most_idle` wait.

    A new task for each request would make a 402 some 5 % slower (20 alternating rounds).
    """

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
            del exchange, app  # an idle task keeps no request alive
            waiter = loop.create_future()
            self._idle.append((task, waiter))
            exchange, app = await waiter

    def stop(self) -> None:
        """End the tasks that wait."""
        while self._idle:
            self._idle.pop()[1].cancel()


@dataclass(slots=True)
class Shared:
    """The common state of a server's connections."""

    workers: Workers
    deadlines: Deadlines | None = DEADLINES
    held_bytes: int = 0
    """The bytes of requests held by connections, beyond each connection's free bytes."""
    unread_bytes: int = 0
    """The bytes of unread answers, beyond each client's free bytes."""
    turns: Turns = field(default_factory=Turns)
    """The turns in which connections parse many received bytes."""
    websocket_at: Callable[[str], "Callable[..., Any] | None"] = lambda _: None
    """Returns the maker of a WebSocket at a path; None for a path without WebSockets."""

    def count_held(self, size: int, before: int) -> int | None:
        """Count the bytes that a connection holds, in place of the bytes `before`; return the
        counted bytes. None if too many, and then nothing is counted.
        """
        counted = size if size > FREE_BYTES else 0
        more = counted - before
        if more > 0 and self.held_bytes + more > MAX_HELD_BYTES:
            return None
        self.held_bytes += more
        return counted


_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}
BYTES_A_TURN = 4096
"""Bytes of a chunked body parsed in a turn: some hundred chunks of a byte."""
_Awaited = Literal["head", "body", "nothing"]
"""What the client has to send next; nothing while a whole request waits for its answer."""


class HttpConnection(asyncio.Protocol):
    """One connection: parses requests, has each answered, and closes what takes too long.

    `state` is uvicorn's: its sets of connections and tasks, and the headers of every answer.
    """

    def __init__(self, app: ASGIApp, state: ServerState, shared: Shared) -> None:
        self._app, self._state, self._shared = app, state, shared
        self._parser = httptools.HttpRequestParser(self)
        self._wire: Wire
        self._about: dict[str, Any] = {}
        """The keys of every request's scope that describe the connection."""
        self._exchange: Exchange | None = None
        """The newest request: the next begins only after the answer."""
        self._rest, self._at = b"", 0
        """The received bytes, and the number of parsed bytes."""
        self._tail = b""
        """The last parsed bytes of a head or a chunked body: the end may begin there."""
        self._body_left: int | None = 0
        """The bytes of the body that are to come; None if it is chunked."""
        self._awaited: _Awaited = "head"
        self._watched: _Awaited | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since: float | None = None
        self._message_bytes = self._held_bytes = 0
        self._has_begun = self._is_refused = self._is_reading_paused = False
        self._has_turn = False  # whether the rest is parsed in a later turn
        self._wrong: tuple[RequestError, str | None] = RequestError.INVALID_HTTP, None
        """The refusal of a request that the parser does not take."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._wants_continue = False
        self._upgrade: Callable[[bytes], Any] | None = None
        """The maker of a WebSocket of the connection, given the head of the request."""

    # --- calls of the transport -------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first head."""
        self._wire = Wire(cast(asyncio.Transport, transport), self._shared)
        self._state.connections.add(cast(Any, self))
        extra = transport.get_extra_info
        self._about = {
            "server": _address(extra("sockname")),
            "client": _address(extra("peername")),
            "scheme": "https" if extra("sslcontext") else "http",
        }
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the request that is being answered, and every wait."""
        self._state.connections.discard(cast(Any, self))
        self._stop_watching()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._shared.held_bytes -= self._held_bytes
        self._rest, self._at, self._held_bytes = b"", 0, 0
        self._wire.lose()
        if self._exchange is not None:
            self._exchange.leave()

    def pause_writing(self) -> None:
        """Let answers wait: the client does not read."""
        self._wire.pause()

    def resume_writing(self) -> None:
        """Let answers go on."""
        self._wire.resume()

    def data_received(self, data: bytes) -> None:
        """Parse what is the next request's; the rest waits until that is answered."""
        if self._is_refused:
            self._message_bytes += len(data)
            if self._message_bytes > MAX_MESSAGE_BYTES:
                self._wire.close()
            return
        if self._at == len(self._rest):
            self._rest, self._at = data, 0
        else:
            self._rest, self._at = self._rest[self._at :] + data, 0
        self._parse()

    def shutdown(self) -> None:
        """Close after the current answer; uvicorn calls this."""
        if self._exchange is not None and self._is_answering:
            self._exchange.keep_alive = False
        else:
            self._wire.close()

    # --- parsing --------------------------------------------------------------------------

    @property
    def _is_answering(self) -> bool:
        return self._exchange is not None and not self._exchange.is_complete

    @property
    def _is_whole(self) -> bool:
        """Whether a whole request waits for the answer, so that nothing more is parsed."""
        return self._awaited == "nothing" and self._is_answering

    def _parse(self) -> None:
        """Parse piece by piece, to the end of one request at most, and a chunked body in turns."""
        if self._has_turn:
            return
        most = self._at + BYTES_A_TURN
        try:
            while self._at < len(self._rest) and not (self._is_whole or self._is_refused):
                if self._at >= most and not self._body_left:
                    self._has_turn = True
                    self._shared.turns.later(self._go_on)
                    break
                if self._awaited == "nothing":
                    self._message_bytes = 0  # the one before is answered
                self._feed(self._piece())
        except httptools.HttpParserUpgrade:
            if self._upgrade is not None:
                self._become_websocket(self._upgrade)
                return  # else the request is answered as an ordinary one, and is the last
        except httptools.HttpParserError:
            self._refuse(*self._wrong)
        self._control_flow()

    def _go_on(self) -> None:
        self._has_turn = False
        self._parse()

    def _piece(self) -> bytes:
        """Take the bytes to the end of a head or of a body, and not beyond.

        With more bytes the parser would begin all pipelined requests.
        """
        data, start = self._rest, self._at
        if self._body_left:
            self._at = min(start + self._body_left, len(data))
            return data[start : self._at]
        most = min(len(data), start + BYTES_A_TURN) if self._awaited == "body" else len(data)
        end = _end_of_empty_line(self._tail, data, start, most)
        self._at = most if end is None else end
        piece = data[start : self._at]
        self._tail = (self._tail + piece)[-3:] if end is None else b""
        return piece

    def _feed(self, piece: bytes) -> None:
        """Parse a piece, or refuse the request if its head or the whole is too long."""
        self._message_bytes += len(piece)
        in_head = self._awaited != "body"
        if self._message_bytes <= (MAX_HEAD_BYTES if in_head else MAX_MESSAGE_BYTES):
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                if self._upgrade is not None or self._body_left == 0:
                    raise
                self._ignore_upgrade()
        elif in_head:
            self._refuse(RequestError.HEAD_TOO_LARGE, f"at most {MAX_HEAD_BYTES} bytes are read")
        else:
            self._wire.close()
            self._is_refused = True

    def _ignore_upgrade(self) -> None:
        """Parse the body of a request to upgrade, which a parser skips (RFC 9110, 7.8)."""
        calls = SimpleNamespace(on_body=self.on_body, on_message_complete=self.on_message_complete)
        self._parser = httptools.HttpRequestParser(calls)
        framing = [
            b"%b: %b\r\n" % header
            for header in self._headers
            if header[0].lower() in (b"content-length", b"transfer-encoding")
        ]
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing))

    # the parser calls these

    def on_message_begin(self) -> None:
        """Wait for this message's head."""
        if self._is_answering and self._awaited == "nothing":
            raise ValueError("a request behind one that is not answered")  # `_piece` ends before
        self._has_begun, self._idle_since = True, None
        self._awaited, self._watched = "head", None
        self._url, self._headers, self._wants_continue = b"", [], False
        self._body_left = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the request's target."""
        self._url += url
        if len(self._url) > MAX_TARGET_BYTES:
            self._reject(f"at most {MAX_TARGET_BYTES} bytes of path and query are read")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; the parser has checked the header with the body's length.

        Trailers of a chunked body come here, too, and are dropped: none of our headers is defined
        as a trailer, and a merged trailer could pay, or name another client (RFC 9110, 6.5.1).
        """
        if self._awaited == "body":
            return
        name = name.lower()
        if name == b"content-length" and self._body_left is not None:
            self._body_left = int(value)
        elif name == b"transfer-encoding":
            self._body_left = None
        elif name == b"expect" and value.lower() == b"100-continue":
            self._wants_continue = True
        self._headers.append((name, value))
        if len(self._headers) > MAX_HEADERS:
            self._reject(f"at most {MAX_HEADERS} headers are read")

    def _reject(self, reason: str) -> NoReturn:
        self._wrong = RequestError.HEAD_TOO_LARGE, reason
        raise ValueError(reason)

    def on_headers_complete(self) -> None:
        """Have the request answered, perhaps before the body has come.

        The ASGI scope also describes the connection, with a function for faults to break it.
        """
        parser, url = self._parser, httptools.parse_url(self._url)
        path, version = url.path.decode("ascii"), parser.get_http_version()
        # nothing can follow a request to upgrade, either: the parser takes it for a protocol
        is_last = version == "1.0" or not parser.should_keep_alive() or parser.should_upgrade()
        scope: Any = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            **self._about,
            "root_path": "",
            "headers": self._headers,
            "method": parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            ABORT: self._abort,
        }
        self._awaited, self._watched = "body", None
        self._upgrade = self._websocket(scope)
        if self._upgrade is not None:
            return
        self._exchange = Exchange(
            self._wire,
            scope,
            self._state.default_headers,
            keep_alive=not is_last,
            wants_continue=self._wants_continue,
            on_read=self._control_flow,
            on_end=self._answered,
        )
        self._shared.workers.begin(self._exchange, self._app, self._state.tasks)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        assert self._exchange is not None
        if self._body_left is not None:
            self._body_left -= len(body)
        self._exchange.feed(body)

    def on_message_complete(self) -> None:
        """Parse nothing more until the request is answered."""
        if self._upgrade is not None or (self._parser.should_upgrade() and self._body_left != 0):
            return
        assert self._exchange is not None
        self._awaited, self._watched = "nothing", None
        self._has_begun, self._body_left = False, 0
        self._exchange.end_of_body()

    def _websocket(self, scope: dict[str, Any]) -> Callable[[bytes], Any] | None:
        """Return the maker of a WebSocket, if the request validly upgrades the connection."""
        if not self._parser.should_upgrade():
            return None
        names = [value.lower() for name, value in self._headers if name == b"upgrade"]
        if names != [b"websocket"]:
            return None
        made = self._shared.websocket_at(scope["path"])
        if made is None or scope["method"] != "GET" or self._body_left != 0:
            return None
        return lambda head: made(self._wire, scope, head, self._state, self._shared)

    def _become_websocket(self, made: Callable[[bytes], Any]) -> None:
        lines = (b"%b: %b\r\n" % header for header in self._headers)
        head = b"GET %b HTTP/1.1\r\n%b\r\n" % (self._url, b"".join(lines))
        rest = self._rest[self._at :]
        self._stop_watching()
        self._count_held(0)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._state.connections.discard(cast(Any, self))
        frames = made(head)
        self._wire.transport.set_protocol(frames)
        self._shared.workers.begin(frames, self._app, self._state.tasks)
        frames.data_received(rest)

    # --- one request after the other ------------------------------------------------------

    def _answered(self) -> None:
        """Begin the next request, or wait: with one timer a connection, none a request."""
        self._state.total_requests += 1
        if self._wire.is_closing:
            return
        if self._idle_timer is None:
            self._close_when_idle()
        self._parse()

    def _close_when_idle(self) -> None:
        """Close a connection after enough idle time; otherwise set the timer again."""
        if self._shared.deadlines is None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        left_s = (self._idle_since or now) + self._shared.deadlines.idle_s - now
        if left_s > 0:
            self._idle_timer = loop.call_later(left_s, self._close_when_idle)
        else:
            self._wire.close()

    def _control_flow(self) -> None:
        """Pause or resume reading, count the bytes held, and set the deadline for the next part.

        While a request is answered, reading continues, so that a disconnect is noticed; it pauses
        as soon as pipelined bytes arrive.
        """
        if self._wire.is_closing:
            return
        unparsed = len(self._rest) - self._at
        waiting = self._exchange.waiting_bytes if self._exchange is not None else 0
        is_full = unparsed > 0 and (self._is_whole or self._has_turn)
        is_full = is_full or waiting > MOST_WAITING_BYTES
        if is_full is not self._is_reading_paused:
            self._is_reading_paused = is_full
            transport = self._wire.transport
            (transport.pause_reading if is_full else transport.resume_reading)()
        if self._awaited == "nothing" and not self._is_answering and self._idle_since is None:
            self._idle_since = asyncio.get_running_loop().time()
        in_hand = self._message_bytes if self._awaited != "nothing" or self._is_answering else 0
        self._count_held(unparsed + in_hand)
        self._watch()

    def _count_held(self, size: int) -> None:
        """Count the bytes held here; refuse if all connections hold more than `MAX_HELD_BYTES`."""
        counted = self._shared.count_held(size, self._held_bytes)
        if counted is None:
            self._refuse(RequestError.BUSY, None)
        else:
            self._held_bytes = counted

    async def _abort(self, how: str) -> None:
        """Break the connection, at once or ("cut") behind what is written; return when it is."""
        (self._wire.close if how == "cut" else self._wire.transport.abort)()
        await self._wire.lost()

    # --- deadlines -------------------------------------------------------------------

    def _watch(self) -> None:
        if self._shared.deadlines is None or self._is_refused or self._awaited == self._watched:
            return
        self._stop_watching()
        self._watched = self._awaited
        if self._awaited != "nothing":
            is_head, most = self._awaited == "head", self._shared.deadlines
            self._set_deadline(most.head_s if is_head else most.body_s)

    def _set_deadline(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._too_late, seconds)

    def _stop_watching(self) -> None:
        if self._deadline:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self, seconds: float) -> None:
        """Refuse a request that did not arrive in time, unless reading was paused."""
        if self._is_reading_paused:
            self._set_deadline(seconds)
        elif not self._has_begun:
            self._wire.close()
        else:
            self._refuse(RequestError.TIMED_OUT, f"its {self._awaited} has {seconds:g} s to arrive")

    # --- refusals --------------------------------------------------------------------

    def _refuse(self, wrong: RequestError, reason: str | None) -> None:
        """Answer an error unless an answer is on its way, and close the connection.

        Meanwhile bytes of the client are read and ignored, to a limit: otherwise the answer could
        be lost.
        """
        self._is_refused, self._idle_since = True, None
        self._rest, self._at = b"", 0
        self._count_held(0)
        self._stop_watching()
        exchange, transport = self._exchange, self._wire.transport
        if self._is_reading_paused:
            self._is_reading_paused = False
            transport.resume_reading()
        if exchange is not None and not exchange.is_complete:
            if self._awaited == "nothing":
                exchange.keep_alive = False  # its answer is the last
                return
            if exchange.is_started:
                self._wire.close()
                return
            exchange.leave()  # the application reads no more, and answers nobody
        elif self._awaited == "body":  # of a request with an answer already
            self._wire.close()
            return
        status = HTTPStatus(status_of(wrong, Decisions()))
        response = web.error(status, wrong.text, reason)
        response.headers["connection"] = "close"
        head = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
        line = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        transport.write(line + head + b"\r\n" + bytes(response.body))
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self._wire.close)


_EMPTY_LINE = b"\r\n\r\n"


def _end_of_empty_line(before: bytes, data: bytes, start: int, most: int) -> int | None:
    """Return where the first empty line from `start` ends; None if that is not before `most`.

    The line may begin in the last bytes `before`, which hold no whole empty line.
    """
    seam = (before + data[start : start + 3]).find(_EMPTY_LINE) if before else -1
    if seam >= 0:
        return start + seam + len(_EMPTY_LINE) - len(before)
    found = data.find(_EMPTY_LINE, start, most)
    return found + len(_EMPTY_LINE) if found >= 0 else None


def _address(name: Any) -> tuple[str, int] | None:
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else None
