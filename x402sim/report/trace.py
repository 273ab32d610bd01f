"""Describes events in words, for the trace of a request and for sequence diagrams."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

import msgspec
from msgspec import UNSET

from x402sim import events
from x402sim.journal import Entry, Journal
from x402sim.protocol.money import to_decimal
from x402sim.report.reading import LARGE, MINT, Reading, reading_of

Kind = Literal["request", "answer", "lost", "action", "world", "alarm"]
"""A request, its answer, a lost answer; an action of a part; an event of the story; a failure."""
CHAIN = "chain"
LONGEST_TRACE = 60
"""Lines; the middle of a longer trace is left out."""
LANES = {"rpc": CHAIN}
_LOSSES = {
    "RemoteProtocolError": "connection lost",
    "ReadError": "connection lost",
    "ConnectError": "connection refused",
    "timeout": "timed out",
}


@dataclass(frozen=True, slots=True)
class TraceLine:
    """One event in words: where it happened (`left`; a message goes to `right`), and the text.

    With `in_answer`, the service's answer to the payer has the same content, so a diagram leaves
    the line out. Only diagrams set `outcome`.
    """

    seq: int
    t_s: float
    kind: Kind
    left: str
    right: str | None
    text: str
    exchange: int | None = None
    outcome: str | None = None
    in_answer: bool = False

    def __str__(self) -> str:
        arrow = {"request": "→", "answer": "←", "lost": "✗"}.get(self.kind)
        where = f"{self.left} {arrow} {self.right}" if arrow else self.left
        return f"{self.t_s:>10.3f} s  {where:<24} {self.text}"


Alias = Callable[[str], str]
"""Gives a short name to a payment id, a session id or an authorization."""
_IDS = ("payment_id", "session_id", "authorization")
_TEXTS: dict[type, str] = {
    # changes of a story to its world
    events.TimeAdvanced: "{seconds:g} s go by",
    events.FaultInjected: "fault at {victim}: {does}{facts}",
    events.FaultPeriodEnded: "{does} at {victim} for {lasted} s, {struck} requests struck",
    events.ClockSkewed: "clock of {victim}: {seconds:+g} s",
    events.ExplorerLagged: "explorer lags {seconds:g} s",
    events.ServiceCrashed: "{victim} crashes and starts again",
    events.MiningSwitched: "mine {mines}",
    events.ChainReorganised: "reorganisation, {depth} deep",
    events.MempoolDropped: "mempool dropped",
    events.RevertsForced: "the token's next calls revert: {calls}{of}",
    events.Note: "{name}{facts}",
    # failures in the story
    events.Check: "{clause} failed: expected {expected!r}, actual {actual!r}",
    events.StoryRaised: "the story broke{why}",
    # a part with a limited number of servers
    events.RequestArrived: "{path} finds {ahead} ahead of it",
    events.RequestEnded: "request {request} {outcome}",
    # the chain
    events.TransactionMined: "reverted: {revert_reason}",
    events.Transfer: "{moved}, block {block}",
    events.AuthorizationConsumed: "{authorization} canceled",
    events.TransactionUndone: "undone: {moved}",
    # a service
    events.PaymentSettled: "payment {payment_id} settled",
    events.UsageMeasured: "used {used} of at most {maximum}",
    events.UsageSettled: "{used} of at most {maximum} settled",
    events.UsageFailed: "{used} used, and never paid",
    events.PaymentRefused: "refused: {refusal}{why}",
    events.PaymentFailed: "payment {payment_id} failed",
    events.PaymentUndone: "payment {payment_id} undone by the chain",
    events.PaidAgain: "payment {payment_id} paid again, for nothing",
    events.TransactionReplaced: "payment {payment_id} made by another transaction",
    events.SessionOpened: "session {session_id} opened",
    events.SessionDebited: "session {session_id} debited {amount}",
    events.DebitUndone: "debit of session {session_id} undone: its client has hung up",
    events.AnswerNotWritten: "payment {payment_id} not served: its client has hung up",
    events.SessionsExpired: "sessions expired: {count}",
    events.SessionRefunded: "session {session_id} refunded",
    events.RefundUndone: "refund of session {session_id} undone by the chain",
    events.RefundDelayed: "refund of session {session_id} waits {retry_s} s",
    events.IndexerRan: "indexer ran: {asked} asked, {matched} matched, {backlog} left",
}
"""The text of each event with a line, as a format of its fields; messages: `_message`."""


def shortened(name: str) -> str:
    """Return the beginning of an id, long enough to find it in the journal."""
    return name if len(name) <= 14 else f"{name[:12]}…"


class Narrator:
    """Makes the lines of events."""

    def __init__(self, reading: Reading, alias: Alias, words: Callable[[str], str]) -> None:
        self._reading, self._alias, self._words = reading, alias, words
        requests = reading.journal.events(events.RequestSent)
        self._requests = {each.exchange: each for each in requests}
        self._moved: dict[str, str] = {}

    def line(self, entry: Entry) -> TraceLine | None:
        """Return the line of an entry; None without a line, or if another line has its content."""
        event = entry.event
        if isinstance(event, events.ExchangeEvent):
            return self._message(entry, event)
        if (more := self._more(event)) is None:
            return None
        words, fields = _TEXTS[type(event)], msgspec.structs.asdict(event)
        fields |= {name: self._alias(fields[name]) for name in _IDS if f"{{{name}}}" in words}
        kind: Kind = "action"
        if isinstance(event, events.StoryEvent):
            kind = "alarm" if isinstance(event, events.Check | events.StoryRaised) else "world"
        in_answer = isinstance(
            event, events.PaymentSettled | events.PaymentRefused | events.SessionDebited
        )
        t_s, text = self._reading.since(entry.at_ms), words.format_map(fields | more)
        return TraceLine(entry.seq, t_s, kind, event.actor, None, text, in_answer=in_answer)

    # --- exchanges -------------------------------------------------------------------

    def _message(self, entry: Entry, event: events.ExchangeEvent) -> TraceLine | None:
        request = self._requests.get(event.exchange)
        if request is None:
            return None
        kind: Kind
        match event:
            case events.RequestSent():
                kind, text = "request", self._asks(event)
            case events.AnswerReceived():
                kind, text = "answer", self._answers(request, event)
            case events.NoAnswer(reason=reason):
                kind, text = "lost", _LOSSES.get(reason, reason)
            case _:
                assert_never(event)
        t_s, to = self._reading.since(entry.at_ms), LANES.get(request.to, request.to)
        return TraceLine(entry.seq, t_s, kind, request.actor, to, text, request.exchange)

    def _asks(self, request: events.RequestSent) -> str:
        path = request.path
        if request.actor in self._reading.services:
            return path.rpartition("?")[2].rpartition("/")[2]
        named = (request.payment_id, request.session_id)
        facts = [self._alias(name) for name in named if name is not None]
        if request.authorization is not None:
            facts.append(f"signed {self._alias(request.authorization)}")
        head, _, tail = path.rpartition("/")
        path = f"{head}/{self._alias(tail)}" if tail.startswith(("pay_", "session_")) else path
        return f"{request.method} {path}" + _in_brackets(facts)

    def _answers(self, request: events.RequestSent, answer: events.AnswerReceived) -> str:
        facts = [f" {answer.error}"] if answer.error else []
        if answer.ok is False:
            facts.append(" not valid")
        if request.actor not in self._reading.services:
            pairs = (answer.payment_id, request.payment_id), (answer.session_id, request.session_id)
            facts += [
                f" ({self._alias(name)})"
                for name, before in pairs
                if name is not None and name != before
            ]
        return f"{answer.status}{''.join(facts)}"

    # --- all other events ------------------------------------------------------------

    def _more(self, event: events.Event) -> dict[str, str] | None:
        """Return more words for a text; None for an event without a line."""
        match event:
            case events.Begin() | events.End() | events.ServiceJoined() | events.PayerJoined():
                return None
            case events.PaymentIndexed() | events.SettlementAnswerLost() | events.AnswerSent():
                return None
            case events.RequestArrived(ahead=0) | events.RequestStarted():
                return None
            case events.RequestEnded(outcome="served"):
                return None
            case events.Check(ok=True) | events.TransactionMined(revert_reason=None):
                return None
            case events.AuthorizationConsumed(use="used"):
                return None  # the transfer has a line
            case events.FaultInjected():
                return {"facts": _in_brackets(_options(event))}
            case events.FaultPeriodEnded(from_ms=from_ms, until_ms=until_ms):
                return {"lasted": f"{(until_ms - from_ms) / 1000:g}"}
            case events.MiningSwitched(automine=automine):
                return {"mines": "at once" if automine else "on demand only"}
            case events.RevertsForced(account=account):
                return {"of": "" if account is UNSET else f" of {self._who(account)}"}
            case events.Note(data=data):
                return {"facts": "".join(f" {key}={value}" for key, value in data.items() if value)}
            case events.StoryRaised(trace=[*_, reason]) | events.PaymentRefused(reason=str(reason)):
                return {"why": f": {reason}" if reason else ""}
            case events.StoryRaised() | events.PaymentRefused():
                return {"why": ""}
            case events.Transfer(sender=sender, to=to, amount_base=amount_base):
                moved = f"{self._amount(amount_base)} {self._who(sender)} → {self._who(to)}"
                self._moved[event.tx_hash] = moved
                return None if self._reading.name(sender) == MINT else {"moved": moved}
            case events.TransactionUndone(tx_hash=tx_hash):
                return {"moved": self._moved.get(tx_hash, "a transaction")}
            case (
                events.UsageMeasured(used_base=used, maximum_base=maximum)
                | events.UsageSettled(settled_base=used, maximum_base=maximum)
            ):
                symbol = self._reading.symbol
                return {"used": self._amount(used), "maximum": f"{self._amount(maximum)} {symbol}"}
            case events.UsageFailed(used_base=used):
                return {"used": self._amount(used)}
            case events.SessionDebited(amount_base=amount_base):
                return {"amount": self._amount(amount_base)}
            case _:
                return {}

    def _amount(self, base: int | str) -> str:
        return to_decimal(int(base), self._reading.decimals)

    def _who(self, address: str) -> str:
        name = self._reading.name(address)
        return f"{name[:8]}…" if name == address else self._words(name)


def _in_brackets(facts: list[str]) -> str:
    return f" ({', '.join(facts)})" if facts else ""


def _options(fault: events.FaultInjected) -> list[str]:
    defaults = {field.name: field.default for field in msgspec.structs.fields(fault)}
    return [
        f"{name} {'unlimited' if value is None else value}"
        for name, value in msgspec.structs.asdict(fault).items()
        if name not in ("actor", "victim", "does") and value != defaults[name]
    ]


def lines(
    reading: Reading, alias: Alias = shortened, words: Callable[[str], str] = str
) -> list[TraceLine]:
    """Return the lines of a journal, in order; `words` renames parties."""
    narrator = Narrator(reading, alias, words)
    return [line for entry in reading.journal if (line := narrator.line(entry))]


def failed_checks(journal: Journal) -> list[tuple[events.Check, list[str]]]:
    """Return each failed check, with the trace of its request."""
    failed = [check for check in journal.events(events.Check) if not check.ok]
    reading = reading_of(journal)
    if len(journal) > LARGE:
        parts = [_part_of(reading, check.exchange) for check in failed]
        return [
            (check, trace(part, lines(part), check.exchange))
            for check, part in zip(failed, parts, strict=True)
        ]
    every = lines(reading) if failed else []
    return [(check, trace(reading, every, check.exchange)) for check in failed]


def _part_of(reading: Reading, exchange: int | None) -> Reading:
    """Return the reading of the events from a request to its end; empty without a request."""
    journal, found = reading.journal, list[Entry]()
    since = journal.length if exchange is None else reading.seq_of(exchange)
    for entry in journal.between(since, journal.length):
        found.append(entry)
        ends = isinstance(entry.event, events.AnswerReceived | events.NoAnswer)
        if ends and getattr(entry.event, "exchange", None) == exchange:
            break
    return reading.of_part(found)


def trace(reading: Reading, every: list[TraceLine], exchange: int | None) -> list[str]:
    """Return the lines from a request to its end; none without a request.

    The lines include actions of the service, the chain and the world meanwhile, and leave out
    requests of other payers.
    """
    own = [line.seq for line in every if line.exchange == exchange]
    if exchange is None or not own:
        return []
    last = own[1] if len(own) > 1 else reading.journal.length
    meanwhile = [
        str(line)
        for line in every
        if own[0] <= line.seq <= last
        and (line.exchange in (None, exchange) or line.left in reading.services)
    ]
    left_out, half = len(meanwhile) - LONGEST_TRACE, LONGEST_TRACE // 2
    if left_out > 0:
        meanwhile[half:-half] = [f"… {left_out} more …"]
    return meanwhile
