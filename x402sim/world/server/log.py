"""The log of a server: a line for each request as it ends, and below it what the request caused.

What an event belongs to is known from its context: a request and all that it causes run in one. A
thread renders and writes, a few times a second, so that no slow or closed pipe holds up a request.
"""

import re
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Literal

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim import events
from x402sim.clock import Clock, SkewedClock
from x402sim.journal import Entry, Journal
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage
from x402sim.service.issue import PAY
from x402sim.world.server.log_lines import Line, Names, as_json, as_text, note

MAX_BODY = 64 * 1024
"""The bytes that the log keeps of a body."""
MAX_WAITING = 10_000
"""The requests that wait to be written; the log leaves out what comes while the reader is slow."""
PAUSE_S = 0.1
_SILENT = ["rpc"], ["explorer"]
_SPOKEN = ["api"], ["facilitator"]
_FROM = re.compile(rb'"from"\s*:\s*"(0x[0-9a-fA-F]{40})"')
_HEADER = re.compile(rb'"paymentHeader"\s*:\s*"([^"\\]*)"')
_PAYMENTS = (b"payment-signature", b"x-payment")
_RECEIPTS = (b"payment-response", b"x-payment-response")
_PAYERS = ("authorizer", "payer")
_now = Clock().now
_current: ContextVar["_Request | None"] = ContextVar("the request that the log waits for")


