"""The log of a server: a line for each ended request, and below the line the caused events.

A thread writes the lines, so that a slow or closed pipe delays no request. The server's loop
renders them, in batches: the first line takes twenty times as long as the next ones, because its
code is in no processor cache; and a thread would have to load the data into another cache.
"""

import asyncio
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from queue import SimpleQueue
from typing import Any

import msgspec

from x402sim import events
from x402sim.clock import real_now
from x402sim.http.limits import MAX_UNLOGGED, MAX_UNLOGGED_BYTES
from x402sim.journal import Entry
from x402sim.protocol.bazaar import faults_in
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage, decoded
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.x402 import version_in
from x402sim.protocol.x402_reasons import Meaning, meaning_of
from x402sim.serving.requests import LoggedRequest, Requests, settles
from x402sim.text.console import WIDTH, filled
from x402sim.text.words import printable, readable

MAX_NOTE = 600
"""The characters of a reason, a header or a line of a body that are shown."""
MAX_LINES = 60
_INDENT = " " * 9
_ZERO = "0x" + "0" * 40
_SECRET = re.compile(
    r'(^(?:proxy-)?authorization: |"(?:private_?key|mnemonic|secret)"\s*:\s*")[^"]*', re.I
)
_PLAIN, _DIM = "\x1b[0m", "\x1b[2m"
_COLOURS = {2: "\x1b[32m", 4: "\x1b[31m", 5: "\x1b[31m"}
_ASKS = "\x1b[33m"


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """The names of accounts, and the format of amounts."""

    accounts: Mapping[str, str]
    """The names, by address in lower case."""
    network: Network

    def of(self, address: str) -> str:
        """Return an account's name, or its address in short."""
        return self.accounts.get(address.lower()) or short(address)

    def amount(self, base: int | str) -> str:
        """Return an amount of base units with the token's symbol."""
        return f"{to_decimal(int(base), self.network.decimals)} {self.network.token_symbol}"


