"""The lines of a server's log: pure functions, from what was seen to text or JSON."""

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from x402sim import events
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.text.printable import printable
from x402sim.text.times import readable

WIDTH = 80
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
    """How accounts and amounts are written."""

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
    """A request that has ended, or something that happened on its own."""

    time: str
    """Of its end: in JSON as in ISO 8601, with milliseconds; in text the clock."""
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


def _struck(event: events.Note, _: Names) -> str:
    data = event.data
    is_strike = event.name == "fault struck"
    return f'fault: "{data["does"]}" struck {data["victim"]} {data["path"]}' if is_strike else ""


Tell = Callable[[Any, Names], str]
"""Returns what the log says of an event, or nothing."""
ALONE: Mapping[type[events.Event], Tell] = {
    events.PaymentSettled: _payment,
    events.PaymentFailed: _payment,
}
"""What is told outside of a request only: the answer of a request says it anyway."""
TOLD: Mapping[type[events.Event], Tell] = {
    events.Transfer: _transfer,
    events.TransactionMined: _mined,
    events.TransactionUndone: lambda event, _: f"transaction {short(event.tx_hash)} undone",
    events.SettlementAnswerLost: lambda *_: "the facilitator's answer did not arrive",
    events.PaymentUndone: _payment,
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
    events.Note: _struck,
}


def as_json(line: LogLine) -> str:
    """Return a line as one JSON object."""
    line.ms = round(line.ms, 1)
    line.sent, line.answered = _bounded(line.sent), _bounded(line.answered)
    return msgspec.json.encode(line).decode() + "\n"


def as_text(line: LogLine, *, colours: bool = False) -> str:
    """Return a line with what belongs to it, in 80 columns, every character printable."""
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


def _colour(status: int | None) -> str:
    return _ASKS if status == 402 else _COLOURS.get((status or 500) // 100, "")


def _bounded(lines: list[str]) -> list[str]:
    """Return lines without secrets, few enough and short enough to be read."""
    kept = [_SECRET.sub(r"\1***", text) for text in lines[:MAX_LINES]]
    kept = [text if len(text) <= MAX_NOTE else text[:MAX_NOTE] + "…" for text in kept]
    return kept + (["…"] if len(lines) > MAX_LINES else [])


def _filled(text: str, begin: str) -> str:
    """Return a text in 80 columns after its beginning, its further lines below it."""
    text = printable(text)
    if len(begin) + len(text) <= WIDTH:
        return f"{begin}{text}\n"
    text = _cut(text, MAX_NOTE + 1)
    shown = textwrap.fill(
        text,
        WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * (len(begin) + 2),
        break_on_hyphens=False,
    )
    return shown + "\n"


@lru_cache(maxsize=1024)  # a payment has three requests
def _end(proof: str | None) -> str:
    return f"  {_cut(printable(short(proof)), 11)}" if proof else ""


@lru_cache(maxsize=1024)  # the same accounts and paths again and again
def _middle(who: str, method: str, path: str, status: int | None, colours: bool) -> str:
    """Return what is between time and milliseconds: who asked for what, and the status."""
    what, who = _cut(printable(f"{method} {path}"), 31), _cut(printable(who), 12)
    colour = _colour(status) if colours else ""
    return f"{who:<12} {what:<31} {colour}{status or '---'}{_PLAIN if colour else ''}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
