"""Follows each order: the payer's request, the money moved on the chain, and the goods received.

An order is one 402 to a payer, or one request on a session's budget. A request that never got a 402
is its own order. A one-step payment belongs to the 402 whose id it shows; else to the order
for which its authorization was sent before; else to the newest 402 that its payer has not paid;
else to the payer's last order of this resource, if no attempt to pay that order got a 2xx answer.
Money is counted on the chain, by the authorizations presented for an order; a service's own
reports do not count.
"""

from collections import Counter
from typing import get_args

import msgspec
import numpy as np
import pandas as pd

from x402sim import events
from x402sim.journal import Journal
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.permit2_payments import usage_id
from x402sim.report.columns import Part, ServiceRequest, in_turn, payers_exchanges, standing, tables
from x402sim.report.money import Movements
from x402sim.report.reading import Reading, once_per_journal, reading_of

WAYS = ("payment", "deposit", "session")
"""How an order is paid: by its own payment, as a deposit, or from a session's budget."""


class Use(msgspec.Struct, frozen=True, gc=False):
    """The transaction that used an authorization, and the amount moved from the signer."""

    tx: int
    paid_base: int
    undone_ms: int
    """When the chain first undid the transaction; -1 if never."""
    undone_base: int


class OrderState(msgspec.Struct, eq=False, gc=False):
    """One order so far; times are Unix milliseconds, `nonces` the authorizations presented.

    A text is its number in the columns of the journal; 0 is none.
    """

    payer: int
    service: int
    resource: int
    at_ms: int
    """When the payer first requested the order."""
    way: str
    payment_id: int = 0
    session_id: int = 0
    served_ms: int | None = None
    served_times: int = 0
    requests: int = 0
    open_until: int = 0
    """The number of the event that ends the last request."""
    attempts: int = 0
    may_be_free: bool = False
    is_granted: bool = False
    has_receipt: bool = False
    nonces: tuple[int, ...] = ()
    debited_base: int = 0
    tx: int = 0
    txs: tuple[int, ...] = ()
    """Every transaction that paid for the order; `tx` is the last."""
    refund_tx: int = 0
    refund_txs: tuple[int, ...] = ()
    """Refunds: of the session, and of debits undone after the first refund. Refunds that the chain
    has undone are included; `refund_tx` is the last standing refund."""
    payments: int | None = None
    lost_base: int | None = None
    paid_base: int | None = None
    returned_base: int | None = None
    gas: int | None = None
    signed_base: int | None = None
    """The maximum of a settled payment in `upto`, of which `paid_base` was settled."""
    used_base: int | None = None
    """What the service has measured for payments in `upto`, paid or not."""
    number: int = 0
    """In order of the first requests, from 1."""

    @property
    def waiting_s(self) -> float | None:
        """From the first request to being served, in seconds."""
        return None if self.served_ms is None else (self.served_ms - self.at_ms) / 1000

    @property
    def left_base(self) -> int | None:
        """What the settlement of a payment in `upto` left with the payer."""
        return None if self.signed_base is None else self.signed_base - (self.paid_base or 0)

    @property
    def is_charged(self) -> bool:
        """Whether money moved for the order; without chain events, whether a receipt came, or the
        service recorded the settlement."""
        if self.way == "session":
            return self.debited_base > 0
        is_reported = self.has_receipt or self.is_granted
        return is_reported if self.paid_base is None else self.paid_base > 0


