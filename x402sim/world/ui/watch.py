"""What the page is told while somebody looks: the journal as it grows, and whole requests.

While nobody looks, nothing is kept, and a request costs one comparison.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.clock import Clock
from x402sim.journal import Entry, Journal, line

SHOWN = ("/api/", "/facilitator")
"""Where the paths of the requests begin that are shown."""
MOST_KEPT = 500
MAX_BODY = 16 * 1024
MAX_EXCHANGE = 64 * 1024
"""The bytes of a request and its answer as JSON; of a longer one the headers are left out."""
BATCH = 2000
"""The entries of one message to a reader."""
PAUSE_S = 0.2
BEAT_S = 15.0
"""Seconds after which a silent stream says that it lives."""
_SECRET = (b"authorization", b"proxy-authorization", b"cookie")
_current: ContextVar["Exchange | None"] = ContextVar("the request that is watched", default=None)


class Half(msgspec.Struct):
    """A request or an answer: its headers, and the beginning of its body as text."""

    headers: list[tuple[str, str]] = []
    body: str = ""


class Exchange(msgspec.Struct, kw_only=True):
    """A request and its answer; `status` is None if the connection was broken.

    `seen` are the numbers of the journal's entries that it caused.
    """

    n: int = 0
    at_ms: int
    ms: int = 0
    client: str
    method: str
    path: str
    status: int | None = None
    sent: Half
    answered: Half
    seen: list[int] = []


@dataclass(slots=True)
class _Bodies:
    sent: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)


class Watch:
    """Tells readers what a journal records, and the requests of the applications it is around."""

    def __init__(self, journal: Journal, clock: Clock | None = None) -> None:
        self._journal, self._clock = journal, clock or Clock()
        self._started_ms, self._real = Clock().now_ms(), Clock()
        self._wakes: set[asyncio.Event] = set()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=MOST_KEPT)
        self._count = 0
        self._is_stopped = False

    def stop(self) -> None:
        """End all streams, so that the server can stop."""
        self._is_stopped = True
        self._wake()

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return `app`, whose requests are shown to the readers."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            if not self._wakes or not scope["path"].startswith(SHOWN):
                await app(scope, receive, send)
            else:
                await self._watched(app, scope, receive, send)

        return watched

    async def _watched(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(
            at_ms=self._clock.now_ms(),
            client=(scope.get("client") or ("?",))[0],
            method=scope["method"],
            path=scope["path"],
            sent=Half(_texts(scope["headers"])),
            answered=Half(),
        )
        bodies, took = _Bodies(), self._real.now_ms()

        async def asked() -> Message:
            message = await receive()
            _keep(bodies.sent, message)
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.answered.headers = _texts(message["headers"])
            else:
                _keep(bodies.answered, message)
            await send(message)

        token = _current.set(exchange)
        try:
            await app(scope, asked, answer)
        finally:
            _current.reset(token)
            exchange.ms = self._real.now_ms() - took
            exchange.sent.body = bodies.sent.decode("utf-8", "replace")
            exchange.answered.body = bodies.answered.decode("utf-8", "replace")
            self._add(exchange)

    def _add(self, exchange: Exchange) -> None:
        self._count += 1
        exchange.n = self._count
        text = msgspec.json.encode(exchange)
        if len(text) > MAX_EXCHANGE:
            exchange.sent.headers = exchange.answered.headers = [("(headers)", "too long")]
            text = msgspec.json.encode(exchange)
        self._kept.append((exchange.n, text))
        self._wake()

    # --- the readers -----------------------------------------------------------------

    async def stream(self, since: int, after: int) -> AsyncIterator[bytes]:
        """Yield server-sent events: the journal from entry `since` on, exchanges after a number.

        The first says when this server started: with another one, the numbers begin anew.
        """
        wake = asyncio.Event()
        if not self._wakes:
            self._journal.listeners.append(self._on_entry)
        self._wakes.add(wake)
        try:
            hello = {"started": self._started_ms, "length": self._journal.length}
            yield b"event: hello\ndata: " + msgspec.json.encode(hello) + b"\n\n"
            while not self._is_stopped:
                wake.clear()
                entries = self._journal.since(since)[:BATCH]
                exchanges = [] if len(entries) == BATCH else self._after(after)
                if entries:
                    since = entries[-1].seq + 1
                    yield _event(b"journal", map(line, entries))
                if exchanges:
                    after = exchanges[-1][0]
                    yield _event(b"exchanges", (text for _, text in exchanges))
                if entries or exchanges:
                    await self._real.sleep(PAUSE_S)
                elif not await _is_set(wake, BEAT_S):
                    yield b": nothing new\n\n"
        finally:
            self._wakes.discard(wake)
            if not self._wakes:
                self._journal.listeners.remove(self._on_entry)

    def kept(self) -> list[bytes]:
        """Return the exchanges that are kept, as JSON."""
        return [text for _, text in self._kept]

    def _after(self, number: int) -> list[tuple[int, bytes]]:
        return [kept for kept in self._kept if kept[0] > number]

    def _on_entry(self, entry: Entry) -> None:
        if (exchange := _current.get()) is not None:
            exchange.seen.append(entry.seq)
        self._wake()

    def _wake(self) -> None:
        for wake in self._wakes:
            wake.set()


async def _is_set(wake: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await wake.wait()
    except TimeoutError:
        return False


def _event(name: bytes, lines: Iterable[bytes]) -> bytes:
    return b"event: " + name + b"\n" + b"".join(b"data: " + each + b"\n" for each in lines) + b"\n"


def _keep(body: bytearray, message: Message) -> None:
    body += message.get("body", b"")[: max(0, MAX_BODY - len(body))]


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), "***" if name.lower() in _SECRET else value.decode("latin-1"))
        for name, value in headers
    ]