class LogLine(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A request that has ended, or an event outside of any request."""

    time: str
    """When it ended: in JSON as ISO 8601 with milliseconds, in text as HH:MM:SS."""
    who: str = ""
    method: str = ""
    path: str = ""
    status: int | None = None
    """None if the connection was broken."""
    ms: float = 0.0
    payment_id: str | None = None
    session_id: str | None = None
    error: str | None = None
    reason: str | None = None
    notes: list[str] = []
    sent: list[str] = []
    answered: list[str] = []


def short(text: str) -> str:
    """Return the beginning and the end of an address or a hash, the beginning of an id."""
    if text.startswith("0x"):
        return f"{text[:6]}…{text[-4:]}" if len(text) > 12 else text
    begin = text.find("_") + 7
    return text if len(text) <= begin else text[:begin] + "…"


def _transfer(event: events.Transfer, names: Names) -> str:
    moved = _moved(names, event.amount_base, event.sender, event.to)
    where = event.actor.removeprefix("chain")
    return f"transfer: {moved}, {short(event.tx_hash)}" + (where and f", on{where}")


@lru_cache(maxsize=1024)  # the same accounts and prices again and again
def _moved(names: Names, amount_base: int | str, sender: str, to: str) -> str:
    amount, to = names.amount(amount_base), names.of(to)
    return f"{amount}, " + (
        f"{names.of(sender)} to {to}" if sender != _ZERO else f"minted for {to}"
    )


def _mined(event: events.TransactionMined, _: Names) -> str:
    if event.revert_reason is None:
        return ""
    return f"transaction {short(event.tx_hash)} reverted: {event.revert_reason}"


def _payment(event: Any, _: Names) -> str:
    return f"{events.name_of(event)}: {short(event.payment_id)}"


def _debited(event: events.SessionDebited, names: Names) -> str:
    part = to_decimal(event.amount_base, names.network.decimals)
    spent = names.amount(event.released_base)
    return f"session {short(event.session_id)} spends {part}, {spent} in all"


def _used(event: events.UsageMeasured | events.UsageSettled, names: Names) -> str:
    if isinstance(event, events.UsageMeasured):
        verb, part = "used", event.used_base
    else:
        verb, part = "settled", event.settled_base
    most = names.amount(event.maximum_base)
    return f"{verb} {to_decimal(part, names.network.decimals)} of at most {most}"


CLOCK_SET = "system clock set"
"""The name of the note that the system's clock was set, by `seconds`."""


def _note(event: events.Note, _: Names) -> str:
    data = event.data
    if event.name == "fault struck":
        return f'fault: "{data["does"]}" struck {data["victim"]} {data["path"]}'
    if event.name == CLOCK_SET:
        means = "; the chain's time stands still until it is caught up" * (data["seconds"] < 0)
        return f"the system's clock was set by {data['seconds']:+} s{means}"
    return ""


Describe = Callable[[Any, Names], str]
"""Returns the text of an event; "" leaves it out."""
OUTSIDE_REQUESTS: Mapping[type[events.Event], Describe] = {
    events.PaymentSettled: _payment,
    events.PaymentFailed: _payment,
    events.UsageSettled: _used,
}
"""Events logged only outside of a request: the line of a request shows the same."""
ALWAYS: Mapping[type[events.Event], Describe] = {
    events.Transfer: _transfer,
    events.TransactionMined: _mined,
    events.TransactionUndone: lambda event, _: f"transaction {short(event.tx_hash)} undone",
    events.SettlementAnswerLost: lambda *_: "the facilitator's answer did not arrive",
    events.PaymentUndone: _payment,
    events.UsageMeasured: _used,
    events.UsageFailed: lambda event, names: (
        f"used {names.amount(event.used_base)}, and never paid: the payment has expired"
    ),
    events.PaidAgain: _payment,
    events.SessionOpened: lambda event, names: (
        f"session {short(event.session_id)} opened with {names.amount(event.deposited_base)}"
    ),
    events.SessionDebited: _debited,
    events.DebitUndone: lambda event, _: (
        f"session {short(event.session_id)} not debited: its client has hung up"
    ),
    events.AnswerNotWritten: lambda event, _: (
        f"payment {short(event.payment_id)} stays good: its client has hung up"
    ),
    events.SessionRefunded: lambda event, names: (
        f"session {short(event.session_id)} refunded: {names.amount(event.amount_base)}, "
        f"{short(event.tx_hash)}"
    ),
    events.RefundDelayed: lambda event, _: (
        f"session {short(event.session_id)} not refunded yet: {event.reason}"
    ),
    events.ClockSkewed: lambda event, _: (
        f"clock of {event.victim}: skewed by {event.seconds:+.10g} s"
    ),
    events.Note: _note,
}


def as_json(line: LogLine) -> str:
    """Return a line as one JSON object."""
    line.ms = round(line.ms, 1)
    line.sent, line.answered = _bounded(line.sent), _bounded(line.answered)
    return msgspec.json.encode(line).decode() + "\n"


def as_text(line: LogLine, *, colours: bool = False) -> str:
    """Return a line and the lines below, in 80 columns, every character printable."""
    if not line.method:
        return "".join(_filled(text, f"{line.time} ") for text in line.notes)
    end, below = _end(line.payment_id or line.session_id), ""
    middle = _middle(line.who, line.method, line.path, line.status, colours)
    if line.error or line.reason:
        reason = ": ".join(filter(None, (line.error, line.reason)))
        if line.payment_id is not None:
            reason = reason.replace(line.payment_id, short(line.payment_id))
        below = _filled(readable(reason), _INDENT)
    for text in line.notes:
        below += _filled(text, _INDENT)
    if line.sent or line.answered:
        below += "".join(_filled(text, _INDENT + "> ") for text in _bounded(line.sent))
        below += "".join(_filled(text, _INDENT + "< ") for text in _bounded(line.answered))
    if below and colours:
        below = f"{_DIM}{below}{_PLAIN}"
    return f"{line.time} {middle} {line.ms:6.0f} ms{end}\n{below}"


def _bounded(lines: list[str]) -> list[str]:
    """Return lines without secrets, few enough and short enough to be read."""
    kept = [_SECRET.sub(r"\1***", text) for text in lines[:MAX_LINES]]
    kept = [text if len(text) <= MAX_NOTE else text[:MAX_NOTE] + "…" for text in kept]
    return kept + (["…"] if len(lines) > MAX_LINES else [])


def _filled(text: str, begin: str) -> str:
    """Return a text in 80 columns after `begin`, further lines indented."""
    text = printable(text)
    if len(begin) + len(text) <= WIDTH:
        return f"{begin}{text}\n"
    return filled(_cut(text, MAX_NOTE + 1), begin) + "\n"


@lru_cache(maxsize=1024)  # a payment has three requests
def _end(proof: str | None) -> str:
    return f"  {_cut(printable(short(proof)), 11)}" if proof else ""


@lru_cache(maxsize=1024)  # the same accounts and paths again and again
def _middle(who: str, method: str, path: str, status: int | None, colours: bool) -> str:
    what, who = _cut(printable(f"{method} {path}"), 31), _cut(printable(who), 12)
    colour = ""
    if colours:
        colour = _ASKS if status == 402 else _COLOURS.get((status or 500) // 100, "")
    return f"{who:<12} {what:<31} {colour}{status or '---'}{_PLAIN if colour else ''}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


MAX_ID = 256
"""The most characters of a payment or session id in the log's memory."""
MOST_KNOWN = 5_000
"""The newest payments and sessions whose payer the log remembers; at most twice as many."""
PAUSE_S, WATCHED_PAUSE_S = 1.0, 0.1
"""Seconds that a line waits for more lines; less on a terminal."""
_SILENT = ["rpc"], ["explorer"]
_SPOKEN = ["api"], ["facilitator"]
_FROM = re.compile(rb'"from"\s*:\s*"(0x[0-9a-fA-F]{40})"')
_HEADER = re.compile(rb'"paymentHeader"\s*:\s*"([^"\\]*)"')
_OUR_402 = re.compile(rb'\{"error":"[^"\\]*","paymentId":"(\w[\w-]*)"')
"""The beginning of our own 402."""
_PAYMENTS = (b"payment-signature", b"x-payment")
_RECEIPTS = (b"payment-response", b"x-payment-response")
_Alone = tuple[float, Entry]  # an entry of the journal outside of any request, and when it came


@dataclass(frozen=True, slots=True)
class Form:
    """Where a log goes, and how: as text or JSON, with heads and bodies, with colours.

    `write` may block, and raises `OSError` when nobody reads any more.
    """

    write: Callable[[bytes], object]
    is_json: bool = False
    is_verbose: bool = False
    has_colours: bool = False
    pause_s: float = PAUSE_S

    def text_of(self, line: LogLine) -> str:
        """Return a line as it is written."""
        return as_json(line) if self.is_json else as_text(line, colours=self.has_colours)

    def time_of(self, at_s: float) -> str:
        """Return a moment in local time: HH:MM:SS; in JSON with date, milliseconds and offset."""
        second = int(at_s)
        date, clock, zone = _second(second)
        if not self.is_json:
            return clock
        return f"{date}T{clock}.{int((at_s - second) * 1000):03}{zone}"


class LogThread:
    """Writes texts in a thread, in order: a slow or closed pipe delays no request."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write, self._texts = write, SimpleQueue[bytes]()
        self.is_writing = self.has_ended = False
        self.thread = threading.Thread(target=self._run, name="x402sim log", daemon=True)
        self.thread.start()

    def put(self, text: bytes) -> None:
        """Write a text, unless nobody reads any more; the empty text ends the thread."""
        if not self.has_ended:
            self.is_writing = True
            self._texts.put(text)

    def close(self) -> None:
        """Write what is left, in a second at most."""
        self.put(b"")
        self.thread.join(1)

    def _run(self) -> None:
        with suppress(OSError):  # nobody reads the log any more: the server goes on
            while text := self._texts.get():
                self._write(text)
                self.is_writing = False
        self.has_ended, self.is_writing = True, False


class _Answer(msgspec.Struct, rename="camel"):
    """The fields of an answer that the log shows, in any dialect; each is text."""

    payment_id: Any = None
    error: Any = None
    reason: Any = None
    invalid_reason: Any = None
    invalid_message: Any = None
    error_reason: Any = None
    error_message: Any = None
    event: Any = None
    """Of Cronos' settle, with a word in `error`."""


_answer = msgspec.json.Decoder(_Answer).decode


class ServerLog:
    """Writes the requests of a server, and the entries of its journal.

    `ahead_s` is how far its clock is ahead of real time. It is made and closed in the loop of the
    server; `close` writes what is left.
    """

    def __init__(self, form: Form, names: Names, requests: Requests, ahead_s: float = 0.0) -> None:
        self._form, self._names = form, names
        self._ahead_s = ahead_s
        self._describe: Mapping[type, Describe] = {**ALWAYS, events.TimeAdvanced: self._advanced}
        uses = {kind: (self._describe.get(kind), *_reads(kind)) for kind in events.KINDS}
        self._used = {kind: use for kind, use in uses.items() if any(use)}
        """By type of event: the describing function, and the fields naming payment or session."""
        self._payers, self._earlier = dict[str | None, str](), dict[str | None, str]()
        """The payer's name by payment or session id: of the newest ids, and of those before. The
        latter are dropped all at once, because a dict drops its first key slowly."""
        self._waiting: list[LoggedRequest | _Alone] = []
        self._left_out = self._waiting_bytes = 0
        self._later = asyncio.get_running_loop().call_later
        self._timer: asyncio.TimerHandle | None = None
        self._thread = LogThread(form.write)
        requests.subscribe(
            self._append,
            lambda entry: self._append((real_now(), entry)),
            reads=self._used,
            wants_bodies=form.is_verbose,
        )

    def close(self) -> None:
        """Write what is left, in a second at most."""
        if self._timer:
            self._timer.cancel()
            self._thread.put(self._rendered())
        self._thread.close()

    def _append(self, what: LoggedRequest | _Alone) -> None:
        size = what.size if isinstance(what, LoggedRequest) else 0
        if (
            len(self._waiting) >= MAX_UNLOGGED
            or self._waiting_bytes + size > MAX_UNLOGGED_BYTES
            or self._thread.has_ended
        ):
            self._left_out += 1  # the reader is slow
            return
        self._waiting.append(what)
        self._waiting_bytes += size
        if self._timer is None:
            self._timer = self._later(self._form.pause_s, self._pass_on)

    def _pass_on(self) -> None:
        """Pass the waiting lines to the thread, unless the thread still writes."""
        if self._thread.is_writing:
            self._timer = self._later(self._form.pause_s, self._pass_on)
            return
        self._timer = None
        if text := self._rendered():
            self._thread.put(text)

    def _rendered(self) -> bytes:
        lines, waiting = [], self._waiting
        self._waiting, self._waiting_bytes = [], 0
        for what in waiting:
            try:
                lines.append(
                    self._of_request(what)
                    if isinstance(what, LoggedRequest)
                    else self._of_entry(*what)
                )
            except Exception:  # noqa: BLE001 - a defect of the log is logged, and the log goes on
                trace = traceback.format_exc(limit=-3)
                lines.append(self._about_log("a request was not logged: " + trace))
        if self._left_out:
            lines.append(self._about_log(f"{self._left_out} requests are left out of this log"))
            self._left_out = 0
        return "".join(lines).encode()

    def _about_log(self, text: str) -> str:
        return self._form.text_of(LogLine(self._form.time_of(real_now()), notes=[text]))

    def _of_entry(self, at_s: float, entry: Entry) -> str:
        kind = type(entry.event)
        describe = OUTSIDE_REQUESTS.get(kind) or self._describe.get(kind)
        text = describe(entry.event, self._names) if describe else ""
        return self._form.text_of(LogLine(self._form.time_of(at_s), notes=[text])) if text else ""

    def _of_request(self, request: LoggedRequest) -> str:
        method, path, status, ended = request.method, request.path, request.status, request.ended
        ms = (ended - request.began) * 1000
        line = LogLine(self._form.time_of(ended), request.client, method, path, status, ms)
        payer, ids, is_verbose = None, list[str](), self._form.is_verbose
        for event in request.read:
            describe, who, named = self._used[type(event)]
            if describe and (text := describe(event, self._names)):
                line.notes.append(text)
            if who and payer is None:
                payer = getattr(event, who)
            for name in named:
                ids.append(getattr(event, name))
                if name == "payment_id" and line.payment_id is None:
                    line.payment_id = ids[-1]
        if (status or 500) < _least_shown(method, path) and not (line.notes or is_verbose):
            return ""
        is_paid = bool(request.proofs) and _read_proofs(line, request)
        if (status != 200 or line.payment_id is None) and request.answered[:1] == b"{":
            _read_answer(line, request.answered)
        if b'"bazaar"' in request.sent:
            _note_not_listed(line, request.sent)
        if payer is None and (is_paid or settles(path)):
            payer = _signer(request)
        if payer is not None:
            line.who = self._names.of(payer)
        for each in (*ids, line.payment_id, line.session_id):
            if payer is not None:
                self._payers[each] = line.who
            elif each and (known := self._payers.get(each) or self._earlier.get(each)):
                line.who = self._payers[each] = known
                break
        if len(self._payers) > MOST_KNOWN:
            self._earlier, self._payers = self._payers, {}
        if is_verbose:
            line.sent = _text(request.headers, request.sent)
            line.answered = _text(request.answer_headers, request.answered)
        return self._form.text_of(line)

    def _advanced(self, event: events.TimeAdvanced, _: Names) -> str:
        self._ahead_s += event.seconds
        return f"clock: {event.seconds:+.10g} s, now {self._ahead_s:.10g} s ahead of real time"


def _read_proofs(line: LogLine, request: LoggedRequest) -> bool:
    """Add the ids in a request's headers; return whether the request pays, in one step."""
    is_paid = False
    for name, value in request.proofs:
        if name == b"x-payment-id":
            line.payment_id = line.payment_id or value[:MAX_ID].decode("latin-1")
        elif name == b"x-session-id":
            line.session_id = value[:MAX_ID].decode("latin-1")
        else:
            is_paid = True
    if is_paid and request.status == 200 and not request.read:
        answered = {name.lower() for name, _ in request.answer_headers}
        if not answered.isdisjoint(_RECEIPTS):  # and it caused no event
            line.notes.append("this authorization has paid before: nothing was charged again")
    return is_paid


def _read_answer(line: LogLine, answered: bytes) -> None:
    """Add the payment named by an answer, and the reason of a refusal, in any dialect."""
    is_unpaid = line.status == 402 and b'"reason"' not in answered
    if is_unpaid and (ours := _OUR_402.match(answered)):  # without decoding it
        line.payment_id = ours[1].decode()
        return
    try:
        body = _answer(answered)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # no object, or cut off
        return
    line.payment_id = (_text_of(body.payment_id) or "")[:MAX_ID] or line.payment_id
    if line.status == 402 and not body.reason:  # the first 402, which refuses nothing
        return
    words = body.error_reason, body.invalid_reason, body.error
    reasons = body.error_message, body.invalid_message, body.reason
    if any(words) or any(reasons):
        line.error = next(filter(None, map(_text_of, words)), None)
        line.reason = next(filter(None, map(_text_of, reasons)), None)
    word = _text_of(body.error_reason) or (_text_of(body.error) if body.event else None)
    if word is not None and meaning_of(word) is Meaning.UNCLEAR:
        line.notes.append(Meaning.UNCLEAR.do)


def _note_not_listed(line: LogLine, sent: bytes) -> None:
    fields = decoded(sent, dict[str, Any]) or {}
    version = version_in(fields.get("x402Version"))
    names = ("paymentPayload", "paymentRequirements")
    for name in names[:1] if version == 2 else names:  # an index of version 2 reads the payment
        part = fields.get(name)
        for fault in faults_in(part, version) if isinstance(part, dict) else ():
            line.notes.append(f"{name}: {fault}: no index lists the resource")


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _reads(kind: type[events.Event]) -> tuple[str | None, tuple[str, ...]]:
    """Return the fields of an event that name the payer, and the payment or session."""
    fields = kind.__struct_fields__
    who = next((name for name in ("authorizer", "payer") if name in fields), None)
    return who, tuple(name for name in ("session_id", "payment_id") if name in fields)


@lru_cache(maxsize=8)  # many requests end in one second
def _second(at_s: int) -> tuple[str, str, str]:
    text = datetime.fromtimestamp(at_s).astimezone().isoformat()
    return text[:10], text[11:19], text[19:]


@lru_cache(maxsize=1024)
def _least_shown(method: str, path: str) -> int:
    """Return the least status that is shown: of polling and of pages, only errors are."""
    first = path.split("/", 2)[1:2]
    if first in _SILENT or path in ("/healthz", "/_sim/who"):
        return 500
    return 400 if method in ("GET", "HEAD", "OPTIONS") and first not in _SPOKEN else 0


def _signer(request: LoggedRequest) -> str | None:
    found, headers = _HEADER.search(request.sent), dict(request.proofs)
    header = found[1] if found else headers.get(_PAYMENTS[0]) or headers.get(_PAYMENTS[1])
    try:
        read = request.sent if header is None else json_of_header(header.decode())
    except (BadMessage, UnicodeDecodeError):
        return None
    signer = _FROM.search(read if isinstance(read, bytes) else str(read).encode())
    return signer[1].decode() if signer else None


def _text(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> list[str]:
    lines = [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in headers]
    return lines + body.decode("utf-8", "replace").splitlines()
