"""What happened, event by event, in words: for traces of a request and sequence diagrams."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from x402sim.journal import Event, Journal
from x402sim.protocol.money import to_decimal
from x402sim.report.reading import MINT, SERVICE, Exchange, Reading, is_

Kind = Literal["request", "answer", "lost", "note", "world", "alarm"]
"""A request on its way, its answer, its loss; what a part did; what the story did; what broke."""
CHAIN = "chain"
LONGEST_TRACE = 60
"""Lines; the middle of a longer trace is left out."""
_LANES = {"rpc": CHAIN}
_LOSSES = {
    "RemoteProtocolError": "connection lost",
    "ReadError": "connection lost",
    "ConnectError": "connection refused",
    "timeout": "timed out",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened: where it was (`left`, for messages to `right`) and what."""

    seq: int
    t_s: float
    kind: Kind
    left: str
    right: str | None
    text: str
    exchange: int | None = None
    outcome: str | None = None

    def __str__(self) -> str:
        arrow = {"request": "→", "answer": "←", "lost": "✗"}.get(self.kind)
        where = f"{self.left} {arrow} {self.right}" if arrow else self.left
        return f"{self.t_s:>10.3f} s  {where:<24} {self.text}"


Alias = Callable[[str], str]
"""Gives a short name to a payment id, a session id or an authorization."""


def shortened(name: str) -> str:
    """Return the beginning of an id, enough to find it in the journal."""
    return name if len(name) <= 14 else f"{name[:12]}…"


class Teller:
    """Puts events into words."""

    def __init__(self, reading: Reading, alias: Alias = shortened) -> None:
        self._reading, self._alias = reading, alias
        self._requests = {each.number: each for each in reading.exchanges}
        self._moved: dict[str, str] = {}
        self._tellers: dict[tuple[str, str], Callable[[dict[str, Any]], str | None]] = {
            ("chain", "transfer"): self._transfer,
            ("chain", "mined"): self._reverted,
            ("chain", "undone"): self._undone,
            ("chain", "authorization"): self._canceled,
            (SERVICE, "payment settled"): lambda d: f"payment {alias(d['payment_id'])} settled",
            (SERVICE, "payment refused"): lambda d: f"refused: {d['reason']}",
            (SERVICE, "payment failed"): lambda d: f"payment {alias(d['payment_id'])} failed",
            (SERVICE, "session opened"): lambda d: f"session {alias(d['session_id'])} opened",
            (SERVICE, "session debited"): self._debited,
            (SERVICE, "sessions expired"): lambda d: f"sessions expired: {d['count']}",
            (SERVICE, "session refunded"): lambda d: f"session {alias(d['session_id'])} refunded",
            (SERVICE, "indexer ran"): lambda d: (
                f"indexer ran: {d['asked']} asked, {d['matched']} matched, {d['backlog']} left"
            ),
            **_BY_STORY,
        }

    def line(self, event: Event) -> Line | None:
        """Return the line of an event; None for one that tells nothing of its own."""
        t_s = self._reading.since(event.at_ms) or 0.0
        if event.actor != "world" and "exchange" in event.data:
            return self._message(event, t_s)
        tell = self._tellers.get((event.actor, event.event))
        text = tell(event.data) if tell else _told_otherwise(event)
        if text is None:
            return None
        kind: Kind = "world" if event.actor == "world" else "note"
        if kind == "world" and event.event in ("check", "error"):
            kind = "alarm"
        return Line(event.seq, t_s, kind, event.actor, None, text)

    def _message(self, event: Event, t_s: float) -> Line | None:
        exchange = self._requests.get(event.data["exchange"])
        if exchange is None:
            return None
        kind: Kind = "request" if event is exchange.sent else "answer"
        text = self._asks(exchange) if kind == "request" else self._answers(exchange)
        if kind == "answer" and not exchange.is_answered:
            kind = "lost"
        to = _LANES.get(exchange.to, exchange.to)
        outcome = None if kind == "request" else exchange.outcome
        return Line(event.seq, t_s, kind, exchange.caller, to, text, exchange.number, outcome)

    def _asks(self, exchange: Exchange) -> str:
        data, path = exchange.sent.data, exchange.path
        if exchange.caller == SERVICE:
            return path.rpartition("?")[2].rpartition("/")[2]
        facts = [self._alias(data[name]) for name in ("payment_id", "session_id") if name in data]
        if "authorization" in data:
            facts.append(f"signed {self._alias(data['authorization'])}")
        head, _, tail = path.rpartition("/")
        path = f"{head}/{self._alias(tail)}" if tail.startswith(("pay_", "session_")) else path
        return f"{data['method']} {path}" + (f" ({', '.join(facts)})" if facts else "")

    def _answers(self, exchange: Exchange) -> str:
        told = exchange.told
        if not exchange.is_answered:
            return _LOSSES.get(told.get("reason", ""), str(told.get("reason")))
        facts = [f" {exchange.error}"] if exchange.error else []
        if told.get("ok") is False:
            facts.append(" not valid")
        if exchange.caller != SERVICE:
            asked = exchange.sent.data
            facts += [
                f" ({self._alias(told[name])})"
                for name in ("payment_id", "session_id")
                if isinstance(told.get(name), str) and told[name] != asked.get(name)
            ]
        return f"{exchange.status}{''.join(facts)}"

    def _transfer(self, data: dict[str, Any]) -> str | None:
        sender, to = (self._who(data[side]) for side in ("sender", "to"))
        amount = to_decimal(int(data["amount_base"]), self._reading.decimals)
        self._moved[data["tx"]] = f"{amount} {sender} → {to}"
        return None if sender == MINT else f"{self._moved[data['tx']]}, block {data['block']}"

    def _who(self, address: str) -> str:
        name = self._reading.name(address)
        return f"{name[:8]}…" if name == address else name

    def _undone(self, data: dict[str, Any]) -> str:
        return f"undone: {self._moved.get(data['tx'], 'a transaction')}"

    def _reverted(self, data: dict[str, Any]) -> str | None:
        reason = data["revert_reason"]
        return None if reason is None else f"reverted: {reason}"

    def _canceled(self, data: dict[str, Any]) -> str | None:
        canceled = data["use"] == "canceled"
        return f"{self._alias(data['authorization'])} canceled" if canceled else None

    def _debited(self, data: dict[str, Any]) -> str:
        amount = to_decimal(data["amount_base"], self._reading.decimals)
        return f"session {self._alias(data['session_id'])} debited {amount}"


