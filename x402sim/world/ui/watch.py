"""What the page is told while somebody looks: the journal as it grows, and whole requests.

The last payments are kept as they were, so that a page that is opened after a refusal shows both
messages; they become text when somebody looks.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec

from x402sim.clock import Clock
from x402sim.journal import Entry, Journal, line
from x402sim.world.transport.requests import Headers, LoggedRequest, Requests

SHOWN = ("/api/", "/facilitator")
"""Where the paths of the requests begin that are shown."""
MOST_KEPT = 500
MOST_BYTES = 8 << 20
"""The bytes of all bodies that are kept."""
MAX_BODY = 16 * 1024
MAX_EXCHANGE = 64 * 1024
"""The bytes of a request and its answer as JSON; of a longer one the headers are left out."""
BATCH = 2000
"""The entries of one message to a reader."""
PAUSE_S = 0.2
BEAT_S = 15.0
"""Seconds after which a silent stream says that it lives."""
_SECRET = (b"authorization", b"proxy-authorization", b"cookie")


class Watch:
    """Tells readers what a journal records, and the requests of a server, if there are any."""

    def __init__(self, journal: Journal, requests: Requests | None = None) -> None:
        self._journal, self._requests = journal, requests
        if requests:
            requests.tell_payments(self._ended)
        self._real = Clock()
        self._started_ms = self._real.now_ms()
        self._wakes: set[asyncio.Event] = set()
        self._kept: deque[tuple[int, LoggedRequest]] = deque()
        self._count = self._size = 0
        self._is_stopped = False

    def stop(self) -> None:
        """End all streams, so that the server can stop."""
        self._is_stopped = True
        self._wake()

    def _ended(self, request: LoggedRequest) -> None:
        if request.is_whole and request.path.startswith(SHOWN):
            self._count += 1
            self._kept.append((self._count, request))
            self._size += len(request.sent) + len(request.answered)
            while len(self._kept) > MOST_KEPT or self._size > MOST_BYTES:
                _, oldest = self._kept.popleft()
                self._size -= len(oldest.sent) + len(oldest.answered)
            if self._wakes:
                self._wake()

    # --- the readers -----------------------------------------------------------------

    async def stream(self, since: int, after: int) -> AsyncIterator[bytes]:
        """Yield server-sent events: the journal from entry `since` on, exchanges after a number.

        The first says when this server started: with another one, the numbers begin anew.
        """
        wake, waiting = asyncio.Event(), list[Entry]()
        if not self._wakes:
            self._journal.listeners.append(self._wake)
        self._wakes.add(wake)
        if self._requests:
            self._requests.readers += 1
        try:
            hello = {"started": self._started_ms, "length": self._journal.length}
            yield b"event: hello\ndata: " + msgspec.json.encode(hello) + b"\n\n"
            while not self._is_stopped:
                wake.clear()
                waiting = waiting or self._journal.since(since)
                entries, waiting = waiting[:BATCH], waiting[BATCH:]
                exchanges = [] if waiting else [each for each in self._kept if each[0] > after]
                if entries:
                    since = entries[-1].seq + 1
                    yield _event(b"journal", map(line, entries))
                if exchanges:
                    after = exchanges[-1][0]
                    yield _event(b"exchanges", (_exchange(*each) for each in exchanges))
                if entries or exchanges:
                    await self._real.sleep(0 if waiting else PAUSE_S)
                    continue
                try:
                    async with asyncio.timeout(BEAT_S):
                        await wake.wait()
                except TimeoutError:
                    yield b": nothing new\n\n"
        finally:
            self._wakes.discard(wake)
            if self._requests:
                self._requests.readers -= 1
            if not self._wakes:
                self._journal.listeners.remove(self._wake)

    def kept(self) -> list[bytes]:
        """Return the exchanges that are kept, as JSON."""
        return [_exchange(*each) for each in self._kept]

    def _wake(self, _: Entry | None = None) -> None:
        for wake in self._wakes:
            wake.set()


def _exchange(number: int, request: LoggedRequest) -> bytes:
    """Return a request and its answer as JSON; no status is that of a broken connection.

    `seen` are the numbers of the journal's entries that it caused.
    """
    sent = _half(request.headers, request.sent)
    answered = _half(request.answer_headers, request.answered)
    exchange = {
        "n": number,
        "at_ms": int(request.at_s * 1000),
        "ms": int((request.ended - request.began) * 1000),
        "client": request.client,
        "method": request.method,
        "path": request.path + (f"?{request.query.decode('latin-1')}" if request.query else ""),
        "status": request.status,
        "sent": sent,
        "answered": answered,
        "seen": request.seen,
    }
    text = msgspec.json.encode(exchange)
    if len(text) > MAX_EXCHANGE:
        sent["headers"] = answered["headers"] = [("(headers)", "too long")]
        text = msgspec.json.encode(exchange)
    return text


def _event(name: bytes, lines: Iterable[bytes]) -> bytes:
    return b"event: " + name + b"\n" + b"".join(b"data: " + each + b"\n" for each in lines) + b"\n"


def _half(headers: Headers, body: bytes) -> dict[str, Any]:
    """Return a request or an answer: its headers, and the beginning of its body as text."""
    texts = [
        (name.decode("latin-1"), "***" if name.lower() in _SECRET else value.decode("latin-1"))
        for name, value in headers
    ]
    return {"headers": texts, "body": body[:MAX_BODY].decode("utf-8", "replace")}
