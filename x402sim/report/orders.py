"""Follows each order: what a payer asked for, what the chain moved for it, what it got.

An order is one 402 that a payer was asked to pay, or one request on a session's budget. A request
that never got its 402 is an order of its own. A request that pays in one step belongs to the 402
whose id it shows, or else to what its authorization was sent for before, or to the newest 402 that
its payer has not paid. Money is counted on the chain: by the authorizations that were presented for
an order, in one step or in two, whatever the service says of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, get_args

import msgspec

from x402sim import events
from x402sim.journal import Journal
from x402sim.report.columns import in_turn
from x402sim.report.exchanges import Asked, exchanges_of
from x402sim.report.movements import Movements
from x402sim.report.reading import PAY, Reading, once

CREATE_SESSION = "/api/sessions/create"
WAYS = ("payment", "deposit", "session")
"""How an order is paid: by a payment of its own, as a deposit, or from a session's budget."""
OfSender = tuple[str, str]
"""A transaction, and a sender of what it moved."""


class Order(msgspec.Struct, eq=False, gc=False):
    """One order so far; times are Unix milliseconds, `nonces` the authorizations presented."""

    payer: str
    service: str
    path: str
    at_ms: int
    """When the payer asked first."""
    way: str
    payment_id: str | None = None
    session_id: str | None = None
    served_ms: int | None = None
    served_times: int = 0
    requests: int = 0
    open_until: int = 0
    """The number of the event that ends its last request."""
    attempts: int = 0
    may_be_free: bool = False
    is_granted: bool = False
    has_receipt: bool = False
    nonces: tuple[str, ...] = ()
    debited_base: int = 0
    tx: str | None = None
    txs: tuple[str, ...] = ()
    """Every transaction that moved money to pay for it; `tx` is the last."""
    refund_tx: str | None = None
    payments: int | None = None
    lost_base: int | None = None
    paid_base: int | None = None
    returned_base: int | None = None
    gas: int | None = None
    number: int = 0
    """In order of asking, from 1."""

    @property
    def waiting_s(self) -> float | None:
        """From asking first to being served, in seconds."""
        return None if self.served_ms is None else (self.served_ms - self.at_ms) / 1000

    @property
    def is_charged(self) -> bool:
        """Whether money moved for it; if the chain cannot be seen, whether there is a receipt."""
        if self.way == "session":
            return self.debited_base > 0
        return self.has_receipt if self.paid_base is None else self.paid_base > 0


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
        self._sent: dict[int, Order] = {}
        """By the number of its end: what a request was for whose answer names a payment."""
        self._undebited: dict[str, list[Order]] = {}
        self._presented: dict[str, list[Order]] = {}
        """By authorization: what it was sent for."""
        self._follow(reading)
        self._drop_free()
        self._settled = _first_settled(reading)
        self._used = {
            nonce: (tx, authorizer)
            for nonce, use, tx, authorizer in reading.journal.rows(
                events.AuthorizationConsumed, "authorization", "use", "tx_hash", "authorizer"
            )
            if use == "used"
        }
        """The transaction that used a nonce, and whose authorization it was."""
        self._read_service(reading)
        if next(reading.journal.of(*get_args(events.ChainEvent)), None):
            self._count_money(reading)

    # --- what a payer sees -----------------------------------------------------------

    def _follow(self, reading: Reading) -> None:
        every = exchanges_of(reading.journal)
        is_order = every.to_service & ~every.sent.those("actor", reading.services.__contains__)
        is_order &= every.sent.those("method", lambda method: method not in ("HEAD", "OPTIONS"))
        asked = every.asked(is_order)
        named = every.answered(is_order & (every.ended("payment_id") != 0))
        fields = "seq", "seq", "session_id", "amount_base"
        debited = reading.journal.rows(events.SessionDebited, *fields)
        in_turn((self._request, asked), (self._name, named), (self._debit, debited))

    def _request(self, sent: Asked) -> None:
        order = self._order_of(sent)
        order.requests += 1
        if sent.end_seq > order.open_until:
            order.open_until = sent.end_seq
        if sent.authorization or sent.pays:
            order.attempts += 1
            if sent.authorization and sent.authorization not in order.nonces:
                order.nonces += (sent.authorization,)
        if sent.named is not None:
            self._sent[sent.end_seq] = order
        if 0 < sent.status < 300:
            order.has_receipt |= (sent.tx or sent.authorization) is not None
            if sent.tx is None:
                order.served_ms = min(order.served_ms or sent.ended_ms, sent.ended_ms)
                order.served_times += 1

    def _order_of(self, sent: Asked) -> Order:
        """Return the order that a request belongs to; a new one unless it is known."""
        known = self._by_payment.get(sent.payment_id or "", {}).get(sent.payer)
        if known is None and sent.payment_id is None and sent.authorization:
            known = self._paid_in_one_step(sent)
        if known is not None:
            return known
        way = "deposit" if sent.path.endswith(CREATE_SESSION) else "payment"
        if sent.payment_id is None and sent.session_id is not None:
            way = "session"
        order = Order(sent.payer, sent.service, sent.path, sent.at_ms, way, sent.payment_id)
        order.may_be_free = sent.method == "GET" and not (sent.session_id or sent.authorization)
        self.found.append(order)
        if sent.payment_id is not None:
            self._by_payment.setdefault(sent.payment_id, {})[sent.payer] = order
        elif sent.authorization:
            self._by_nonce[sent.payer, sent.service, sent.authorization] = order
        elif sent.session_id is not None:
            order.session_id = sent.session_id
            self._undebited.setdefault(sent.session_id, []).append(order)
        return order

    def _paid_in_one_step(self, sent: Asked) -> Order | None:
        """Return what a request pays that shows an authorization and no payment id."""
        key = sent.payer, sent.service, str(sent.authorization)
        asked = self._asked.get((sent.payer, sent.service, sent.path), [])
        while asked and key not in self._by_nonce:
            order = asked.pop()
            if not order.attempts:
                self._by_nonce[key] = order
        return self._by_nonce.get(key)

    def _name(self, sent: Asked) -> None:
        """Note the payment that an answer names: one to make, or one made in one step."""
        order = self._sent.pop(sent.end_seq)
        is_asked = sent.status == 402 and not order.path.endswith(PAY)
        if order.payment_id is None and is_asked and sent.authorization is None:
            order.payment_id = str(sent.named)
            self._by_payment.setdefault(order.payment_id, {})[order.payer] = order
            self._asked.setdefault((order.payer, order.service, order.path), []).append(order)
        elif sent.status < 300 and sent.authorization and sent.named:
            self._by_payment.setdefault(str(sent.named), {})[order.payer] = order

    def _drop_free(self) -> None:
        """Drop what is no order: GETs of paths that were never asked to be paid, nor were paid."""
        sold = {order.path for order in self.found if order.payment_id is not None}
        self.found = [each for each in self.found if not each.may_be_free or each.path in sold]
        for number, order in enumerate(self.found, 1):
            order.number = number

    # --- what the service and the chain say ------------------------------------------

    def _debit(self, seq: int, session_id: str, amount_base: int) -> None:
        """Book a debit on the oldest request of the session that has none and is still open."""
        waiting = self._undebited.get(session_id, [])
        still_open = [order for order in waiting if order.open_until > seq]
        for order in (still_open or waiting)[:1]:
            order.debited_base = amount_base
            order.is_granted = True
            waiting.remove(order)

    def _read_service(self, reading: Reading) -> None:
        """Tell the orders what the service said of their payments, under whatever id."""
        nonces = {tx: nonce for nonce, (tx, _) in self._used.items()}
        for order in self.found:
            for nonce in order.nonces:
                self._presented.setdefault(nonce, []).append(order)
        for tx, payment_id in self._settled.items():
            for order in self._presented.get(nonces.get(tx, ""), [])[:1]:
                self._by_payment.setdefault(payment_id, {order.payer: order})
        granted = _newest(
            reading.journal.rows(events.PaymentSettled, "seq", "payment_id", "tx_hash"),
            reading.journal.rows(events.PaymentFailed, "seq", "payment_id"),
            reading.journal.rows(events.PaymentUndone, "seq", "payment_id"),
        )
        for payment_id, orders in self._by_payment.items():
            for order in orders.values():
                order.payment_id = order.payment_id or payment_id
                order.is_granted |= granted.get(payment_id) is not None
        refunds = _newest(
            reading.journal.rows(events.SessionRefunded, "seq", "session_id", "tx_hash"),
            reading.journal.rows(events.RefundUndone, "seq", "session_id"),
        )
        opened = dict(reading.journal.rows(events.SessionOpened, "session_id", "payment_id"))
        for session_id, payment_id in opened.items():
            for deposit in list(self._by_payment.get(payment_id, {}).values())[:1]:
                deposit.session_id, deposit.refund_tx = session_id, refunds.get(session_id)

    # --- the money ---------------------------------------------------------------------

    def _count_money(self, reading: Reading) -> None:
        """Give each order what the transactions that stand have moved for it."""
        gas_of = dict(reading.standing("tx_hash", "gas"))
        in_all, of_sender, undone = _moved(reading)
        taken: set[str] = set()
        for order in self.found:
            if order.way == "session":
                continue
            order.paid_base = order.returned_base = order.gas = 0
            order.payments = order.lost_base = 0
            for nonce in order.nonces:
                tx, authorizer = self._used.get(nonce, ("", ""))
                if tx in taken or order is not self._owner(nonce, tx):
                    continue
                paid_base = of_sender.get((tx, authorizer), 0)
                undone_ms, lost_base = undone.get((tx, authorizer), (-1, 0))
                is_lost = not paid_base and tx not in gas_of
                if is_lost and order.served_ms is not None and order.served_ms <= undone_ms:
                    order.lost_base += lost_base
                if paid_base:
                    taken.add(tx)
                    order.txs += (tx,)
                    order.tx, order.gas = tx, order.gas + gas_of.get(tx, 0)
                    order.payments += 1
                    order.paid_base += paid_base
            order.returned_base = in_all.get(order.refund_tx or "", 0)
            if order.returned_base:
                order.gas += gas_of.get(order.refund_tx or "", 0)
            else:
                order.refund_tx = None

    def _owner(self, nonce: str, tx: str) -> Order:
        """Return the order that an authorization settled, or else the first it was sent for."""
        presented = self._presented[nonce]
        if len(presented) > 1:
            settled = self._by_payment.get(self._settled.get(tx, ""), {})
            for each in presented:
                if settled.get(each.payer) is each:
                    return each
        return presented[0]


