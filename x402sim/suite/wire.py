"""The sockets of a case: requests as received, and answers that may be lost, cut, slow or endless.

Each connection carries one request: on a reused connection that is closed, a client library might
repeat a request without being asked.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import httptools

from x402sim.clock import Clock
from x402sim.protocol.messages import decoded

CLOCK = Clock()
MOST_BYTES = 8 << 20
"""The most bytes of a request; a longer request is refused by closing the connection."""
READ_S = 30.0
DRIP_S = 0.02
"""Seconds between the pieces of an endless answer."""
PIECE = b" " * 4096
LAST_S = 0.05
"""Seconds for accepting and reading connections at the end."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as received: header names in lower case, and the host in `at`."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    at: str

    @property
    def path(self) -> str:
        """The path, without the query."""
        return self.target.split("?", 1)[0]

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is no JSON, or nested too deep."""
        return decoded(self.body)


class How(Enum):
    """How an answer reaches the payer."""

    WHOLE = "whole"
    LOST = "lost"
    """The connection ends without a byte."""
    CUT = "cut"
    """Half of the body arrives, under a header with its full length."""
    ENDLESS = "endless"
    """The body never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer; `after_s` seconds pass before its first byte."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    how: How = How.WHOLE
    after_s: float = 0


def as_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a value as a JSON answer."""
    content = {"Content-Type": "application/json", **(headers or {})}
    return Reply(status=status, headers=content, body=json.dumps(value).encode())


class _Reader:
    """The callbacks of the parser."""

    def __init__(self) -> None:
        self.target, self.headers, self.body = b"", list[tuple[str, str]](), bytearray()
        self.is_complete = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.decode("latin-1").lower(), value.decode("latin-1").strip()))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


async def _read(stream: asyncio.StreamReader, out: asyncio.StreamWriter) -> Request | None:
    reader = _Reader()
    parser = httptools.HttpRequestParser(reader)
    seen, is_told = 0, False
    while not reader.is_complete and seen < MOST_BYTES:
        piece = await stream.read(65536)
        if not piece:
            return None
        seen += len(piece)
        parser.feed_data(piece)
        headers = dict(reader.headers)
        if headers.get("expect", "").lower() == "100-continue" and not is_told:
            is_told = True
            out.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    headers = dict(reader.headers)
    method = parser.get_method().decode()
    return Request(
        method,
        reader.target.decode("latin-1"),
        headers,
        bytes(reader.body),
        headers.get("host", ""),
    )


async def _write(reply: Reply, out: asyncio.StreamWriter) -> None:
    await CLOCK.sleep(reply.after_s)
    if reply.how is How.LOST:
        return
    length = len(reply.body) + (1 << 40 if reply.how is How.ENDLESS else 0)
    headers = {"Content-Length": str(length), "Connection": "close", **reply.headers}
    reason = HTTPStatus(reply.status).phrase
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    out.write(f"HTTP/1.1 {reply.status} {reason}\r\n{head}\r\n".encode("latin-1"))
    out.write(reply.body[: len(reply.body) // 2] if reply.how is How.CUT else reply.body)
    await out.drain()
    while reply.how is How.ENDLESS:
        out.write(PIECE)
        await out.drain()
        await CLOCK.sleep(DRIP_S)


@asynccontextmanager
async def listening(
    answer: Callable[[Request], Awaitable[Reply]], port: int = 0
) -> AsyncIterator[int]:
    """Listen on a port of 127.0.0.1 (0 for a free port), and yield the port.

    Connections end with the block. Requests sent before the end are answered: a payment at the last
    moment counts.
    """
    open_now: set[asyncio.Task[None]] = set()
    unread: set[asyncio.Task[None]] = set()

    async def serve(stream: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        unread.add(task)
        try:
            # a connection still open at the end of its case is cancelled
            with suppress(OSError, TimeoutError, httptools.HttpParserError, asyncio.CancelledError):
                async with asyncio.timeout(READ_S):
                    request = await _read(stream, out)
                unread.discard(task)
                if request is not None:
                    await _write(await answer(request), out)
        finally:
            open_now.discard(task)
            unread.discard(task)
            out.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        try:
            await CLOCK.sleep(LAST_S)  # waiting connections are accepted
        finally:  # also when the case is cancelled in this sleep
            server.close()
        if unread:
            await asyncio.wait(unread, timeout=LAST_S)
        for task in list(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)


# --- twists: changes of a call by a part behind the subject -------------------------------------

AnyTwist = Callable[[object, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Gets the call and a function that does the work; returns the answer."""
AnyCall = TypeVar("AnyCall")


@dataclass(slots=True, kw_only=True, eq=False)
class Twisted(Generic[AnyCall]):
    """A part behind the subject: the record of calls, and the twists of answers."""

    calls: list[AnyCall] = field(default_factory=list)
    """Every call, in order."""
    twists: list[Callable[[AnyCall, Any], Awaitable[Any]]] = field(default_factory=list)

    @contextmanager
    def twisted(self, *twists: Callable[[AnyCall, Any], Awaitable[Any]]) -> Iterator[None]:
        """Twist the answers within a `with` block; the last twist decides first."""
        self.twists += twists
        try:
            yield
        finally:
            self.twists = [each for each in self.twists if each not in twists]

    async def called(self, call: AnyCall, work: Callable[[], Awaitable[Any]]) -> Any:
        """Keep a call, and return the answer of a twist, or else of the work, done once at most."""
        self.calls.append(call)
        done: list[Any] = []

        async def go() -> Any:
            if not done:
                done.append(await work())
            return done[0]

        for twist in reversed(list(self.twists)):
            if (answer := await twist(call, go)) is not None:
                return answer
        return await go()


def says(reply: Reply, *, after: bool = False) -> AnyTwist:
    """Return a twist with this answer, given instead of the work, or `after` the work."""

    async def twist(_: object, go: Callable[[], Awaitable[Any]]) -> Reply:
        if after:
            await go()
        return reply

    return twist


def late(seconds: float, *, after: bool) -> AnyTwist:
    """Return a twist that answers `seconds` late: `after` the work, or before the work."""

    async def twist(_: object, go: Callable[[], Awaitable[Any]]) -> Any:
        if not after:
            await CLOCK.sleep(seconds)
            return await go()
        done = await go()
        await CLOCK.sleep(seconds)
        return done

    return twist
