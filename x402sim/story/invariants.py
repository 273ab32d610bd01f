"""The invariants of every world, checked after each event of its journal.

Money is conserved; no session spends more than its deposit; access is granted, and a payment id
served, only for a transfer that was mined and not undone; a payment id is paid at most once. They
are checked against the chain and the database; only the service itself is read from answers.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from x402sim import events
from x402sim.journal import Entry
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.money import to_base
from x402sim.protocol.routes import MARKET, PAY, QUOTE
from x402sim.report.run import LAWS
from x402sim.service.store import Store
from x402sim.spilling import Spilling
from x402sim.story.stages import Stage
from x402sim.world.running_world import RunningWorld

Use = tuple[bytes, bytes]
"""The nonce of an authorization, and the using transaction."""
CONSERVED, WITHIN_DEPOSIT, GRANTED_IF_PAID, PAID_ONCE, ORDER_ONCE, SERVED_IF_PAID = LAWS
STANDS = "a transfer that stands when it is served"


class _Mined(msgspec.Struct, frozen=True, gc=False):
    """The transfers of a transaction, and the authorizations used to pay."""

    transfers: tuple[tuple[str, str, int], ...] = ()  # from, to, base units
    used: tuple[bytes, ...] = ()


class _Authorization(msgspec.Struct, frozen=True, gc=False):
    """The payment ids of an authorization, and the standing transaction that used the authorization
    to pay."""

    ids: tuple[str, ...] = ()
    tx: bytes | None = None


class _Payment(msgspec.Struct, frozen=True, gc=False):
    """The authorizations presented for a payment id, the settled authorizations, and whether the
    id was served."""

    offered: tuple[bytes, ...] = ()
    settled: tuple[Use, ...] = ()
    is_served: bool = False


class Broken(NamedTuple):
    """A broken invariant `about` a case: an exchange, a payment or a session."""

    clause: str
    expected: str
    actual: str
    about: str
    at_stake_base: int


class Invariants:
    """Listens to a world's journal; records a failed check once for each broken case."""

    def __init__(self, stage: Stage, parts: RunningWorld) -> None:
        self._stage, self._parts = stage, parts
        self._supply = parts.chain_recorder.supply_base
        """The supply that the recorded mints must have made, in base units."""
        self._mined = Spilling[bytes, _Mined](bytes, _Mined)
        self._is_settled = True
        self._authorizations = Spilling[bytes, _Authorization](bytes, _Authorization)
        self._payments = Spilling[str, _Payment](str, _Payment)
        self._served_by: dict[bytes, Store] = {}
        """The authorizations served in one step, each with the database of the first service."""
        self._is_rewound = False  # whether the chain has ever undone a transaction
        self._open: dict[int, Callable[[events.AnswerReceived], Iterable[Broken]]] = {}
        """The check for an open request once served, by exchange."""
        self._reported: set[Broken] = set()
        self._checks: dict[type[events.Event], Callable[[Any], Iterable[Broken]]] = {
            events.Transfer: self._record_transfer,
            events.TransactionUndone: self._forget_undone,
            events.AuthorizationConsumed: self._paid_once,
            events.PaymentSettled: self._granted_if_paid,
            events.UsageSettled: self._usage_paid,
            events.SessionOpened: self._within_deposit,
            events.SessionDebited: self._debited,
            events.DebitUndone: self._within_deposit,
            events.SessionRefunded: self._within_deposit,
            events.RequestSent: self._on_request,
            events.AnswerReceived: self._on_response,
            events.NoAnswer: self._on_response,
        }

    def __call__(self, entry: Entry) -> None:
        """Check the invariants that an event can break."""
        event = entry.event
        if event.actor.startswith("chain"):  # a block is complete only after its last event
            self._is_settled = False
        elif not self._is_settled:
            self._is_settled = True
            minted, held = self._supply, self._parts.chain_recorder.supply_base
            if minted != held:
                wanted, actual = f"{minted} base units", f"{held} base units"
                self._report([Broken(CONSERVED, wanted, actual, "", abs(held - minted))])
        check = self._checks.get(type(event))
        if check is not None and (found := check(event)):
            self._report(found)

    def _report(self, found: Iterable[Broken]) -> None:
        for broken in found:
            if broken not in self._reported:
                self._reported.add(broken)
                self._stage.record(
                    events.Check(
                        clause=broken.clause,
                        ok=False,
                        exchange=self._stage.last_exchange or None,
                        expected=broken.expected,
                        actual=f"{broken.actual}; {broken.at_stake_base} base units at stake",
                        about=broken.about,
                        at_stake_base=str(broken.at_stake_base),
                    )
                )

    def _on_request(self, event: events.RequestSent) -> Iterable[Broken]:
        authorization, payment_id = event.authorization, event.payment_id
        service = self._parts.services.get(event.to)
        if service is not None and service.service.env.shop.takes_permit2(event.path):
            return ()  # whose message is checked when it is settled: nothing used costs nothing
        if authorization is not None and service is not None and event.path != PAY:
            check = partial(self._served_in_one_step, _to_bytes(authorization))
            self._open[event.exchange] = check
        elif payment_id is None:
            if event.session_id is None and event.path in (MARKET, QUOTE):
                self._open[event.exchange] = self._served_without_proof
        elif authorization is not None:
            self._offer(_to_bytes(authorization), payment_id)
        elif event.method == "POST":
            self._open[event.exchange] = partial(self._served_if_paid, payment_id)
        return ()

    def _on_response(self, event: events.AnswerReceived | events.NoAnswer) -> Iterable[Broken]:
        check = self._open.pop(event.exchange, None)
        if check is None or not isinstance(event, events.AnswerReceived):
            return ()
        return check(event) if event.status in (200, 201) else ()

    def _served_without_proof(self, event: events.AnswerReceived) -> Iterator[Broken]:
        """Report a protected resource that was served to a request without a proof of payment."""
        if event.status != 200:
            return
        about, price = f"exchange {event.exchange}", self._quote_price(event.to)
        yield Broken(SERVED_IF_PAID, "a proof of payment", f"none in {about}", about, price)

    def _served_in_one_step(
        self, authorization: bytes, event: events.AnswerReceived
    ) -> Iterator[Broken]:
        """Check that a payment in one step came before the service, and was served once."""
        if event.status != 200:
            return
        store = self._store(event.to)
        is_paid, first = self._is_used(authorization), self._served_by.get(authorization)
        self._served_by.setdefault(authorization, store)
        if is_paid and first is None:
            return
        about, price = f"exchange {event.exchange}", self._quote_price(event.to)
        actual = f"{authorization.hex()} in {about}"
        if not is_paid:
            yield Broken(SERVED_IF_PAID, STANDS, f"none by {actual}", about, price)
        is_stored = (
            event.payment_id is not None and store.served.identifier(event.payment_id) is not None
        )
        is_same_order = is_stored and first is store  # a repeated request for what it paid for
        if first is not None and not is_same_order:
            yield Broken(ORDER_ONCE, "one order", actual, about, price)

    def _quote_price(self, name: events.ServiceName) -> int:
        service = self._parts.services[name].service
        return to_base(service.env.settings.quote_price, service.env.network.decimals)

    def _offer(self, authorization: bytes, payment_id: str) -> None:
        known = self._authorizations.get(authorization, _Authorization())
        if payment_id not in known.ids:
            self._authorizations[authorization] = replace(known, ids=(*known.ids, payment_id))
            payment = self._payments.get(payment_id, _Payment())
            offered = (*payment.offered, authorization)
            self._payments[payment_id] = replace(payment, offered=offered)

    def _is_used(self, *authorizations: bytes) -> bool:
        """Return whether an authorization has paid, in a block that still stands."""
        known = (self._authorizations.get(each, _Authorization()) for each in authorizations)
        return any(each.tx is not None for each in known)

    def _served_if_paid(self, payment_id: str, event: events.AnswerReceived) -> Iterator[Broken]:
        payment = self._payments.get(payment_id)
        if payment is None:
            return
        if not self._is_used(*payment.offered):
            price = self._price(event.to, payment_id)
            yield Broken(SERVED_IF_PAID, STANDS, f"none for {payment_id}", payment_id, price)
        if not payment.is_served:
            self._payments[payment_id] = replace(payment, is_served=True)
        ids = {each for one in payment.offered for each in self._authorizations[one].ids}
        if len(ids) == 1:
            return
        of_one = [self._payments[each] for each in ids]
        authorizations = {one for each in of_one for one in each.offered}
        if sum(each.is_served for each in of_one) > len(authorizations):
            price = self._price(event.to, payment_id)
            actual = f"{payment_id} with that of another"
            yield Broken(ORDER_ONCE, "an authorization of its own", actual, payment_id, price)

    def _price(self, service: events.ServiceName, payment_id: str) -> int:
        """Return the price of a payment id in base units; 0 if the service has not issued it."""
        terms = self._parts.services[service].service.issuer.read(payment_id)
        return terms.amount_base if terms else 0

    def _forget_undone(self, event: events.TransactionUndone) -> Iterable[Broken]:
        """Forget the transfers and authorizations of a transaction that a reorganisation undid."""
        tx = _to_bytes(event.tx_hash)
        mined = self._mined.pop(tx, _Mined())
        self._supply -= sum(_minted(event, *each) for each in mined.transfers)
        self._is_rewound = True
        for nonce in mined.used:
            known = self._authorizations[nonce]
            if known.tx == tx:
                self._authorizations[nonce] = replace(known, tx=None)
            for payment_id in known.ids:
                payment = self._payments[payment_id]
                others = tuple(use for use in payment.settled if use[1] != tx)
                self._payments[payment_id] = replace(payment, settled=others)
        return ()

    def _debited(self, event: events.SessionDebited) -> Iterator[Broken]:
        """Check the session and, after a reorganisation, that the deposit still stands."""
        yield from self._within_deposit(event)
        if not self._is_rewound:
            return
        session = self._store(event.actor).sessions.get(event.session_id)
        payment = self._payments.get(session.payment_id) if session else None
        if payment is not None and not self._is_used(*payment.offered):
            actual = f"no deposit of {event.session_id}"
            yield Broken(SERVED_IF_PAID, STANDS, actual, event.session_id, event.released_base)

    def _record_transfer(self, event: events.Transfer) -> Iterable[Broken]:
        sender, to = event.sender.lower(), event.to.lower()
        tx, amount_base = _to_bytes(event.tx_hash), int(event.amount_base)
        mined = self._mined.get(tx, _Mined())
        transfers = (*mined.transfers, (sender, to, amount_base))
        self._mined[tx] = replace(mined, transfers=transfers)
        self._supply += _minted(event, sender, to, amount_base)
        return ()

    def _within_deposit(
        self,
        event: (
            events.SessionOpened
            | events.SessionDebited
            | events.DebitUndone
            | events.SessionRefunded
        ),
    ) -> Iterator[Broken]:
        """Check that a session's released and refunded amounts do not exceed the deposit."""
        session = self._store(event.actor).sessions.get(event.session_id)
        if session is None:
            return
        out = session.released + session.refunded
        if not 0 <= session.released <= out <= session.deposited:
            expected, actual = f"at most {session.deposited}", f"{out} of {event.session_id}"
            over_base = abs(out - session.deposited)
            yield Broken(WITHIN_DEPOSIT, expected, actual, event.session_id, over_base)

    def _granted_if_paid(self, event: events.PaymentSettled) -> Iterator[Broken]:
        """Check that the transaction of a grant moved exactly the amount from the payer."""
        stored = self._store(event.actor).payments.get(event.payment_id)
        if stored is None:
            return
        moved = list(self._mined.get(_to_bytes(event.tx_hash), _Mined()).transfers)
        wanted = stored.from_address.lower(), stored.to_address.lower(), int(stored.amount)
        if wanted not in moved:
            payment_id = stored.payment_id
            expected, actual = f"a transfer of {wanted}", f"{moved} for {payment_id}"
            yield Broken(GRANTED_IF_PAID, expected, actual, payment_id, wanted[2])

    def _usage_paid(self, event: events.UsageSettled) -> Iterator[Broken]:
        """Check that the transaction of a metered answer moved exactly the amount that is told, to
        the merchant, and no more than the maximum."""
        to = to_hex(self._parts.services[event.actor].service.env.pay_to)
        moved = list(self._mined.get(_to_bytes(event.tx_hash), _Mined()).transfers)
        amounts = [amount_base for _, payee, amount_base in moved if payee == to]
        if amounts != [event.settled_base] or event.settled_base > event.maximum_base:
            wanted = f"a transfer of {event.settled_base}, of at most {event.maximum_base}"
            actual = f"{moved} for {event.payment_id}"
            yield Broken(GRANTED_IF_PAID, wanted, actual, event.payment_id, event.settled_base)

    def _store(self, service: events.ServiceName) -> Store:
        return self._parts.services[service].service.store

    def _paid_once(self, event: events.AuthorizationConsumed) -> Iterator[Broken]:
        """Check that at most one authorization for a payment id was settled."""
        if event.use != "used":
            return
        authorization, tx = _to_bytes(event.authorization), _to_bytes(event.tx_hash)
        known = self._authorizations.get(authorization, _Authorization())
        self._authorizations[authorization] = replace(known, tx=tx)
        mined = self._mined.get(tx, _Mined())
        self._mined[tx] = replace(mined, used=(*mined.used, authorization))
        if len(known.ids) != 1:
            return
        (payment_id,) = known.ids
        payment = self._payments[payment_id]
        others = [use for use in payment.settled if use[0] != authorization]
        self._payments[payment_id] = replace(payment, settled=(*others, (authorization, tx)))
        if others:
            prices = (self._price(service, payment_id) for service in self._parts.services)
            found, too_much_base = f"{len(others) + 1} transfers", len(others) * max(prices)
            actual = f"{found} for {payment_id}"
            yield Broken(PAID_ONCE, "at most 1 transfer", actual, payment_id, too_much_base)


def _minted(event: events.ChainEvent, sender: str, _: str, amount_base: int) -> int:
    """Return what a transfer has added to the supply of the first network's token."""
    return amount_base if int(sender, 16) == 0 and event.actor == "chain" else 0


def _to_bytes(text: str) -> bytes:
    """Return the bytes of a hash or a nonce: half as much memory as its hex digits."""
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return text.encode()
