"""The log of a server: a line for each request as it ends, and below it what the request caused.

What an event belongs to is known from its context: a request and all that it causes run in one. A
thread renders and writes, a few times a second, so that no slow or closed pipe holds up a request.
"""

import re
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim import events
from x402sim.clock import Clock, SkewedClock
from x402sim.journal import Entry, Journal
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage
from x402sim.world.server.log_lines import Line, Names, as_json, as_text, note

MAX_BODY = 64 * 1024
"""The bytes that the log keeps of a body."""
MAX_WAITING = 10_000
"""The requests that wait to be written; the log leaves out what comes while the reader is slow."""
PAUSE_S = 0.05
_SILENT = ("rpc", "explorer")
_SPOKEN = ("api", "facilitator")
_FROM = re.compile(rb'"from"\s*:\s*"(0x[0-9a-fA-F]{40})"')
_HEADER = re.compile(rb'"paymentHeader"\s*:\s*"([^"\\]*)"')
_PAYMENTS = (b"payment-signature", b"x-payment")
_RECEIPTS = (b"payment-response", b"x-payment-response")
_now = Clock().now
_current: ContextVar["_Request | None"] = ContextVar("the request that the log waits for")


@dataclass(slots=True)
class _Request:
    """A request, and what the log saw of it."""

    scope: Mapping[str, Any]
    began: float
    status: int | None = None
    sent: bytes = b""
    answered: bytes = b""
    headers: Iterable[tuple[bytes, bytes]] = ()
    ended: float = 0.0
    seen: list[events.Event | str] = field(default_factory=list)


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
        self._waiting: deque[_Request] = deque()
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
            request = _Request(scope, _now())
            keeps_all = self._form.is_verbose or scope["path"].startswith("/facilitator")

            async def asked() -> Message:
                message = await receive()
                body = message.get("body")
                if body and len(request.sent) < MAX_BODY:
                    request.sent += body[:MAX_BODY]
                return message

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    request.status, request.headers = message["status"], message["headers"]
                elif (keeps_all or (request.status or 0) >= 400) and (
                    len(request.answered) < MAX_BODY
                ):
                    request.answered += message.get("body", b"")[:MAX_BODY]
                await send(message)

            token = _current.set(request)
            try:
                await app(scope, asked, answer)
            finally:
                _current.reset(token)
                if scope["path"].startswith("/_sim"):
                    request.seen.extend(self._clock_changes())
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
            self._append(_Request({}, _now(), seen=[what]))

    def _append(self, request: _Request) -> None:
        request.ended = _now()
        if len(self._waiting) >= MAX_WAITING:
            self._left_out += 1
            return
        self._waiting.append(request)
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

    def _safely(self, request: _Request) -> str:
        try:
            return self._rendered(request)
        except Exception:  # noqa: BLE001 - a defect of the log: it is told, and the log goes on
            return self._own("a request was not logged: " + traceback.format_exc(limit=-3))

    def _own(self, text: str) -> str:
        """Return what the log says of itself."""
        return self._shown(Line(time=_iso(_now()), notes=[text]))

    def _rendered(self, request: _Request) -> str:
        line = self._line(request)
        if not (self._form.is_verbose or line.notes or (request.scope and _is_shown(request))):
            return ""
        return self._shown(line)

    def _shown(self, line: Line) -> str:
        if self._form.is_json:
            return as_json(line)
        return as_text(line, colours=self._form.has_colours)

    def _line(self, request: _Request) -> Line:
        line = Line(time=_iso(request.ended))
        if request.seen:
            in_request = bool(request.scope)
            seen = [note(each, self._names, in_request=in_request) for each in request.seen]
            line.notes = [text for text in seen if text]
        if not request.scope:
            return line
        scope, headers = request.scope, dict(request.scope["headers"])
        if not request.seen and not headers.keys().isdisjoint(_PAYMENTS) and _is_paid(request):
            line.notes.append("this authorization has paid before: nothing was charged again")
        body = _read(request.answered)
        line.method, line.path, line.status = scope["method"], scope["path"], request.status
        line.ms = round((request.ended - request.began) * 1000, 1)
        line.payment_id = (
            _first_of("payment_id", request.seen)
            or headers.get(b"x-payment-id", b"").decode("latin-1")
            or (body.text("payment_id") if body else None)
        )
        line.session_id = headers.get(b"x-session-id", b"").decode("latin-1") or None
        line.who = self._payer(request, line, headers) or (scope.get("client") or ("?",))[0]
        if body:
            _add_reason(line, body)
        if self._form.is_verbose:
            line.sent = _text(scope["headers"], request.sent)
            line.answered = _text(request.headers, request.answered)
        return line

    def _payer(self, request: _Request, line: Line, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the payer's name: from an event, a signed payment, or an earlier request."""
        seen = request.seen
        payer = _first_of("authorizer", seen) or _first_of("payer", seen)
        payer = payer or _signer(request.sent, headers)
        keys = [key for key in (line.payment_id, line.session_id) if key]
        keys += [each.session_id for each in request.seen if isinstance(each, events.SessionOpened)]
        if payer is None:
            payer = next(filter(None, map(self._payers.get, keys)), None)
        else:
            self._payers.update(dict.fromkeys(keys, payer))
            while len(self._payers) > MAX_WAITING:
                del self._payers[next(iter(self._payers))]
        return payer and self._names.of(payer)


def _first_of(name: str, seen: Iterable[events.Event | str]) -> str | None:
    """Return what the first event that has this field has there."""
    for each in seen:
        if found := getattr(each, name, None):
            return str(found)
    return None


def _add_reason(line: Line, body: _Answer) -> None:
    """Add why a request was refused, in the words of any dialect."""
    if line.status != 402 or body.text("reason"):  # else it only asks for a payment
        line.error, line.reason = body.text("error"), body.text("reason")
    for name in ("invalid", "error"):
        line.error = body.text(name + "_reason") or line.error
        line.reason = body.text(name + "_message") or line.reason


def _iso(at_s: float) -> str:
    """Return a moment in local time, with its offset."""
    second, ms = divmod(int(at_s * 1000), 1000)
    begin, zone = _second(second)
    return f"{begin}.{ms:03}{zone}"


@lru_cache(maxsize=8)  # many requests end in one second
def _second(at_s: int) -> tuple[str, str]:
    text = datetime.fromtimestamp(at_s).astimezone().isoformat()
    return text[:19], text[19:]


def _is_paid(request: _Request) -> bool:
    """Tell whether an answer has the receipt of a payment in one step."""
    answered = {name.lower() for name, _ in request.headers}
    return request.status == 200 and not answered.isdisjoint(_RECEIPTS)


def _is_shown(request: _Request) -> bool:
    """Tell whether a request is more than polling, or the look at a page."""
    first = request.scope["path"].split("/", 2)[1:2]
    status = request.status or 500
    if (first and first[0] in _SILENT) or request.scope["path"] in ("/healthz", "/_sim/who"):
        return status >= 500
    reads = request.scope["method"] in ("GET", "HEAD", "OPTIONS")
    return not reads or status >= 400 or (bool(first) and first[0] in _SPOKEN)


def _signer(body: bytes, headers: Mapping[bytes, bytes]) -> str | None:
    """Return the payer that a request's payment names, in any dialect."""
    found = _HEADER.search(body)
    header = found[1] if found else next(filter(None, map(headers.get, _PAYMENTS)), None)
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