class Orders:
    """Follows every order through a journal; `found` has the orders by their first requests."""

    def __init__(self, reading: Reading) -> None:
        self.found: list[OrderState] = []
        self._of_request: list[OrderState] = []
        self._by_payment: dict[tuple[int, int], OrderState] = {}
        """By payment id and payer: a payer who shows another's payment has a separate order."""
        self._first: dict[int, int] = {}  # the payer of the first order of each payment id
        self._by_nonce: dict[tuple[int, int, int], OrderState] = {}
        """By payer, service and authorization: one-step payments without a payment id."""
        self._tried: dict[tuple[int, int, int], OrderState] = {}
        """By payer, service and path: the last order that a one-step payment without an id paid."""
        self._unpaid: dict[tuple[int, int, int], list[OrderState]] = {}
        """By payer, service and path: the orders that got a 402."""
        self._undebited: dict[int, list[OrderState]] = {}
        """By session: its orders without a debit, the oldest first."""
        self._debited: dict[int, list[OrderState]] = {}
        """By session: the orders whose debits may be undone, the oldest first; of served orders
        only the newest, as the last."""
        self._presented: dict[int, list[OrderState]] = {}
        """By authorization: its orders, in order of the first requests."""
        self._follow(reading)
        # GETs of paths that never cost anything are no orders
        sold = {order.resource for order in self.found if order.payment_id or order.attempts}
        self.found = [each for each in self.found if not each.may_be_free or each.resource in sold]
        for number, order in enumerate(self.found, 1):
            order.number = number
        self._settled = _first_settled(reading)
        self._used, self._moved = _used(reading)
        self._read_service(reading)
        if next(reading.journal.of(*get_args(events.ChainEvent)), None):
            self._count_money(reading)

    # --- from the payers' exchanges ---------------------------------------------------

    def _follow(self, reading: Reading) -> None:
        every = payers_exchanges(reading.journal)
        sent, ended = every.sent, every.ended
        debited, undone = tables(reading.journal, events.SessionDebited, events.DebitUndone)
        is_order = every.to_service & ~sent.those("actor", reading.services.__contains__)
        is_order &= sent.those("method", lambda method: method not in ("HEAD", "OPTIONS"))
        self._pays = set(sent["path"][every.pays].tolist())
        shows = sent["authorization"] != 0
        names = np.where(shows, ended["status"] < 300, ended["status"] == 402)
        names &= is_order & (~shows | (ended["payment_id"] != 0))
        requests, named = every.requests(is_order), np.flatnonzero(names[is_order]).tolist()
        in_turn(
            Part(self._request, sent["seq"][is_order], {"sent": requests}),
            Part(
                self._name,
                ended["seq"][names],
                {"place": named, "sent": [requests[place] for place in named]},
            ),
            debited.calls(self._debit, texts=False),
            undone.calls(self._undo_debit, texts=False),
        )

    def _request(self, sent: ServiceRequest) -> None:
        order = self._by_payment.get((sent.payment_id, sent.payer)) or self._order_of(sent)
        self._of_request.append(order)
        order.requests += 1
        if sent.end_seq > order.open_until:
            order.open_until = sent.end_seq
        if sent.authorization or sent.pays:
            order.attempts += 1
            if sent.authorization and sent.authorization not in order.nonces:
                order.nonces += (sent.authorization,)
        if 0 < sent.status < 300:
            order.has_receipt |= bool(sent.tx or sent.authorization)
            if not sent.tx:
                order.served_ms = min(order.served_ms or sent.ended_ms, sent.ended_ms)
                order.served_times += 1

    def _order_of(self, sent: ServiceRequest) -> OrderState:
        """Return the order of a request: the known order that the request pays, or a new order."""
        if sent.authorization and not sent.payment_id and (known := self._paid_in_one_step(sent)):
            return known
        way = "deposit" if sent.opens else "payment"
        if sent.session_id and not sent.payment_id:
            way = "session"
        order = OrderState(
            payer=sent.payer,
            service=sent.service,
            resource=sent.path,
            at_ms=sent.at_ms,
            way=way,
            payment_id=sent.payment_id,
            may_be_free=sent.may_be_free,
        )
        self.found.append(order)
        if sent.payment_id:
            self._keep(sent.payment_id, order)
        elif sent.authorization:
            self._by_nonce[sent.payer, sent.service, sent.authorization] = order
            self._tried[sent.payer, sent.service, sent.path] = order
        elif sent.session_id:
            order.session_id = sent.session_id
            self._undebited.setdefault(sent.session_id, []).append(order)
        return order

    def _paid_in_one_step(self, sent: ServiceRequest) -> OrderState | None:
        """Return the order that a one-step payment without a payment id pays, or None."""
        key = sent.payer, sent.service, sent.authorization
        where = sent.payer, sent.service, sent.path
        unpaid, last = self._unpaid.get(where, []), self._tried.get(where)
        while unpaid and key not in self._by_nonce:
            order = unpaid.pop()
            if not order.attempts:
                self._by_nonce[key] = order
        if last and not last.has_receipt and last.open_until < sent.seq:  # a new authorization
            self._by_nonce.setdefault(key, last)
        if known := self._by_nonce.get(key):
            self._tried[where] = known
        return known

    def _keep(self, payment_id: int, order: OrderState) -> None:
        self._by_payment[payment_id, order.payer] = order
        self._first.setdefault(payment_id, order.payer)

    def _name(self, place: int, sent: ServiceRequest) -> None:
        """Note a 402, and the payment id in an answer: of a 402, or of a one-step payment."""
        order = self._of_request[place]
        if sent.authorization:
            self._keep(sent.named, order)
        elif not order.payment_id and order.resource not in self._pays:
            if sent.named:  # a 402 of `upto` has no id
                order.payment_id = sent.named
                self._keep(sent.named, order)
            self._unpaid.setdefault((order.payer, order.service, order.resource), []).append(order)

    # --- from the service's and the chain's events ------------------------------------

    def _debit(self, seq: int, session_id: int, amount_base: int) -> None:
        """Assign a debit to the session's oldest undebited request; open requests come first."""
        waiting = self._undebited.get(session_id, [])
        still_open = [order for order in waiting if order.open_until > seq]
        for order in (still_open or waiting)[:1]:
            order.debited_base = amount_base
            order.is_granted = True
            waiting.remove(order)
            debited = self._debited.setdefault(session_id, [])
            if debited and debited[-1].served_ms is not None:
                debited.pop()
            debited.append(order)

    def _undo_debit(self, session_id: int) -> None:
        """Take back the newest debit of an order that was not served, as its client has hung up.

        If every debited order was served, take back the session's newest debit.
        """
        debited = self._debited.get(session_id, [])
        unserved = (each for each in reversed(debited) if each.served_ms is None)
        if order := next(unserved, debited[-1] if debited else None):
            debited.remove(order)
            order.debited_base, order.is_granted = 0, False

    def _read_service(self, reading: Reading) -> None:
        """Add the service's records of payments, which may have ids that no payer has shown."""
        for order in self.found:
            for nonce in order.nonces:
                self._presented.setdefault(nonce, []).append(order)
        unknown = [each for each in self._settled.items() if each[1] not in self._first]
        nonces = {use.tx: nonce for nonce, use in self._used.items()} if unknown else {}
        for tx, payment_id in unknown:
            paid = self._presented.get(nonces.get(tx, payment_id))  # `watch` has no other id
            if paid and payment_id not in self._first:
                self._keep(payment_id, paid[0])
        self._read_usages(reading)
        settled, metered, failed, undone, opened, refunded = tables(
            reading.journal, events.PaymentSettled, events.UsageSettled, events.PaymentFailed,
            events.PaymentUndone, events.SessionOpened, events.SessionRefunded,
        )  # fmt: skip
        standing = (each.unless("payment_id", failed, undone) for each in (settled, metered))
        granted = {each for table in standing for each in table["payment_id"].tolist()}
        for (payment_id, _), order in self._by_payment.items():
            order.payment_id = order.payment_id or payment_id
            order.is_granted |= payment_id in granted
        refunds: dict[int, dict[int, None]] = {}
        for session_id, tx in refunded.rows("session_id", "tx_hash"):
            refunds.setdefault(session_id, {})[tx] = None  # two services may record one refund
        for session_id, payment_id in dict(opened.rows("session_id", "payment_id")).items():
            if deposit := self._by_payment.get((payment_id, self._first.get(payment_id, 0))):
                deposit.session_id = session_id
                deposit.refund_txs = tuple(refunds.get(session_id, ()))

    def _read_usages(self, reading: Reading) -> None:
        """Add the measured amounts; an unsettled payment is found by its id."""
        (measured,) = tables(reading.journal, events.UsageMeasured)
        used_base, texts = dict(measured.rows("payment_id", "used_base")), measured.texts
        unknown = measured.where(~np.isin(measured["payment_id"], list(self._first)))
        unsettled = dict(zip(unknown.listed("payment_id"), unknown["payment_id"], strict=True))
        addresses = unknown.listed("payer")
        owners = {texts.get(reading.name(each), 0): each for each in addresses}
        for order in self.found if owners else ():
            owner = owners.get(order.payer)
            for nonce in map(texts.all.__getitem__, order.nonces):
                if owner and nonce and len(nonce) == 64:  # else unreadable
                    name = usage_id(parse_address(owner), bytes.fromhex(nonce))
                    if name in unsettled:
                        self._keep(unsettled[name], order)
        for payment_id in used_base.keys() & self._first.keys():
            order = self._by_payment[payment_id, self._first[payment_id]]
            order.used_base = (order.used_base or 0) + used_base[payment_id]

    # --- the money ---------------------------------------------------------------------

    def _count_money(self, reading: Reading) -> None:
        gas_of = dict(standing(reading.journal).rows("tx_hash", "gas"))
        used, taken = self._used.get, set[int]()
        (metered,) = tables(reading.journal, events.UsageSettled)
        signed_base = dict(metered.rows("tx_hash", "maximum_base"))
        for order in self.found:
            if order.way == "session":
                continue
            order.paid_base = order.returned_base = order.gas = 0
            order.payments = order.lost_base = 0
            for nonce in order.nonces:
                use = used(nonce)
                if use is None or use.tx in taken:
                    continue
                others = self._presented[nonce]
                if len(others) > 1 and order is not self._owner(others, use.tx):
                    continue
                if use.paid_base:
                    taken.add(use.tx)
                    order.txs += (use.tx,)
                    order.tx, order.gas = use.tx, order.gas + gas_of.get(use.tx, 0)
                    order.payments += 1
                    if maximum_base := signed_base.get(use.tx):
                        order.signed_base = (order.signed_base or 0) + maximum_base
                    order.paid_base += use.paid_base
                elif use.tx not in gas_of and order.served_ms is not None:
                    order.lost_base += use.undone_base if order.served_ms <= use.undone_ms else 0
            for tx in order.refund_txs:
                if returned_base := self._moved.get(tx, 0):
                    order.refund_tx = tx
                    order.returned_base += returned_base
                    order.gas += gas_of.get(tx, 0)

    def _owner(self, presented: list[OrderState], tx: int) -> OrderState:
        """Return the order that a transaction settled; the first if unknown."""
        settled = self._settled.get(tx, 0)
        theirs = (each for each in presented if self._by_payment.get((settled, each.payer)) is each)
        return next(theirs, presented[0])