@once
def orders_of(journal: Journal) -> list[Order]:
    """Return the orders of a journal."""
    return Orders(Reading(journal)).found


def _first_settled(reading: Reading) -> dict[str, str]:
    """Return the payment id that was first settled with each transaction."""
    first: dict[str, str] = {}
    fields = "seq", "tx_hash", "payment_id"
    settled = reading.journal.rows(events.PaymentSettled, *fields)
    replaced = reading.journal.rows(events.TransactionReplaced, *fields)
    for _, tx, payment_id in sorted([*settled, *replaced], key=itemgetter(0)):
        first.setdefault(tx, payment_id)
    return first


def _newest(*parts: Iterable[Any]) -> dict[str, str | None]:
    """Return what the newest of these rows gives to each id; None if it has no value."""
    rows = sorted((row for part in parts for row in part), key=itemgetter(0))
    return {row[1]: row[2] if len(row) > 2 else None for row in rows}


def _moved(
    reading: Reading,
) -> tuple[Mapping[str, int], Mapping[OfSender, int], Mapping[OfSender, tuple[int, int]]]:
    """Return what each transaction has moved in the end: in all, and of each sender.

    And when the chain first undid it, and how much of each sender's it undid.
    """
    moves, in_all = Movements(reading), defaultdict[str, int](int)
    of_sender, undone = defaultdict[OfSender, int](int), dict[OfSender, tuple[int, int]]()
    texts = (moves.told(name, str) for name in ("tx_hash", "sender"))
    numbers = moves.at_ms.tolist(), moves.amounts_base, moves.is_undone.tolist()
    for tx, sender, at_ms, amount_base, is_undone in zip(*texts, *numbers, strict=True):
        in_all[tx] += amount_base
        of_sender[tx, sender] += amount_base
        if is_undone:
            first_ms, before_base = undone.get((tx, sender), (at_ms, 0))
            undone[tx, sender] = first_ms, before_base - amount_base
    return in_all, of_sender, undone
