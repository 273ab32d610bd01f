"""The state of each payment id, and of each session's budget, at the end of a journal.

The service's own events say it. Where a journal has none (a service behind a URL), the
answers that the payers received are used instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Self, assert_never, get_args

from x402sim import events
from x402sim.journal import Entry
from x402sim.protocol.refusals import is_final, refusal_named, request_error_named
from x402sim.report.reading import FOLLOWED, PAY, Reading, asks_for_payment

STATUSES = ("settled", "pending", "failed", "refused", "unpaid")
CHANGES = ("opened", "debited", "expired", "refunded", "failed")


@dataclass(slots=True)
class Session:
    """A session's budget: deposited, released by requests and paid back, in base units."""

    session_id: str
    payment_id: str
    payer: str
    expires_ms: int
    deposited: int
    released: int = 0
    refunded: int = 0
    last: str = "opened"
    tx: str | None = None
    """The transaction of the last change: of the deposit if it opened, of the refund, or None."""
    refund_tx: str | None = None
    """The transaction of the refund, while it stands."""

    @property
    def remaining(self) -> int:
        """What is left of the budget; nothing if its deposit failed."""
        return 0 if self.last == "failed" else self.deposited - self.released - self.refunded

    def change(self, to: str, tx: str | None = None) -> Self:
        """Return the session after a change, which a transaction may have made."""
        self.last, self.tx = to, tx
        return self


@dataclass(slots=True)
class Payment:
    """What became of one payment id; `unresolved` counts its attempts whose end is not known."""

    payment_id: str
    payer: str | None = None
    resource: str | None = None
    amount_base: int | None = None
    asked_ms: int | None = None
    settled_ms: int | None = None
    indexed_ms: int | None = None
    tx: str | None = None
    over: str = "unpaid"
    unresolved: int = 0

    @property
    def status(self) -> str:
        """One of `STATUSES`."""
        return "pending" if self.unresolved and not self.is_final else self.over

    @property
    def is_final(self) -> bool:
        """Whether no attempt changes it any more: it was paid, or its transaction reverted."""
        return self.over == "settled" or (self.over == "failed" and self.tx is not None)

    def refuse(self, *, final: bool, leaves_earlier: bool) -> None:
        """One attempt was refused; see `events.PaymentRefused` for the two facts."""
        if self.is_final or not final:
            return
        if leaves_earlier:
            self.unresolved = max(0, self.unresolved - 1)
            self.over = "refused" if self.over == "unpaid" else self.over
        else:
            self.unresolved, self.over = 0, "refused"