@once_per_journal
def orders_of(journal: Journal) -> list[OrderState]:
    """Return the orders of a journal."""
    return Orders(reading_of(journal)).found


def _first_settled(reading: Reading) -> dict[int, int]:
    """Return the payment id that was first settled with each transaction."""
    parts = tables(
        reading.journal, events.PaymentSettled, events.TransactionReplaced, events.UsageSettled
    )
    seqs, txs, ids = (
        np.concatenate([part[name] for part in parts]) for name in ("seq", "tx_hash", "payment_id")
    )
    newest_first = np.argsort(-seqs)
    return dict(zip(txs[newest_first].tolist(), ids[newest_first].tolist(), strict=True))


def _used(reading: Reading) -> tuple[dict[int, Use], dict[int, int]]:
    moves = Movements(reading)
    uses, size, amounts_base = moves.uses, len(moves.uses.texts.all), moves.amounts_base
    txs, senders = (moves.transfers[name][moves.rows] for name in ("tx_hash", "sender"))
    places = txs * size + senders
    in_all, of_sender = (
        pd.Series(amounts_base).groupby(keys).sum().to_dict() for keys in (txs, places)
    )
    undone_ms, undone_base = dict[int, int](), Counter[int]()
    back = (each[moves.is_undone].tolist() for each in (places, moves.at_ms, amounts_base))
    for place, at_ms, amount_base in zip(*back, strict=True):
        undone_ms.setdefault(place, at_ms)
        undone_base[place] -= amount_base
    used = uses.where(uses.those("use", "used".__eq__))
    used["place"] = used["tx_hash"] * size + used["authorizer"]
    found = {
        nonce: Use(
            tx=tx,
            paid_base=of_sender.get(place, 0),
            undone_ms=undone_ms.get(place, -1),
            undone_base=undone_base[place],
        )
        for nonce, tx, place in used.rows("authorization", "tx_hash", "place")
    }
    return found, in_all
