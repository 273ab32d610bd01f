"""One request on a connection and its answer, as ASGI has them, on a transport with backpressure.

The head of an answer is written together with the first part of its body. An answer that costs its
client something (the application has called `is_closed`) is written only to a client that is still
connected: the connection is checked before the head and again before the body, and `is_answered`
says whether both were written.
"""

import asyncio
import logging
import re
import select
import socket
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Message, Scope

from x402sim.http import web


class Wire:
    """The transport of one connection, with backpressure for the answers on it."""

    __slots__ = ("_has_ended", "_may_write", "_poll", "is_lost", "is_paused", "transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.is_lost = self.is_paused = False
        self._poll: Any = None
        self._may_write, self._has_ended = asyncio.Event(), asyncio.Event()

    @property
    def is_closing(self) -> bool:
        """Whether nothing that is written from now on can leave."""
        return self.is_lost or self.transport.is_closing()

    def has_ended(self) -> bool:
        """Tell whether the client has closed its side, by polling the socket.

        The event loop may not have polled since, and does not poll while reading is paused.
        """
        if self.is_closing:
            return True
        if self._poll is None:
            # uvloop would buffer the next write until its iteration ends; it must be sent now
            self.transport.set_write_buffer_limits(high=0)
            self._poll = _eof_poll(self.transport.get_extra_info("socket").fileno())
        return bool(self._poll())

    def write(self, data: bytes) -> None:
        """Write; if the client is found gone, `is_closing` is true afterwards."""
        self.transport.write(data)

    def pause(self) -> None:
        """Note that the client does not read what was written."""
        self.is_paused = True
        self._may_write.clear()

    def resume(self) -> None:
        """Resume the answers: the client has read."""
        self.is_paused = False
        self._may_write.set()

    def lose(self) -> None:
        """Note that the connection has ended."""
        self.is_lost = True
        self._has_ended.set()
        self.resume()

    async def drained(self) -> None:
        """Return when the client has read enough to write more, or is gone."""
        while self.is_paused:
            await self._may_write.wait()

    async def lost(self) -> None:
        """Return when the connection has ended."""
        await self._has_ended.wait()


def _eof_poll(number: int) -> Any:
    """Return the function that tells whether the peer of a socket has closed its side."""
    if hasattr(select, "POLLRDHUP"):
        stream = select.poll()
        stream.register(number, select.POLLRDHUP)  # poll reports errors and resets always
        return lambda: stream.poll(0)
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
    """A request whose body arrives in parts, and its answer."""

    __slots__ = (
        "_body",
        "_form",
        "_head",
        "_is_guarded",
        "_is_read",
        "_left",
        "_on_end",
        "_on_read",
        "_waiter",
        "_wants_continue",
        "_wire",
        "headers",
        "is_complete",
        "is_gone",
        "is_started",
        "keep_alive",
        "more_body",
        "scope",
    )

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
        self._left = 0
        """The bytes of the body that the head has announced and that are not written yet."""
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
        """Tell whether the client has hung up; from now on that is checked before its answer."""
        self._is_guarded = True
        return self.is_gone or self._wire.has_ended()

    def is_answered(self) -> bool:
        """Tell whether the whole answer was written before the client hung up."""
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
        """Have an application answer; one that fails to is answered 500, or cut off."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            # an application of ours logs what it raises and answers 500: twice would be once too
            # often; the connection of one that had begun its answer is cut off below
            if not self.is_started:
                log.exception("an application raised, and had not answered")
        finally:
            if not (self.is_started or self.is_gone):
                await self._fail()
            elif not (self.is_complete or self.is_gone):
                self._wire.transport.close()
            del self.scope  # it refers to this object: only the collector would find the two

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
        """Write a part of the answer; raises `RuntimeError` for one that no client could read."""
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
            self._wire.transport.close()
            return
        if not more:
            self.is_complete, self._body = True, b""
            self._wake()
            if not self.keep_alive:
                self._wire.transport.close()
            self._on_end()

    def _write_checked(self, data: bytes) -> bool:
        """Write to a client that is still there; tell whether it was, as far as can be known.

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
        names, values = zip(*self.headers, *headers, strict=True) if headers else ((), ())
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
        if form.is_streamed:
            self._wire.write(self._head)
            self._head = b""

    def _framed(self, data: bytes, more: bool) -> bytes:
        """Return a part of the body as it is written."""
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

    async def _fail(self) -> None:
        """Answer 500 for an application that has not answered, and close."""
        self.keep_alive = False
        head = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(_ERROR))]
        await self.send({"type": "http.response.start", "status": 500, "headers": head})
        await self.send({"type": "http.response.body", "body": _ERROR})


class _Form(NamedTuple):
    """The head of answers with a status and these headers."""

    text: bytes
    """With a %b for each value."""
    lines: int
    length_at: int | None
    """Which of the headers is the Content-Length, if the length counts."""
    close_at: int | None
    """Which of them is Connection."""
    has_body: bool
    is_chunked: bool

    @property
    def is_streamed(self) -> bool:
        """Whether the body comes when it comes: its client gets the head before."""
        return self.has_body and self.length_at is None


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
