"""What the page is told while somebody looks: the journal as it grows, and whole requests.

The last payments are kept as they were, so that a page that is opened after a refusal shows both
messages; they become text when somebody looks. Of many more, a mark is kept that they were served:
the journal of a server has the paths of requests, not the payments that they show.
"""

import asyncio
import re
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Iterable
from itertools import takewhile
from typing import Any
from urllib.parse import quote

import msgspec

from x402sim.clock import Clock
from x402sim.journal import Entry, Journal, line
from x402sim.protocol.routes import PAY
from x402sim.world.transport.requests import Headers, LoggedRequest, Requests
from x402sim.world.ui.stored import NOTHING, Stored

SHOWN = ("/api/", "/facilitator")
"""Where the paths of the requests begin that are shown."""
MOST_KEPT = 500
MOST_BYTES = 8 << 20
"""The bytes of all bodies that are kept."""
MAX_BODY = 16 * 1024
MAX_EXCHANGE = 64 * 1024
"""The bytes of a request and its answer as JSON; of a longer one the headers are left out."""
MOST_SERVED = 20_000
"""The marks of served payments: more than the payments that a journal of limited length has."""
BATCH = 2000
"""The entries of one message to a reader."""
PAUSE_S = 0.2
BEAT_S = 15.0
"""Seconds after which a silent stream says that it lives."""
_PAYMENT_ID = b"x-payment-id"
_SAFE = "/:@!$&'()*+,;=~"
"""What a path has as it is."""
_DOTS = re.compile(r"(?<=/)\.{1,2}(?=/|$)")
"""The parts of a path that a client would remove before it sends it."""
_SECRET = (b"authorization", b"proxy-authorization", b"cookie")


class Watch:
    """Tells readers what a journal records, and the requests of a server, if there are any.

    `stored` are the payments that its database had when it started, as `stored.py` writes them.
    """

    def __init__(
        self, journal: Journal, requests: Requests | None = None, stored: Stored = NOTHING
    ) -> None:
        self._journal, self._requests, self._stored = journal, requests, stored
        if requests:
            requests.tell_payments(self._ended)
        self._real = Clock()
        self._started_ms = self._real.now_ms()
        self._wakes: set[asyncio.Event] = set()
        self._kept: deque[tuple[int, LoggedRequest]] = deque()
        self._served: dict[str, tuple[int, bytes]] = {}
        self._forgotten = -1
        self._count = self._size = self._dropped = 0
        self._is_stopped = False

    def stop(self) -> None:
        """End all streams, so that the server can stop."""
        self._is_stopped = True
        self._wake()

    def _ended(self, request: LoggedRequest) -> None:
        if request.is_whole and request.path.startswith(SHOWN):
            self._count += 1
            self._mark(request)
            self._kept.append((self._count, request))
            self._size += len(request.sent) + len(request.answered)
            while len(self._kept) > MOST_KEPT or self._size > MOST_BYTES:
                _, oldest = self._kept.popleft()
                self._dropped += 1
                self._size -= len(oldest.sent) + len(oldest.answered)
            if self._wakes:
                self._wake()

    def _mark(self, request: LoggedRequest) -> None:
        """Keep that a payment was served, if the request shows its id and was answered well."""
        if request.path == PAY or request.status is None or not 200 <= request.status < 300:
            return
        shown = (*request.proofs, *request.answer_headers)  # in one step the answer names it
        payment_id = next((each for name, each in shown if name.lower() == _PAYMENT_ID), None)
        if payment_id is None or (key := payment_id.decode("latin-1")) in self._served:
            return
        seq, at_ms = max(request.seen, default=0), int(request.at_s * 1000)
        mark = {"seq": seq, "at_ms": at_ms, "payment_id": key, "path": request.path}
        self._served[key] = self._count, msgspec.json.encode(mark)
        if len(self._served) > MOST_SERVED:
            _, oldest = self._served.pop(next(iter(self._served)))
            self._forgotten = msgspec.json.decode(oldest)["seq"]

    # --- the readers -----------------------------------------------------------------

    def hello(self) -> dict[str, Any]:
        """Return what a page must know first.

        With another time of `started`, the numbers begin anew. Entries before `first` are no longer
        kept, nor are so many requests as were `dropped`, and `older` payments of the database are
        not told. What was served is known after the entry `forgotten`; it is None if no requests
        are seen.
        """
        return {
            "started": self._started_ms,
            "length": self._journal.length,
            "first": self._journal.length - len(self._journal),
            "older": self._stored.older,
            "dropped": self._dropped,
            "forgotten": self._forgotten if self._requests else None,
        }

    async def stream(self, since: int, after: int) -> AsyncIterator[bytes]:
        """Yield server-sent events: the journal from entry `since` on, exchanges after a number.

        The first is `hello`; then come the payments of the database, unless they were told.
        """
        wake, waiting = asyncio.Event(), list[Entry]()
        if not self._wakes:
            self._journal.listeners.append(self._wake)
        self._wakes.add(wake)
        if self._requests:
            self._requests.readers += 1
        try:
            yield _event(b"hello", [msgspec.json.encode(self.hello())])
            if self._stored.lines and not since:
                yield _event(b"stored", self._stored.lines)
            while not self._is_stopped:
                wake.clear()
                waiting = waiting or self._journal.since(since)
                entries, waiting = waiting[:BATCH], waiting[BATCH:]
                # all of one moment: more may come while a message is written
                exchanges = [] if waiting else [each for each in self._kept if each[0] > after]
                served = [] if waiting else self._served_after(after)
                after = after if waiting else self._count
                if entries:
                    since = entries[-1].seq + 1
                    yield _event(b"journal", map(line, entries))
                if exchanges:
                    yield _event(b"exchanges", (_exchange(*each) for each in exchanges))
                if served:
                    yield _event(b"served", served)
                if entries or exchanges or served:
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

    def told(self) -> list[tuple[str, Iterable[bytes]]]:
        """Return all that a reader is told now: the names of messages, and their lines."""
        return [
            ("hello", [msgspec.json.encode(self.hello())]),
            ("stored", self._stored.lines),
            ("journal", map(line, self._journal)),
            ("exchanges", (_exchange(*each) for each in self._kept)),
            ("served", self._served_after(0)),
        ]

    def _served_after(self, number: int) -> list[bytes]:
        """Return the marks made by requests after a number, oldest first."""
        newer = takewhile(lambda mark: mark[0] > number, reversed(self._served.values()))
        return [text for _, text in newer][::-1]

    def _wake(self, _: Entry | None = None) -> None:
        for wake in self._wakes:
            wake.set()