class Told:
    """What the services' own events say of payments and sessions, followed one by one."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.payments: dict[str, Payment] = {}
        self.sessions: dict[str, Session] = {}
        self.settled: dict[str, str] = {}
        """The payment id that was first settled with each transaction."""
        self._by_deposit: dict[str, Session] = {}
        self._due: dict[str, list[tuple[int, int, Session]]] = {}
        """By service: the sessions that can expire, the first to be due first."""

    def of(self, payment_id: str) -> Payment:
        """Return a payment; a new one unless it is known."""
        return self.payments.setdefault(payment_id, Payment(payment_id))

    def follow(self, event: events.ServiceEvent, at_ms: int) -> list[Session]:
        """Follow an event; return the sessions that it changes."""
        match event:
            case events.PaymentSettled():
                self._settled(event, at_ms)
            case events.PaymentRefused():
                self.of(event.payment_id).refuse(
                    final=event.final, leaves_earlier=event.leaves_earlier
                )
            case events.PaymentFailed():
                payment = self.of(event.payment_id)
                payment.unresolved, payment.over = 0, "failed"
                if session := self._by_deposit.get(event.payment_id):
                    return [session.change("failed")]
            case events.PaymentUndone():
                payment = self.of(event.payment_id)
                payment.unresolved, payment.over = 1, "unpaid"
            case events.TransactionReplaced():
                self.of(event.payment_id).tx = event.tx_hash
                self.settled.setdefault(event.tx_hash, event.payment_id)
            case events.PaymentIndexed():
                self.of(event.payment_id).indexed_ms = at_ms
            case events.SessionOpened():
                return [self._opened(event)]
            case events.SessionDebited() | events.SessionRefunded() | events.RefundUndone():
                if session := self.sessions.get(event.session_id):
                    return [_changed(session, event)]
            case events.SessionsExpired():
                return list(self._expired(event.actor, event.count))
            case events.RefundDelayed() | events.SettlementAnswerLost():
                pass
            case events.PaidAgain() | events.IndexerRan():
                pass
            case _:
                assert_never(event)
        return []

    def _settled(self, event: events.PaymentSettled, at_ms: int) -> None:
        payment = self.of(event.payment_id)
        payment.over, payment.settled_ms = "settled", at_ms
        payment.tx, payment.resource = event.tx_hash, event.resource
        payment.amount_base = event.amount_base
        payment.payer = self._reading.name(event.payer)
        self.settled.setdefault(event.tx_hash, event.payment_id)

    def _opened(self, event: events.SessionOpened) -> Session:
        payer, payment = self._reading.name(event.payer), self.payments.get(event.payment_id)
        session = Session(
            event.session_id, event.payment_id, payer, event.expires_ms, event.deposited_base
        )
        session.tx = payment.tx if payment else None
        self.sessions[session.session_id] = self._by_deposit[session.payment_id] = session
        due = self._due.setdefault(event.actor, [])
        heappush(due, (session.expires_ms, len(self.sessions), session))
        return session

    def _expired(self, service: str, left: int) -> Iterator[Session]:
        """Expire so many sessions of a service: those that were due first."""
        due = self._due.get(service, [])
        while left and due:
            session = heappop(due)[2]
            if session.last != "failed":
                left -= 1
                yield session.change("expired")


def _changed(
    session: Session, event: events.SessionDebited | events.SessionRefunded | events.RefundUndone
) -> Session:
    """Return a session whose budget an event has changed."""
    match event:
        case events.SessionDebited(released_base=released):
            session.released = released
            return session.change("debited")
        case events.SessionRefunded(amount_base=refunded, tx_hash=tx):
            session.refunded, session.refund_tx = refunded, tx
            return session.change("refunded", tx)
        case events.RefundUndone():
            session.refunded, session.refund_tx = 0, None
            return session.change("expired")
        case _:
            assert_never(event)


def session_changes(reading: Reading) -> Iterator[tuple[Entry, Session]]:
    """Yield each entry that changes a session, and the session after it.

    What changed is `session.last`, one of `CHANGES`.
    """
    told = Told(reading)
    for entry in reading.journal.of(*get_args(events.ServiceEvent)):
        if isinstance(entry.event, events.ServiceEvent):
            for session in told.follow(entry.event, entry.at_ms):
                yield entry, session


class Payments:
    """Follows every payment id through a journal's events."""

    def __init__(self, reading: Reading) -> None:
        self._asked: dict[int, events.RequestSent] = {}
        told = Told(reading)
        self._of, self.found = told.of, told.payments
        self._is_seen = any(
            True for _ in reading.journal.of(events.PaymentSettled, events.PaymentRefused)
        )
        mined = reading.standing(events.TransactionMined, "tx_hash", "block", "gas")
        self.included = {tx: (block, gas) for tx, block, gas in mined}
        """The transactions that stand in the chain at the end: the block of each, and its gas."""
        for entry in reading.journal.of(*FOLLOWED, to=reading.services):
            event = entry.event
            if isinstance(event, events.ExchangeEvent):  # first: most are, and each test takes time
                self._by_payer(event, entry.at_ms)
            elif isinstance(event, events.ServiceEvent):
                told.follow(event, entry.at_ms)

    def _by_payer(self, event: events.ExchangeEvent, at_ms: int) -> None:
        match event:
            case events.RequestSent():
                self._asked[event.exchange] = event
                self._request(event)
            case events.AnswerReceived():
                request = self._asked.pop(event.exchange, None)
                if request is not None:
                    self._answer(request, event, at_ms)
            case events.NoAnswer():
                self._asked.pop(event.exchange, None)
            case _:
                assert_never(event)

    def _request(self, request: events.RequestSent) -> None:
        if request.payment_id is None or not request.path.endswith(PAY):
            return
        payment = self._of(request.payment_id)
        payment.unresolved += 1
        if payment.settled_ms is None:
            payment.payer = request.actor

    def _answer(
        self, request: events.RequestSent, answer: events.AnswerReceived, at_ms: int
    ) -> None:
        if answer.payment_id is not None and asks_for_payment(request.path, answer):
            payment = self._of(answer.payment_id)
            if payment.asked_ms is None:
                payment.asked_ms = at_ms
                payment.payer = payment.payer or answer.actor
                payment.resource = payment.resource or request.path
        elif request.path.endswith(PAY) and request.payment_id is not None:
            if _was_not_read(answer):
                self._of(request.payment_id).refuse(final=True, leaves_earlier=True)
            elif not self._is_seen:
                self._believe(self._of(request.payment_id), answer, at_ms)

    def _believe(self, payment: Payment, answer: events.AnswerReceived, at_ms: int) -> None:
        """Take the payer's answer, as the service's own events are not in the journal."""
        if answer.status == 200:
            payment.over, payment.settled_ms = "settled", at_ms
            payment.tx = answer.tx_hash
        elif answer.error is not None:
            refusal = refusal_named(answer.error)
            payment.refuse(
                final=is_final(answer.error, answer.final),
                leaves_earlier=refusal is not None and refusal.row.leaves_earlier,
            )


def _was_not_read(answer: events.AnswerReceived) -> bool:
    """Tell whether the service refused a request before it looked at the payment in it."""
    if answer.error is None or answer.status >= 500:
        return False
    return request_error_named(answer.error) is not None
