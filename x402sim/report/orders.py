"""Follows each order: what a payer asked for, what the chain moved for it, what it got.

An order is one 402 that a payer was asked to pay, or one request on a session's budget. A request
that never got its 402 is an order of its own. A request that pays in one step belongs to the 402
whose id it shows, or else to what its authorization was sent for before, or to the newest 402 that
its payer has not paid. Money is counted on the chain: by the authorizations that were presented for
an order, in one step or in two, whatever the service says of them.
"""

from dataclasses import dataclass, field
from typing import get_args

from x402sim import events
from x402sim.report.payment_states import Told
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
    served_times: int = 0
    requests: int = 0
    unanswered: int = 0
    attempts: int = 0
    may_be_free: bool = False
    is_granted: bool = False
    has_receipt: bool = False
    nonces: list[str] = field(default_factory=list)
    debited_base: int = 0
    tx: str | None = None
    txs: list[str] = field(default_factory=list)
    """Every transaction that moved money to pay for it; `tx` is the last."""
    refund_tx: str | None = None
    payments: int | None = None
    lost_base: int | None = None
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
    """A transaction: its gas, what it moved from whom, and when it was undone (0 if it stands)."""

    gas: int
    transfers: list[tuple[str, int]] = field(default_factory=list)
    undone_ms: int = 0

    def by(self, sender: str) -> int:
        """Return what it moved from a sender, in base units."""
        return sum(amount_base for each, amount_base in self.transfers if each == sender)


