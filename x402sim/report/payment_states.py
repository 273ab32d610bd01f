"""The state of each payment id, and of each session's budget, at the end of a journal.

The service's own events say it. Where a journal has none (a service behind a URL), the
answers that the payers received are used instead.
"""

from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush

from x402sim import events
from x402sim.protocol.refusals import Refusal, RequestError, is_final
from x402sim.report.columns import in_turn
from x402sim.report.exchanges import Asked, exchanges_of
from x402sim.report.reading import Reading

STATUSES = ("settled", "pending", "failed", "refused", "unpaid")
CHANGES = ("opened", "debited", "expired", "refunded", "failed")


@dataclass(slots=True)
class Session:
    """A session's budget: deposited, released by requests and paid back, in base units."""

    at_ms: int
    session_id: str
    payment_id: str
    payer: str
    expires_ms: int
    deposited_base: int
    released_base: int = 0
    refunded_base: int = 0
    last: str = "opened"
    """The last change, and `at_ms` its moment."""
    tx: str | None = None
    """The transaction of the last change: of the deposit if it opened, of the refund, or None."""

    @property
    def remaining_base(self) -> int:
        """What is left of the budget; nothing if its deposit failed."""
        left_base = self.deposited_base - self.released_base - self.refunded_base
        return 0 if self.last == "failed" else left_base


@dataclass(slots=True)
class Payment:
    """What became of one payment id; `unresolved` counts its attempts whose end is not known.

    `block` and `gas` are of its transaction, if that stands in the chain at the end.
    """

    payment_id: str
    payer: str | None = None
    resource: str | None = None
    amount_base: int | None = None
    asked_ms: int | None = None
    settled_ms: int | None = None
    indexed_ms: int | None = None
    tx: str | None = None
    block: int | None = None
    gas: int | None = None
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
    """Follows every payment id through a journal; `found` has them in order of appearance."""

    def __init__(self, reading: Reading) -> None:
        self.found: dict[str, Payment] = {}
        self._reading = reading
        rows = reading.journal.rows
        settled = list(rows(
            events.PaymentSettled,
            "seq", "at_ms", "payment_id", "tx_hash", "payer", "amount_base", "resource",
        ))  # fmt: skip
        refused = list(rows(
            events.PaymentRefused, "seq", "payment_id", "final", "leaves_earlier"
        ))  # fmt: skip
        self._is_seen = bool(settled or refused)
        every = exchanges_of(reading.journal)
        tries = every.to_service & every.pays & (every.sent["payment_id"] != 0)
        ended = tries & (every.ended("status") != 0)
        if self._is_seen:
            ended &= every.ended("error") != 0
        in_turn(
            (self._asked, every.answered(every.to_service & every.asks)),
            (self._tried, every.asked(tries)),
            (self._answered, every.answered(ended)),
            (self._settled, settled),
            (self._refused, refused),
            (self._failed, rows(events.PaymentFailed, "seq", "payment_id")),
            (self._undone, rows(events.PaymentUndone, "seq", "payment_id")),
            (self._replaced, rows(events.TransactionReplaced, "seq", "payment_id", "tx_hash")),
            (self._indexed, rows(events.PaymentIndexed, "seq", "payment_id", "at_ms")),
        )
        mined = reading.standing("tx_hash", "block", "gas")
        included = {tx: (block, gas) for tx, block, gas in mined}
        for each in self.found.values():
            each.block, each.gas = included.get(each.tx or "", (None, None))

    def _of(self, payment_id: str) -> Payment:
        """Return a payment; a new one unless it is known."""
        if payment_id not in self.found:
            self.found[payment_id] = Payment(payment_id)
        return self.found[payment_id]

    # --- what a payer sees -----------------------------------------------------------

    def _asked(self, asked: Asked) -> None:
        payment = self._of(str(asked.named))
        if payment.asked_ms is None:
            payment.asked_ms = asked.ended_ms
            payment.payer = payment.payer or asked.payer
            payment.resource = payment.resource or asked.path

    def _tried(self, asked: Asked) -> None:
        payment = self._of(str(asked.payment_id))
        payment.unresolved += 1
        if payment.settled_ms is None:
            payment.payer = asked.payer

    def _answered(self, asked: Asked) -> None:
        payment = self._of(str(asked.payment_id))
        if asked.error and asked.status < 500 and RequestError.named(asked.error) is not None:
            # The service refused the request before it looked at the payment in it.
            payment.refuse(final=True, leaves_earlier=True)
        elif self._is_seen:
            return
        elif asked.status == 200:  # the service's own events are not in the journal
            payment.over, payment.settled_ms = "settled", asked.ended_ms
            payment.tx = asked.tx
        elif asked.error is not None:
            refusal = Refusal.named(asked.error)
            payment.refuse(
                final=is_final(asked.error, asked.final),
                leaves_earlier=refusal is not None and refusal.row.leaves_earlier,
            )

    # --- what the service says -------------------------------------------------------

    def _settled(
        self, at_ms: int, payment_id: str, tx: str, payer: str, amount_base: int, resource: str
    ) -> None:
        payment = self._of(payment_id)
        payment.over, payment.settled_ms = "settled", at_ms
        payment.tx, payment.resource, payment.amount_base = tx, resource, amount_base
        payment.payer = self._reading.name(payer)

    def _refused(self, payment_id: str, final: bool, leaves_earlier: bool) -> None:
        self._of(payment_id).refuse(final=final, leaves_earlier=leaves_earlier)

    def _failed(self, payment_id: str) -> None:
        payment = self._of(payment_id)
        payment.unresolved, payment.over = 0, "failed"

    def _undone(self, payment_id: str) -> None:
        payment = self._of(payment_id)
        payment.unresolved, payment.over = 1, "unpaid"

    def _replaced(self, payment_id: str, tx: str) -> None:
        self._of(payment_id).tx = tx

    def _indexed(self, payment_id: str, at_ms: int) -> None:
        self._of(payment_id).indexed_ms = at_ms


