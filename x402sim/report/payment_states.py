"""The state of each payment id, and of each session's budget, at the end of a journal.

The service's own events say it. Where a journal has none (a service behind a URL), the
answers that the payers received are used instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import assert_never, get_args

from x402sim import events
from x402sim.journal import Entry
from x402sim.protocol.refusals import is_final, refusal_named, request_error_named
from x402sim.report.reading import FOLLOWED, PAY, Reading, asks_for_payment

STATUSES = ("settled", "pending", "failed", "refused", "unpaid")
CHANGES = ("opened", "debited", "expired", "refunded", "failed")


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


class Payments:
    """Follows every payment id through a journal's events."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._asked: dict[int, events.RequestSent] = {}
        self.found: dict[str, Payment] = {}
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
                self._by_service(event, entry.at_ms)

    def _of(self, payment_id: str) -> Payment:
        return self.found.setdefault(payment_id, Payment(payment_id))

    # --- what a payer sees -----------------------------------------------------------

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

    # --- what the service says -------------------------------------------------------

    def _by_service(self, event: events.ServiceEvent, at_ms: int) -> None:
        match event:
            case events.PaymentSettled():
                self._settled(event, at_ms)
            case events.PaymentRefused():
                self._of(event.payment_id).refuse(
                    final=event.final, leaves_earlier=event.leaves_earlier
                )
            case events.PaymentFailed():
                payment = self._of(event.payment_id)
                payment.unresolved, payment.over = 0, "failed"
            case events.PaymentUndone():
                payment = self._of(event.payment_id)
                payment.unresolved, payment.over = 1, "unpaid"
            case events.TransactionReplaced():
                self._of(event.payment_id).tx = event.tx_hash
            case events.PaymentIndexed():
                self._of(event.payment_id).indexed_ms = at_ms
            case events.SessionOpened() | events.SessionDebited() | events.SessionRefunded():
                pass
            case events.RefundDelayed() | events.RefundUndone() | events.PaidAgain():
                pass
            case events.SettlementAnswerLost() | events.SessionsExpired() | events.IndexerRan():
                pass
            case _:
                assert_never(event)

    def _settled(self, event: events.PaymentSettled, at_ms: int) -> None:
        payment = self._of(event.payment_id)
        payment.over, payment.settled_ms = "settled", at_ms
        payment.tx, payment.resource = event.tx_hash, event.resource
        payment.amount_base = event.amount_base
        payment.payer = self._reading.name(event.payer)


def _was_not_read(answer: events.AnswerReceived) -> bool:
    """Tell whether the service refused a request before it looked at the payment in it."""
    if answer.error is None or answer.status >= 500:
        return False
    return request_error_named(answer.error) is not None


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

    @property
    def remaining(self) -> int:
        """What is left of the budget; nothing if its deposit failed."""
        return 0 if self.last == "failed" else self.deposited - self.released - self.refunded


class Sessions:
    """Follows every session through a journal's events."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._known: dict[str, Session] = {}
        self._by_deposit: dict[str, Session] = {}
        self._deposits: dict[str, str] = {}
        """The transaction of each settled payment id."""
        self._due: dict[str, list[tuple[int, int, Session]]] = {}
        """By service: the sessions that can expire, the first to be due first."""

    def changes(self) -> Iterator[tuple[Entry, Session]]:
        """Yield each entry that changes a session, and the session after it.

        What changed is `session.last`, one of `CHANGES`.
        """
        for entry in self._reading.journal.of(*get_args(events.ServiceEvent)):
            if isinstance(entry.event, events.ServiceEvent):
                for session in self._follow(entry.event):
                    yield entry, session

    def _follow(self, event: events.ServiceEvent) -> Iterator[Session]:
        """Yield the sessions that an event changes, as they are after it."""
        match event:
            case events.SessionOpened():
                yield self._opened(event)
            case events.SessionDebited(session_id=session_id) if session_id in self._known:
                session = self._known[session_id]
                session.released, session.last, session.tx = event.released_base, "debited", None
                yield session
            case events.SessionRefunded(session_id=session_id) if session_id in self._known:
                session = self._known[session_id]
                session.refunded, session.last = event.amount_base, "refunded"
                session.tx = event.tx_hash
                yield session
            case events.SessionsExpired():
                yield from self._expired(event.actor, event.count)
            case events.PaymentFailed():
                yield from self._failed(event.payment_id)
            case events.RefundUndone(session_id=session_id) if session_id in self._known:
                session = self._known[session_id]
                session.refunded, session.last, session.tx = 0, "expired", None
                yield session
            case events.SessionDebited() | events.SessionRefunded() | events.RefundUndone():
                pass  # the session was opened before the journal began
            case events.PaymentSettled() | events.TransactionReplaced():
                self._deposits[event.payment_id] = event.tx_hash
            case events.PaymentUndone() | events.RefundDelayed() | events.PaidAgain():
                pass
            case events.PaymentRefused() | events.PaymentIndexed():
                pass
            case events.SettlementAnswerLost() | events.IndexerRan():
                pass
            case _:
                assert_never(event)

    def _opened(self, event: events.SessionOpened) -> Session:
        payer = self._reading.name(event.payer)
        session = Session(
            event.session_id, event.payment_id, payer, event.expires_ms, event.deposited_base
        )
        session.tx = self._deposits.get(event.payment_id)
        self._known[session.session_id] = self._by_deposit[session.payment_id] = session
        due = self._due.setdefault(event.actor, [])
        heappush(due, (session.expires_ms, len(self._known), session))
        return session

    def _expired(self, service: str, left: int) -> Iterator[Session]:
        """Expire so many sessions of a service: those that were due first."""
        due = self._due.get(service, [])
        while left and due:
            session = heappop(due)[2]
            if session.last != "failed":
                session.last, session.tx = "expired", None
                left -= 1
                yield session

    def _failed(self, payment_id: str) -> Iterator[Session]:
        """End the session whose deposit turns out to have failed."""
        if payment_id in self._by_deposit:
            session = self._by_deposit[payment_id]
            session.last, session.tx = "failed", None
            yield session