def _fault(data: dict[str, Any]) -> str:
    """Return what goes wrong from now on: deed, victim, and what is not as usual about it."""
    told = {"times": "unlimited"} if data.get("times", 1) is None else {}
    told |= {k: v for k, v in data.items() if v and k not in ("victim", "does")}
    facts = ", ".join(f"{name} {value}" for name, value in told.items())
    return f"fault at {data['victim']}: {data['does']}" + (f" ({facts})" if facts else "")


def _failed_check(data: dict[str, Any]) -> str | None:
    if data["ok"]:
        return None
    return f"{data['clause']} failed: expected {data['expected']!r}, actual {data['actual']!r}"


_BY_STORY: dict[tuple[str, str], Callable[[dict[str, Any]], str | None]] = {
    ("world", "time goes by"): lambda d: f"{d['seconds']:g} s go by",
    ("world", "fault"): _fault,
    ("world", "skew"): lambda d: f"clock of {d['victim']}: {d['seconds']:+g} s",
    ("world", "explorer lag"): lambda d: f"explorer lags {d['seconds']:g} s",
    ("world", "crash"): lambda d: "service crashes and starts again",
    ("world", "mining"): lambda d: "mine at once" if d["automine"] else "mine on demand only",
    ("world", "reorg"): lambda d: f"reorganisation, {d['depth']} deep",
    ("world", "mempool dropped"): lambda d: "mempool dropped",
    ("world", "doom"): lambda d: f"the token's next calls revert: {d['calls']}",
    ("world", "check"): _failed_check,
    ("world", "error"): lambda d: f"the story broke: {d['trace'][-1]}",
}
_SILENT = frozenset(
    {
        ("world", "begin"),
        ("world", "end"),
        ("world", "joined"),
        (SERVICE, "payment indexed"),
        (SERVICE, "settlement answer lost"),
    }
)
"""What other lines say already."""


def _told_otherwise(event: Event) -> str | None:
    """Return an event nobody has words for as it is, such as a story's own."""
    if event.event == "answered" or (event.actor, event.event) in _SILENT:
        return None
    facts = " ".join(f"{name}={value}" for name, value in event.data.items() if value)
    return f"{event.event} {facts}".strip()


def lines(reading: Reading, alias: Alias = shortened) -> list[Line]:
    """Return what happened, in order."""
    teller = Teller(reading, alias)
    return [line for event in reading.events if (line := teller.line(event))]


def trace(journal: Journal, exchange: int) -> list[str]:
    """Return what happened from a request to its end, one line each; nothing if there is none.

    What the service, the chain and the world did meanwhile belongs to it, what other
    payers said does not.
    """
    reading = Reading(journal)
    return _between(reading, lines(reading), exchange)


def failed_checks(journal: Journal) -> list[tuple[dict[str, Any], list[str]]]:
    """Return each check that did not hold, with the trace of the request it is about."""
    reading = Reading(journal)
    told = lines(reading)
    return [
        (event.data, _between(reading, told, event.data["exchange"]))
        for event in reading.events
        if is_(event, "world", "check") and not event.data["ok"]
    ]


def _between(reading: Reading, told: list[Line], exchange: int) -> list[str]:
    found = next((each for each in reading.exchanges if each.number == exchange), None)
    if found is None:
        return []
    last = found.ended.seq if found.ended else reading.events[-1].seq
    meanwhile = [
        str(line)
        for line in told
        if found.sent.seq <= line.seq <= last
        and (line.exchange in (None, exchange) or line.left == SERVICE)
    ]
    return _without_middle(meanwhile)


def _without_middle(told: list[str]) -> list[str]:
    left_out, half = len(told) - LONGEST_TRACE, LONGEST_TRACE // 2
    if left_out <= 0:
        return told
    return [*told[:half], f"… {left_out} more …", *told[-half:]]
