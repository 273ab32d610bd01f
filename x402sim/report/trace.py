"""Puts events into words, for the trace of a request and for sequence diagrams."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, assert_never

import msgspec

from x402sim import events
from x402sim.journal import Entry, Journal
from x402sim.protocol.money import to_decimal
from x402sim.report.reading import MINT, Reading, reading_of

Kind = Literal["request", "answer", "lost", "action", "world", "alarm"]
"""A request, its answer, no answer; what a part did; what the story did; what failed."""
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
class Line:
    """One event in words: where it happened (`left`; a message goes to `right`), and what.

    `in_answer` means that the service's answer to the payer says the same. `outcome` is told for
    diagrams only.
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


def shortened(name: str) -> str:
    """Return the beginning of an id, enough to find it in the journal."""
    return name if len(name) <= 14 else f"{name[:12]}…"


class Teller:
    """Puts events into words."""

    def __init__(
        self, reading: Reading, alias: Alias = shortened, words: Callable[[str], str] = str
    ) -> None:
        self._reading, self._alias, self._words = reading, alias, words
        requests = reading.journal.events(events.RequestSent)
        self._requests = {each.exchange: each for each in requests}
        self._moved: dict[str, str] = {}

    def line(self, entry: Entry) -> Line | None:
        """Return the line of an entry; None if other lines already say the same."""
        event = entry.event
        if isinstance(event, events.ExchangeEvent):
            return self._message(entry, event)
        kind: Kind = "action"
        if isinstance(event, events.StoryEvent):
            kind, text = _by_story(event)
        elif isinstance(event, events.ChainEvent):
            text = self._by_chain(event)
        elif isinstance(event, events.ServiceEvent):
            text = self._by_service(event)
        elif isinstance(event, events.AnswerSent):
            text = None  # the answer that the caller receives has a line
        else:
            assert_never(event)
        if text is None:
            return None
        in_answer = isinstance(
            event, events.PaymentSettled | events.PaymentRefused | events.SessionDebited
        )
        t_s = self._reading.since(entry.at_ms)
        return Line(entry.seq, t_s, kind, event.actor, None, text, in_answer=in_answer)

    # --- exchanges -------------------------------------------------------------------

    def _message(self, entry: Entry, event: events.ExchangeEvent) -> Line | None:
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
        return Line(entry.seq, t_s, kind, request.actor, to, text, request.exchange)

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
        return f"{request.method} {path}" + (f" ({', '.join(facts)})" if facts else "")

    def _answers(self, asked: events.RequestSent, answer: events.AnswerReceived) -> str:
        facts = [f" {answer.error}"] if answer.error else []
        if answer.ok is False:
            facts.append(" not valid")
        if asked.actor not in self._reading.services:
            pairs = (answer.payment_id, asked.payment_id), (answer.session_id, asked.session_id)
            facts += [
                f" ({self._alias(name)})"
                for name, before in pairs
                if name is not None and name != before
            ]
        return f"{answer.status}{''.join(facts)}"

    # --- the chain and the service ---------------------------------------------------

    def _by_chain(self, event: events.ChainEvent) -> str | None:
        match event:
            case events.TransactionMined(revert_reason=reason):
                return None if reason is None else f"reverted: {reason}"
            case events.Transfer():
                return self._transfer(event)
            case events.AuthorizationConsumed(use="canceled"):
                return f"{self._alias(event.authorization)} canceled"
            case events.AuthorizationConsumed():
                return None  # its transfer has a line
            case events.TransactionUndone(tx_hash=tx_hash):
                return f"undone: {self._moved.get(tx_hash, 'a transaction')}"
            case _:
                assert_never(event)

    def _transfer(self, event: events.Transfer) -> str | None:
        sender, to = self._who(event.sender), self._who(event.to)
        amount = to_decimal(int(event.amount_base), self._reading.decimals)
        moved = self._moved[event.tx_hash] = f"{amount} {sender} → {to}"
        is_mint = self._reading.name(event.sender) == MINT
        return None if is_mint else f"{moved}, block {event.block}"

    def _who(self, address: str) -> str:
        name = self._reading.name(address)
        return f"{name[:8]}…" if name == address else self._words(name)

    def _by_service(self, event: events.ServiceEvent) -> str | None:
        match event:
            case events.PaymentSettled():
                return f"payment {self._alias(event.payment_id)} settled"
            case events.PaymentRefused(refusal=refusal, reason=reason):
                return f"refused: {refusal}" + (f": {reason}" if reason else "")
            case events.PaymentFailed():
                return f"payment {self._alias(event.payment_id)} failed"
            case events.PaymentUndone():
                return f"payment {self._alias(event.payment_id)} undone by the chain"
            case events.PaidAgain():
                return f"payment {self._alias(event.payment_id)} paid again, for nothing"
            case events.TransactionReplaced():
                return f"payment {self._alias(event.payment_id)} made by another transaction"
            case events.SessionOpened():
                return f"session {self._alias(event.session_id)} opened"
            case events.SessionDebited():
                amount = to_decimal(event.amount_base, self._reading.decimals)
                return f"session {self._alias(event.session_id)} debited {amount}"
            case events.SessionsExpired(count=count):
                return f"sessions expired: {count}"
            case events.SessionRefunded():
                return f"session {self._alias(event.session_id)} refunded"
            case events.RefundUndone():
                return f"refund of session {self._alias(event.session_id)} undone by the chain"
            case events.RefundDelayed(retry_s=retry_s):
                return f"refund of session {self._alias(event.session_id)} waits {retry_s} s"
            case events.IndexerRan(asked=asked, matched=matched, backlog=left):
                return f"indexer ran: {asked} asked, {matched} matched, {left} left"
            case events.PaymentIndexed() | events.SettlementAnswerLost():
                return None
            case _:
                assert_never(event)