def _exchange(number: int, request: LoggedRequest) -> bytes:
    """Return a request and its answer as JSON; no status is that of a broken connection.

    `seen` are the numbers of the journal's entries that it caused. `target` is its path as it can
    be sent again; what is `cut` is not all that was sent.
    """
    query = f"?{request.query.decode('latin-1')}" if request.query else ""
    sent = _half(request.headers, request.sent)
    answered = _half(request.answer_headers, request.answered)
    exchange = {
        "n": number,
        "at_ms": int(request.at_s * 1000),
        "ms": int((request.ended - request.began) * 1000),
        "client": request.client,
        "method": request.method,
        "path": request.path + query,
        "target": _DOTS.sub(_escaped, quote(request.path, safe=_SAFE)) + query,
        "status": request.status,
        "sent": sent,
        "answered": answered,
        "seen": request.seen,
    }
    text = msgspec.json.encode(exchange)
    if len(text) > MAX_EXCHANGE:
        sent["headers"] = answered["headers"] = [("(headers)", "too long")]
        sent["cut"] = answered["cut"] = True
        text = msgspec.json.encode(exchange)
    return text


def _escaped(dots: re.Match[str]) -> str:
    return "%2E" * len(dots[0])


def _event(name: bytes, lines: Iterable[bytes]) -> bytes:
    return b"event: " + name + b"\n" + b"".join(b"data: " + each + b"\n" for each in lines) + b"\n"


def _half(headers: Headers, body: bytes) -> dict[str, Any]:
    """Return a request or an answer: its headers, and the beginning of its body as text.

    A body that is no UTF-8 is there in base64, too.
    """
    texts = [
        (name.decode("latin-1"), "***" if name.lower() in _SECRET else value.decode("latin-1"))
        for name, value in headers
    ]
    half: dict[str, Any] = {"headers": texts, "cut": len(body) > MAX_BODY}
    kept = body[:MAX_BODY]
    half["body"] = kept.decode("utf-8", "replace")
    if half["body"].encode() != kept:
        half["base64"] = b64encode(kept).decode()
    return half