class Orders:
    """Follows every order through a journal's events; `found` has them in order of asking."""

    def __init__(self, reading: Reading) -> None:
        self.found: list[Order] = []
        self._by_payment: dict[str, dict[str, Order]] = {}
        """By payment id and payer: who shows a stranger's payment has an order of its own."""
        self._by_nonce: dict[tuple[str, str, str], Order] = {}
        """By payer, service and authorization: what was paid in one step, without a payment id."""
        self._asked: dict[tuple[str, str, str], list[Order]] = {}
        """By payer, service and path: what there was a 402 for."""
        self._open: dict[int, tuple[Order, events.RequestSent]] = {}
        self._undebited: dict[str, list[Order]] = {}
        self._told = Told(reading)
        self._presented: dict[str, list[Order]] = {}
        """By authorization: what it was sent for."""
        self._standing: dict[str, _Moved] = {}
        self._undone: dict[str, _Moved] = {}
        self._used: dict[str, tuple[str, str]] = {}
        """The transaction that used a nonce, and whose authorization it was."""
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
                self._told.follow(event, entry.at_ms)
                if isinstance(event, events.SessionDebited):
                    self._debit(event)
        self._drop_free()
        self._read_chain(reading)
        self._read_service()
        if any(True for kind in CHAIN for _ in reading.journal.rows(kind, "seq")):
            self._count_money()

    # --- what a payer sees -----------------------------------------------------------

    def _request(self, sent: events.RequestSent, at_ms: int) -> None:
        is_order = sent.to in self._services and sent.method not in ("HEAD", "OPTIONS")
        if not is_order or sent.actor in self._services:
            return
        order = self._order_of(sent, at_ms)
        order.requests += 1
        order.unanswered += 1
        self._open[sent.exchange] = order, sent
        if sent.authorization or sent.path.endswith(PAY):
            order.attempts += 1
            if sent.authorization and sent.authorization not in order.nonces:
                order.nonces.append(sent.authorization)

    def _order_of(self, sent: events.RequestSent, at_ms: int) -> Order:
        """Return the order that a request belongs to; a new one unless it is known."""
        known = self._by_payment.get(sent.payment_id or "", {}).get(sent.actor)
        if known is None and sent.payment_id is None and sent.authorization:
            known = self._paid_in_one_step(sent)
        if known is not None:
            return known
        way = "deposit" if sent.path.endswith(CREATE_SESSION) else "payment"
        if sent.payment_id is None and sent.session_id is not None:
            way = "session"
        order = Order(sent.actor, sent.to, sent.path, at_ms, way, sent.payment_id)
        order.may_be_free = sent.method == "GET" and not (sent.session_id or sent.authorization)
        self.found.append(order)
        if sent.payment_id is not None:
            self._by_payment.setdefault(sent.payment_id, {})[sent.actor] = order
        elif sent.authorization:
            self._by_nonce[sent.actor, sent.to, sent.authorization] = order
        elif sent.session_id is not None:
            order.session_id = sent.session_id
            self._undebited.setdefault(sent.session_id, []).append(order)
        return order

    def _paid_in_one_step(self, sent: events.RequestSent) -> Order | None:
        """Return what a request pays that shows an authorization and no payment id."""
        key = sent.actor, sent.to, str(sent.authorization)
        asked = self._asked.get((sent.actor, sent.to, sent.path), [])
        while asked and key not in self._by_nonce:
            order = asked.pop()
            if not order.attempts:
                self._by_nonce[key] = order
        return self._by_nonce.get(key)

    def _end(self, exchange: int) -> tuple[Order, events.RequestSent] | None:
        found = self._open.pop(exchange, None)
        if found is not None:
            found[0].unanswered -= 1
        return found

    def _answer(self, answer: events.AnswerReceived, at_ms: int) -> None:
        ended = self._end(answer.exchange)
        if ended is None:
            return
        order, sent = ended
        is_asked = sent.authorization is None and asks_for_payment(order.path, answer)
        if order.payment_id is None and is_asked:
            order.payment_id = str(answer.payment_id)
            self._by_payment.setdefault(order.payment_id, {})[order.payer] = order
            self._asked.setdefault((order.payer, order.service, order.path), []).append(order)
        elif answer.status < 300:
            order.has_receipt |= (answer.tx_hash or sent.authorization) is not None
            if answer.tx_hash is None:
                order.served_ms = at_ms if order.served_ms is None else order.served_ms
                order.served_times += 1
            if sent.authorization and answer.payment_id:  # one step gives the payment its own id
                self._by_payment.setdefault(answer.payment_id, {})[order.payer] = order

    def _drop_free(self) -> None:
        """Drop what is no order: GETs of paths that were never asked to be paid, nor were paid."""
        sold = {order.path for order in self.found if order.payment_id is not None}
        kept = (each for each in self.found if not each.may_be_free or each.path in sold)
        self.found = list(kept)

    # --- what the service and the chain say ------------------------------------------

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
        if any(True for _ in reading.journal.rows(events.TransactionUndone, "seq")):
            for each in reading.movements():
                if each.is_undone and each.transfer.tx_hash not in self._standing:
                    gone = _Moved(0, undone_ms=each.entry.at_ms)
                    gone = self._undone.setdefault(each.transfer.tx_hash, gone)
                    gone.transfers.append((each.transfer.sender, int(each.transfer.amount_base)))

    def _read_service(self) -> None:
        """Tell the orders what the service said of their payments, under whatever id."""
        nonces = {tx: nonce for nonce, (tx, _) in self._used.items()}
        for order in self.found:
            for nonce in order.nonces:
                self._presented.setdefault(nonce, []).append(order)
        for tx, payment_id in self._told.settled.items():
            for order in self._presented.get(nonces.get(tx, ""), [])[:1]:
                self._by_payment.setdefault(payment_id, {order.payer: order})
        for payment_id, orders in self._by_payment.items():
            payment = self._told.payments.get(payment_id)
            for order in orders.values():
                order.payment_id = order.payment_id or payment_id
                order.is_granted |= payment is not None and payment.over == "settled"
        for session in self._told.sessions.values():
            for deposit in list(self._by_payment.get(session.payment_id, {}).values())[:1]:
                deposit.session_id, deposit.refund_tx = session.session_id, session.refund_tx

    # --- the money ---------------------------------------------------------------------

    def _count_money(self) -> None:
        """Give each order what the transactions that stand have moved for it."""
        taken: set[str] = set()
        for order in self.found:
            if order.way == "session":
                continue
            order.paid_base = order.returned_base = order.gas = 0
            order.payments = order.lost_base = 0
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
        settled = self._by_payment.get(self._told.settled.get(tx, ""), {})
        presented = self._presented[nonce]
        owners = (each for each in presented if settled.get(each.payer) is each)
        if tx in taken or order is not next(owners, presented[0]):
            return
        moved, gone = self._standing.get(tx), self._undone.get(tx)
        if gone is not None and order.served_ms is not None and order.served_ms <= gone.undone_ms:
            order.lost_base = (order.lost_base or 0) + gone.by(authorizer)
        if moved is not None and moved.by(authorizer):
            taken.add(tx)
            order.tx, order.gas = tx, (order.gas or 0) + moved.gas
            order.txs.append(tx)
            order.payments = (order.payments or 0) + 1
            order.paid_base = (order.paid_base or 0) + moved.by(authorizer)