class Sessions:
    """Follows every session's budget; `changes` has it after each change."""

    def __init__(self, reading: Reading) -> None:
        self.changes: list[Session] = []
        self._name = reading.name
        self._found: dict[str, Session] = {}
        self._by_deposit: dict[str, Session] = {}
        self._txs: dict[str, str] = {}
        """The transaction of each payment so far."""
        self._due: dict[str, list[tuple[int, int, Session]]] = {}
        """By service: the sessions that can expire, the first to be due first."""
        rows, on = reading.journal.rows, ("seq", "at_ms", "session_id")
        opened = list(rows(
            events.SessionOpened, *on, "payment_id", "payer", "expires_ms", "deposited_base",
            "actor",
        ))  # fmt: skip
        if not opened:
            return
        paid = ("seq", "payment_id", "tx_hash")
        in_turn(
            (self._paid, rows(events.PaymentSettled, *paid)),
            (self._paid, rows(events.TransactionReplaced, *paid)),
            (self._failed, rows(events.PaymentFailed, "seq", "at_ms", "payment_id")),
            (self._opened, opened),
            (self._debited, rows(events.SessionDebited, *on, "released_base")),
            (self._refunded, rows(events.SessionRefunded, *on, "tx_hash", "amount_base")),
            (self._refunded, rows(events.RefundUndone, *on)),
            (self._expired, rows(events.SessionsExpired, "seq", "at_ms", "actor", "count")),
        )

    def _change(self, at_ms: int, session: Session, to: str, tx: str | None = None) -> None:
        """Note a session after a change, which a transaction may have made."""
        session.at_ms, session.last, session.tx = at_ms, to, tx
        self.changes.append(copy(session))

    def _paid(self, payment_id: str, tx: str) -> None:
        self._txs[payment_id] = tx

    def _failed(self, at_ms: int, payment_id: str) -> None:
        if session := self._by_deposit.get(payment_id):
            self._change(at_ms, session, "failed")

    def _opened(
        self, at_ms: int, session_id: str, payment_id: str, payer: str, expires_ms: int,
        deposited_base: int, service: str,
    ) -> None:  # fmt: skip
        paid = session_id, payment_id, self._name(payer), expires_ms, deposited_base
        session = self._found[session_id] = self._by_deposit[payment_id] = Session(at_ms, *paid)
        heappush(self._due.setdefault(service, []), (expires_ms, len(self._found), session))
        self._change(at_ms, session, "opened", self._txs.get(payment_id))

    def _debited(self, at_ms: int, session_id: str, released_base: int) -> None:
        if session := self._found.get(session_id):
            session.released_base = released_base
            self._change(at_ms, session, "debited")

    def _refunded(
        self, at_ms: int, session_id: str, tx: str | None = None, amount_base: int = 0
    ) -> None:
        """Note a refund; without a transaction, that the chain has undone it."""
        if session := self._found.get(session_id):
            session.refunded_base = amount_base
            self._change(at_ms, session, "expired" if tx is None else "refunded", tx)

    def _expired(self, at_ms: int, service: str, left: int) -> None:
        """Expire so many sessions of a service: those that were due first."""
        due = self._due.get(service, [])
        while left and due:
            session = heappop(due)[2]
            if session.last != "failed":
                left -= 1
                self._change(at_ms, session, "expired")
