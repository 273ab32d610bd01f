"""Follows each order: what a payer asked for, what the chain moved for it, what it got.

An order is one payment id that a payer was asked to pay, or one request on a session's budget. A
request that never got its 402 is an order of its own. Money is counted on the chain: by the
authorizations that were presented for a payment id, whatever the service says of them.
"""

from dataclasses import dataclass, field
from typing import assert_never, get_args

from x402sim import events
from x402sim.report.reading import FOLLOWED, PAY, Reading, asks_for_payment

CREATE_SESSION = "/api/sessions/create"
CHAIN: tuple[type[events.Event], ...] = get_args(events.ChainEvent)
WAYS = ("payment", "deposit", "session")
"""How an order is paid: by a payment of its own, as a deposit, or from a session's budget."""


@dataclass(slots=True, eq=False)
class Order:
    """One order so far; times are Unix milliseconds, `nonces` the authorizations presented."""

    payer: str
    service: str
    path: str
    asked_ms: int
    way: str
    payment_id: str | None = None
    session_id: str | None = None
    served_ms: int | None = None
    requests: int = 0
    unanswered: int = 0
    attempts: int = 0
    is_granted: bool = False
    has_receipt: bool = False
    nonces: list[str] = field(default_factory=list)
    debited_base: int = 0
    tx: str | None = None
    txs: list[str] = field(default_factory=list)
    """Every transaction that moved money to pay for it; `tx` is the last."""
    refund_tx: str | None = None
    paid_base: int | None = None
    returned_base: int | None = None
    gas: int | None = None

    @property
    def is_charged(self) -> bool:
        """Whether money moved for it; if the chain cannot be seen, whether there is a receipt."""
        if self.way == "session":
            return self.debited_base > 0
        return self.has_receipt if self.paid_base is None else self.paid_base > 0


@dataclass(slots=True)
class _Moved:
    """What stands in the chain of one transaction: its gas, and what it moved from whom."""

    gas: int
    transfers: list[tuple[str, int]] = field(default_factory=list)