def _by_story(event: events.StoryEvent) -> tuple[Kind, str | None]:
    """Return what a story did, or what failed in it."""
    if isinstance(event, events.Intervention):
        return "world", _intervention(event)
    match event:
        case events.Check(ok=False):
            text = f"{event.clause} failed: expected {event.expected!r}, actual {event.actual!r}"
            return "alarm", text
        case events.StoryRaised(trace=trace):
            return "alarm", f"the story broke: {trace[-1]}" if trace else "the story broke"
        case events.Note(name=name, data=data):
            facts = "".join(f" {key}={value}" for key, value in data.items() if value)
            return "world", name + facts
        case events.Begin() | events.End() | events.Check():
            return "world", None
        case events.ServiceJoined() | events.PayerJoined():
            return "world", None
        case _:
            assert_never(event)


def _intervention(event: events.Intervention) -> str:
    """Return what a story did to the world, in words."""
    match event:
        case events.TimeAdvanced(seconds=seconds):
            return f"{seconds:g} s go by"
        case events.FaultInjected():
            return _fault(event)
        case events.ClockSkewed(victim=victim, seconds=seconds):
            return f"clock of {victim}: {seconds:+g} s"
        case events.ExplorerLagged(seconds=seconds):
            return f"explorer lags {seconds:g} s"
        case events.ServiceCrashed(victim=victim):
            return f"{victim} crashes and starts again"
        case events.MiningSwitched(automine=automine):
            return "mine at once" if automine else "mine on demand only"
        case events.ChainReorganised(depth=depth):
            return f"reorganisation, {depth} deep"
        case events.MempoolDropped():
            return "mempool dropped"
        case events.RevertsForced(calls=calls):
            return f"the token's next calls revert: {calls}"
        case _:
            assert_never(event)


def _fault(event: events.FaultInjected) -> str:
    """Return a fault in words: what it does, to whom, and the fields that are not the default."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(event)}
    facts = [
        f"{name} {'unlimited' if value is None else value}"
        for name, value in msgspec.structs.asdict(event).items()
        if name not in ("actor", "victim", "does") and value != defaults[name]
    ]
    return f"fault at {event.victim}: {event.does}" + (f" ({', '.join(facts)})" if facts else "")


def lines(
    reading: Reading, alias: Alias = shortened, words: Callable[[str], str] = str
) -> list[Line]:
    """Return the lines of a journal, in order; `words` gives other words for a party's name."""
    teller = Teller(reading, alias, words)
    return [line for entry in reading.journal if (line := teller.line(entry))]


def trace(journal: Journal, exchange: int) -> list[str]:
    """Return what happened from a request to its end, one line each; nothing if there is none.

    It includes what the service, the chain and the world did meanwhile, and leaves out the
    requests of other payers.
    """
    reading = reading_of(journal)
    return _between(reading, lines(reading), exchange)


def failed_checks(journal: Journal) -> list[tuple[events.Check, list[str]]]:
    """Return each check that did not hold, with the trace of the request it is about."""
    reading = reading_of(journal)
    every = lines(reading)
    return [
        (check, _between(reading, every, check.exchange))
        for check in journal.events(events.Check)
        if not check.ok
    ]


def _between(reading: Reading, every: list[Line], exchange: int | None) -> list[str]:
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