class _Request:
    """A request, which the log sees as it stands between the server and the application."""

    __slots__ = (
        "_keeps_answer",
        "_receive",
        "_send",
        "answered",
        "began",
        "ended",
        "headers",
        "scope",
        "seen",
        "sent",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, keeps_answer: bool) -> None:
        self.scope: Mapping[str, Any] = scope
        self.seen: list[events.Event | str] = []
        self.status: int | None = None
        self.sent = self.answered = b""
        self.headers: Iterable[tuple[bytes, bytes]] = ()
        self._receive, self._send, self._keeps_answer = receive, send, keeps_answer
        self.began, self.ended = _now(), 0.0

    async def receive(self) -> Message:
        message = await self._receive()
        body = message.get("body")
        if body and len(self.sent) < MAX_BODY:
            self.sent += body[:MAX_BODY]
        return message

    def send(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
            self._keeps_answer = self._keeps_answer or message["status"] >= 400
        elif self._keeps_answer and len(self.answered) < MAX_BODY:
            self.answered += message.get("body", b"")[:MAX_BODY]
        return self._send(message)


_Alone = tuple[float, events.Event | str]
"""What happened outside of all requests, and when."""


@dataclass(frozen=True, slots=True)
class Form:
    """Where a log goes, and how: as text or JSON, with heads and bodies, with colours.

    `write` may block, and raises `OSError` when nobody reads any more.
    """

    write: Callable[[bytes], object]
    is_json: bool = False
    is_verbose: bool = False
    has_colours: bool = False


class _Answer(msgspec.Struct, rename="camel"):
    """The fields of an answer that the log shows, in any dialect; each is text."""

    payment_id: Any = None
    error: Any = None
    reason: Any = None
    invalid_reason: Any = None
    invalid_message: Any = None
    error_reason: Any = None
    error_message: Any = None

    def text(self, name: str) -> str | None:
        value = getattr(self, name)
        return value if isinstance(value, str) and value else None


_answer = msgspec.json.Decoder(_Answer)


def _read(body: bytes) -> _Answer | None:
    """Return the JSON object of an answer; None for any other body."""
    try:
        return _answer.decode(body) if body[:1] == b"{" else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class Log:
    """Writes the requests of a server, the events of its journal and changes of its clocks.

    `parts` are the clocks of its parts, by name. `close` writes what is left.
    """

    def __init__(
        self,
        form: Form,
        names: Names,
        journal: Journal,
        clock: Clock,
        parts: Mapping[str, SkewedClock],
    ) -> None:
        self._form, self._names = form, names
        self._clock, self._parts = clock, parts
        self._clocks = self._read_clocks()
        self._payers: dict[str, str] = {}
        """Who pays for which payment id, or holds which session."""
        self._waiting: deque[_Request | _Alone] = deque()
        self._left_out = 0
        self._wakes, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write, name="x402sim log", daemon=True)
        self._thread.start()
        journal.listeners.append(self._on_entry)

    def struck(self, victim: str, does: str, path: str) -> None:
        """Log a fault that strikes a request."""
        self._see(f'fault: "{does}" struck {victim} {path}')

    def around(self, app: ASGIApp) -> ASGIApp:
        """Return `app`, each of whose requests is logged as it ends."""

        async def logged(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            path = scope["path"]
            keeps_all = self._form.is_verbose or path.startswith("/facilitator")
            request = _Request(scope, receive, send, keeps_answer=keeps_all)
            token = _current.set(request)
            try:
                reads = request.receive if keeps_all or path == PAY else receive
                await app(scope, reads, request.send)
            finally:
                _current.reset(token)
                if path.startswith("/_sim"):
                    request.seen.extend(self._clock_changes())
                request.ended = _now()
                self._append(request)

        return logged

    def close(self) -> None:
        """Write what is left, in a second at most."""
        self._closing.set()
        self._wakes.set()
        self._thread.join(1)

    # --- in the server's thread ------------------------------------------------------

    def _on_entry(self, entry: Entry) -> None:
        if not isinstance(entry.event, events.AnswerSent):
            self._see(entry.event)

    def _see(self, what: events.Event | str) -> None:
        request = _current.get(None)
        if request is not None and not request.ended:
            request.seen.append(what)
        else:
            self._append((_now(), what))

    def _append(self, what: "_Request | _Alone") -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._left_out += 1
            return
        self._waiting.append(what)
        if not self._wakes.is_set():
            self._wakes.set()

    def _read_clocks(self) -> dict[str, float]:
        skews = {name: clock.skew_s for name, clock in self._parts.items()}
        return {"": self._clock.offset_s, **skews}

    def _clock_changes(self) -> Iterable[str]:
        before, self._clocks = self._clocks, self._read_clocks()
        for name, now in self._clocks.items():
            if (change := now - before.get(name, 0.0)) and not name:
                yield f"clock: {change:+.10g} s, now {now:.10g} s ahead of real time"
            elif change:
                yield f"clock of {name}: skewed by {now:+.10g} s"

    # --- in the log's thread ---------------------------------------------------------

    def _write(self) -> None:
        is_last = False
        while not is_last:
            self._wakes.wait()
            is_last = self._closing.wait(PAUSE_S)
            self._wakes.clear()
            lines = [self._safely(self._waiting.popleft()) for _ in range(len(self._waiting))]
            if self._left_out:
                lines.append(self._own(f"{self._left_out} requests are left out of this log"))
                self._left_out = 0
            try:
                self._form.write("".join(lines).encode())
            except OSError:  # nobody reads the log any more: the server goes on
                self._waiting = deque(maxlen=0)
                return

    def _safely(self, what: "_Request | _Alone") -> str:
        try:
            return self._of_request(what) if isinstance(what, _Request) else self._of_event(*what)
        except Exception:  # noqa: BLE001 - a defect of the log: it is told, and the log goes on
            return self._own("a request was not logged: " + traceback.format_exc(limit=-3))

    def _own(self, text: str) -> str:
        """Return what the log says of itself."""
        return self._shown(Line(time=self._time(_now()), notes=[text]))

    def _of_event(self, at_s: float, what: events.Event | str) -> str:
        text = note(what, self._names, in_request=False)
        return self._shown(Line(time=self._time(at_s), notes=[text])) if text else ""

    def _of_request(self, request: _Request) -> str:
        line = self._line(request)
        if line.notes or self._form.is_verbose or _is_shown(line):
            return self._shown(line)
        return ""

    def _time(self, at_s: float) -> str:
        """Return a moment in local time: with date, milliseconds and offset in JSON."""
        second = int(at_s)
        date, clock, zone = _second(second)
        if not self._form.is_json:
            return clock
        return f"{date}T{clock}.{int((at_s - second) * 1000):03}{zone}"

    def _shown(self, line: Line) -> str:
        if self._form.is_json:
            return as_json(line)
        return as_text(line, colours=self._form.has_colours)

    def _line(self, request: _Request) -> Line:
        scope, status = request.scope, request.status
        headers = dict(scope["headers"])
        notes, ids, payer, paid = [], [], None, None
        for each in request.seen:
            if text := note(each, self._names, in_request=True):
                notes.append(text)
            for name in _named_in(type(each)):
                found = getattr(each, name)
                if name in _PAYERS:
                    payer = payer or found
                    continue
                ids.append(found)
                if name == "payment_id":
                    paid = paid or found
        if not request.seen and _is_paid(request, headers):
            notes.append("this authorization has paid before: nothing was charged again")
        line = Line(
            time=self._time(request.ended),
            method=scope["method"],
            path=scope["path"],
            status=status,
            ms=round((request.ended - request.began) * 1000, 1),
            notes=notes,
        )
        shown, session = headers.get(b"x-payment-id"), headers.get(b"x-session-id")
        body = _read(request.answered)
        line.payment_id = (
            paid
            or (shown and shown.decode("latin-1"))
            or (body.text("payment_id") if body else None)
        )
        line.session_id = session.decode("latin-1") if session else None
        ids += [line.payment_id, line.session_id]
        payer = self._remembered(payer or _signer(request.sent, headers), ids)
        line.who = self._names.of(payer) if payer else (scope.get("client") or ("?",))[0]
        if body:
            _add_reason(line, body)
        if self._form.is_verbose:
            line.sent = _text(scope["headers"], request.sent)
            line.answered = _text(request.headers, request.answered)
        return line

    def _remembered(self, payer: str | None, ids: Iterable[str | None]) -> str | None:
        """Return who pays for one of these ids, or holds that session; keep it if it is known."""
        known = [each for each in ids if each is not None]
        if payer is None:
            for each in known:
                if found := self._payers.get(each):
                    return found
            return None
        self._payers.update(dict.fromkeys(known, payer))
        while len(self._payers) > MAX_WAITING:
            del self._payers[next(iter(self._payers))]
        return payer


def _add_reason(line: Line, body: _Answer) -> None:
    """Add why a request was refused, in the words of any dialect."""
    if line.status == 402 and not body.reason:
        return  # it only asks for a payment
    line.error, line.reason = body.text("error"), body.text("reason")
    for name in ("invalid", "error"):
        line.error = body.text(name + "_reason") or line.error
        line.reason = body.text(name + "_message") or line.reason


@cache
def _named_in(kind: type) -> tuple[str, ...]:
    """Return the fields of an event that name a payer, a payment or a session."""
    fields = getattr(kind, "__struct_fields__", ())
    return tuple(name for name in (*_PAYERS, "payment_id", "session_id") if name in fields)


@lru_cache(maxsize=8)  # many requests end in one second
def _second(at_s: int) -> tuple[str, str, str]:
    """Return a moment's date, clock and offset in local time."""
    text = datetime.fromtimestamp(at_s).astimezone().isoformat()
    return text[:10], text[11:19], text[19:]


def _is_paid(request: _Request, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a payment in one step got an answer with its receipt."""
    if request.status != 200 or headers.keys().isdisjoint(_PAYMENTS):
        return False
    return not {name.lower() for name, _ in request.headers}.isdisjoint(_RECEIPTS)


def _is_shown(line: Line) -> bool:
    """Tell whether a request is more than polling, or the look at a page."""
    status, kind = line.status or 500, _kind(line.method, line.path)
    return kind == "shown" or status >= (400 if kind == "page" else 500)


@lru_cache(maxsize=1024)
def _kind(method: str, path: str) -> Literal["shown", "page", "polling"]:
    first = path.split("/", 2)[1:2]
    if first in _SILENT or path in ("/healthz", "/_sim/who"):
        return "polling"
    return "page" if method in ("GET", "HEAD", "OPTIONS") and first not in _SPOKEN else "shown"


def _signer(body: bytes, headers: Mapping[bytes, bytes]) -> str | None:
    """Return the payer that a request's payment names, in any dialect."""
    found = _HEADER.search(body) if body else None
    header = found[1] if found else headers.get(_PAYMENTS[0]) or headers.get(_PAYMENTS[1])
    if not (header or body):
        return None
    try:
        read = body if header is None else json_of_header(header.decode())
    except (BadMessage, UnicodeDecodeError):
        return None
    signer = _FROM.search(read if isinstance(read, bytes) else str(read).encode())
    return signer[1].decode() if signer else None


def _text(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> list[str]:
    """Return the lines of a message's head and body, for the log."""
    lines = [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in headers]
    return lines + body.decode("utf-8", "replace").splitlines()