class Orders:
    """Follows every order through a journal's events; `found` has them in order of asking."""

    def __init__(self, reading: Reading) -> None:
        self.found: list[Order] = []
        self._by_payment: dict[str, Order] = {}
        self._by_session: dict[str, Order] = {}
        self._open: dict[int, Order] = {}
        self._undebited: dict[str, list[Order]] = {}
        self._standing: dict[str, _Moved] = {}
        self._used: dict[str, tuple[str, str]] = {}
        """The transaction that used a nonce, and whose authorization it was."""
        self._settled: dict[str, str] = {}
        """The payment id that the service settled with a transaction."""
        self._services = reading.services
        for entry in reading.journal.of(*FOLLOWED, to=reading.services):
            event = entry.event
            if isinstance(event, events.RequestSent):
                self._request(event, entry.at_ms)
            elif isinstance(event, events.AnswerReceived):
                self._answer(event, entry.at_ms)
            elif isinstance(event, events.NoAnswer):
                self._end(event.exchange)
            elif isinstance(event, events.ServiceEvent):
                self._by_service(event)
        self._read_chain(reading)
        if any(True for kind in CHAIN for _ in reading.journal.rows(kind, "seq")):
            self._count_money()

    # --- what a payer sees -----------------------------------------------------------

    def _request(self, sent: events.RequestSent, at_ms: int) -> None:
        if sent.actor in self._services or sent.to not in self._services or sent.method != "POST":
            return
        order = self._order_of(sent, at_ms)
        order.requests += 1
        order.unanswered += 1
        self._open[sent.exchange] = order
        if sent.path.endswith(PAY):
            order.attempts += 1
            if sent.authorization and sent.authorization not in order.nonces:
                order.nonces.append(sent.authorization)

    def _order_of(self, sent: events.RequestSent, at_ms: int) -> Order:
        """Return the order that a request belongs to; a new one unless its payment id is known."""
        if sent.payment_id in self._by_payment:
            return self._by_payment[sent.payment_id]
        way = "deposit" if sent.path.endswith(CREATE_SESSION) else "payment"
        if sent.payment_id is None and sent.session_id is not None:
            way = "session"
        order = Order(sent.actor, sent.to, sent.path, at_ms, way, sent.payment_id)
        self.found.append(order)
        if sent.payment_id is not None:
            self._by_payment[sent.payment_id] = order
        elif sent.session_id is not None:
            order.session_id = sent.session_id
            self._undebited.setdefault(sent.session_id, []).append(order)
        return order

    def _end(self, exchange: int) -> Order | None:
        order = self._open.pop(exchange, None)
        if order is not None:
            order.unanswered -= 1
        return order

    def _answer(self, answer: events.AnswerReceived, at_ms: int) -> None:
        order = self._end(answer.exchange)
        if order is None:
            return
        if order.payment_id is None and asks_for_payment(order.path, answer):
            order.payment_id = str(answer.payment_id)
            self._by_payment[order.payment_id] = order
        elif answer.status < 300 and answer.tx_hash is not None:
            order.has_receipt = True
        elif answer.status < 300 and order.served_ms is None:
            order.served_ms = at_ms

    # --- what the service and the chain say ------------------------------------------

    def _by_service(self, event: events.ServiceEvent) -> None:
        match event:
            case events.PaymentSettled() | events.TransactionReplaced():
                self._settled[event.tx_hash] = event.payment_id
                self._grant(event.payment_id, is_granted=True)
            case events.PaymentUndone() | events.PaymentFailed():
                self._grant(event.payment_id, is_granted=False)
            case events.SessionOpened():
                if event.payment_id in self._by_payment:
                    self._by_session[event.session_id] = self._by_payment[event.payment_id]
                    self._by_session[event.session_id].session_id = event.session_id
            case events.SessionDebited():
                self._debit(event)
            case events.SessionRefunded():
                self._refund(event.session_id, event.tx_hash)
            case events.RefundUndone():
                self._refund(event.session_id, None)
            case events.PaymentRefused() | events.PaidAgain() | events.PaymentIndexed():
                pass
            case events.SettlementAnswerLost() | events.SessionsExpired():
                pass
            case events.RefundDelayed() | events.IndexerRan():
                pass
            case _:
                assert_never(event)

    def _grant(self, payment_id: str, *, is_granted: bool) -> None:
        if payment_id in self._by_payment:
            self._by_payment[payment_id].is_granted = is_granted

    def _refund(self, session_id: str, tx: str | None) -> None:
        if session_id in self._by_session:
            self._by_session[session_id].refund_tx = tx

    def _debit(self, debited: events.SessionDebited) -> None:
        """Book a debit on the oldest request of the session that has none and is still open."""
        waiting = self._undebited.get(debited.session_id, [])
        still_open = [order for order in waiting if order.unanswered]
        for order in (still_open or waiting)[:1]:
            order.debited_base = debited.amount_base
            order.is_granted = True
            waiting.remove(order)

    def _read_chain(self, reading: Reading) -> None:
        for tx, gas in reading.standing(events.TransactionMined, "tx_hash", "gas"):
            self._standing[tx] = _Moved(gas)
        for tx, sender, amount_base in reading.standing(
            events.Transfer, "tx_hash", "sender", "amount_base"
        ):
            moved = self._standing.setdefault(tx, _Moved(0))
            moved.transfers.append((sender, int(amount_base)))
        for nonce, use, tx, authorizer in reading.journal.rows(
            events.AuthorizationConsumed, "authorization", "use", "tx_hash", "authorizer"
        ):
            if use == "used":
                self._used[nonce] = tx, authorizer

    # --- the money ---------------------------------------------------------------------

    def _count_money(self) -> None:
        """Give each order what the transactions that stand have moved for it."""
        taken: set[str] = set()
        for order in self.found:
            if order.way == "session":
                continue
            order.paid_base = order.returned_base = order.gas = 0
            for nonce in order.nonces:
                self._pay(order, nonce, taken)
            refund = self._standing.get(order.refund_tx or "")
            if refund is not None and refund.transfers:
                order.returned_base = sum(amount_base for _, amount_base in refund.transfers)
                order.gas += refund.gas
            else:
                order.refund_tx = None

    def _pay(self, order: Order, nonce: str, taken: set[str]) -> None:
        """Count an authorization, for the order that it settled or else for the first."""
        tx, authorizer = self._used.get(nonce, ("", ""))
        moved = self._standing.get(tx)
        owner = self._settled.get(tx, order.payment_id)
        if moved is None or tx in taken or owner != order.payment_id:
            return
        paid_base = sum(amount for sender, amount in moved.transfers if sender == authorizer)
        if paid_base:
            taken.add(tx)
            order.tx, order.gas = tx, (order.gas or 0) + moved.gas
            order.txs.append(tx)
            order.paid_base = (order.paid_base or 0) + paid_base
