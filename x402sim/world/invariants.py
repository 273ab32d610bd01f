"""Checks the invariants after every event of every run.

Money is conserved; no session spends more than its deposit; access is granted, and a payment id
served, only for a transfer that was mined and not undone; a payment id is paid at most once. Each
is checked against the chain and the database; only what was served is read from answers.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from sys import intern
from typing import Any, NamedTuple

from x402sim import events
from x402sim.journal import Entry
from x402sim.protocol.money import to_base
from x402sim.protocol.routes import MARKET, PAY, QUOTE
from x402sim.report.laws import LAWS
from x402sim.service.store import Store
from x402sim.world.running_world import RunningWorld
from x402sim.world.stages import Stage

TransferFields = tuple[str, str, int]
"""A transfer: from, to, base units."""
Use = tuple[bytes, bytes]
"""The nonce of an authorization, and the transaction that used it."""
CONSERVED, WITHIN_DEPOSIT, GRANTED_IF_PAID, PAID_ONCE, ORDER_ONCE, SERVED_IF_PAID = LAWS
STANDS = "a transfer that stands when it is served"


class Broken(NamedTuple):
    """A broken invariant, and the case that it is `about`: an exchange, a payment or a session."""

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
        """The supply that the mints seen so far must have made, in base units."""
        self._transfers: dict[bytes, tuple[TransferFields, ...]] = {}
        """The transfers of each transaction."""
        self._is_settled = True
        self._presented: dict[bytes, tuple[str, ...]] = {}
        """The payment ids that each authorization was presented for."""
        self._offered: dict[str, tuple[bytes, ...]] = {}
        """The authorizations that were presented for each payment id."""
        self._paid: dict[str, tuple[Use, ...]] = {}
        """The settled authorizations of each payment id, and their transactions."""
        self._used: dict[bytes, bytes] = {}
        """The authorizations that were used to pay, and their transactions, unless undone."""
        self._served: set[str] = set()
        """The payment ids that were served."""
        self._served_by: dict[bytes, Store] = {}
        """The authorizations that were served in one step, and the first service's database."""
        self._is_rewound = False
        """Whether the chain has ever undone a transaction."""
        self._open: dict[int, Callable[[events.AnswerReceived], Iterable[Broken]]] = {}
        """What to check if an open request is served, by its exchange."""
        self._reported: set[Broken] = set()
        self._checks: dict[type[events.Event], Callable[[Any], Iterable[Broken]]] = {
            events.Transfer: self._record_transfer,
            events.TransactionUndone: self._forget_undone,
            events.AuthorizationConsumed: self._paid_once,
            events.PaymentSettled: self._granted_if_paid,
            events.SessionOpened: self._within_deposit,
            events.SessionDebited: self._debited,
            events.DebitUndone: self._within_deposit,
            events.SessionRefunded: self._within_deposit,
            events.RequestSent: self._on_request,
            events.AnswerReceived: self._on_response,
            events.NoAnswer: self._on_response,
        }

    def __call__(self, entry: Entry) -> None:
        """Check the invariants that one event can break."""
        event = entry.event
        if event.actor.startswith("chain"):  # a block is complete only after its last event
            self._is_settled = False
        elif not self._is_settled:
            self._is_settled = True
            self._report(self._conserved())
        check = self._checks.get(type(event))
        if check is not None:
            self._report(check(event))

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
        if authorization is not None and event.to in self._parts.services and event.path != PAY:
            check = partial(self._served_in_one_step, self._interned(authorization))
            self._open[event.exchange] = check
        elif payment_id is None:
            if event.session_id is None and event.path in (MARKET, QUOTE):
                self._open[event.exchange] = self._served_without_proof
        elif authorization is not None:
            self._offer(_to_bytes(authorization), intern(payment_id))
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
        """Check that a payment in one step was made before it was served, and was served once."""
        if event.status != 200:
            return
        store = self._store(event.to)
        is_paid, first = authorization in self._used, self._served_by.get(authorization)
        self._served_by.setdefault(authorization, store)
        if is_paid and first is None:
            return
        about, price = f"exchange {event.exchange}", self._quote_price(event.to)
        actual = f"{authorization.hex()} in {about}"
        if not is_paid:
            yield Broken(SERVED_IF_PAID, STANDS, f"none by {actual}", about, price)
        is_stored = event.payment_id is not None and store.served.is_stored(event.payment_id)
        if first is not None and not (
            is_stored and first is store
        ):  # there, it is that order again
            yield Broken(ORDER_ONCE, "one order", actual, about, price)

    def _quote_price(self, name: events.ServiceName) -> int:
        service = self._parts.services[name].service
        return to_base(service.settings.quote_price, service.env.network.decimals)

    def _offer(self, authorization: bytes, payment_id: str) -> None:
        ids = self._presented.get(authorization, ())
        if payment_id not in ids:
            self._presented[authorization] = (*ids, payment_id)
            self._offered[payment_id] = (*self._offered.get(payment_id, ()), authorization)

    def _served_if_paid(self, payment_id: str, event: events.AnswerReceived) -> Iterator[Broken]:
        """Check that a payment id that is served was paid, by a header that was presented."""
        offered = self._offered.get(payment_id)
        if not offered:
            return
        if self._used.keys().isdisjoint(offered):
            price = self._price(event.to, payment_id)
            yield Broken(SERVED_IF_PAID, STANDS, f"none for {payment_id}", payment_id, price)
        self._served.add(intern(payment_id))
        ids = {each for one in offered for each in self._presented[one]}
        authorizations = {one for each in ids for one in self._offered[each]}
        if len(ids) > 1 and len(self._served & ids) > len(authorizations):
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
        self._supply -= sum(_minted(event, *each) for each in self._transfers.pop(tx, ()))
        self._is_rewound = True
        for nonce in [nonce for nonce, by in self._used.items() if by == tx]:
            del self._used[nonce]
        for payment_id, uses in self._paid.items():
            if any(use[1] == tx for use in uses):
                self._paid[payment_id] = tuple(use for use in uses if use[1] != tx)
        return ()

    def _debited(self, event: events.SessionDebited) -> Iterator[Broken]:
        """Check the session and, after a reorganisation, that its deposit is still mined."""
        yield from self._within_deposit(event)
        if not self._is_rewound:
            return
        session = self._store(event.actor).sessions.get(event.session_id)
        offered = self._offered.get(session.payment_id) if session else None
        if offered and self._used.keys().isdisjoint(offered):
            actual = f"no deposit of {event.session_id}"
            yield Broken(SERVED_IF_PAID, STANDS, actual, event.session_id, event.released_base)

    def _record_transfer(self, event: events.Transfer) -> Iterable[Broken]:
        """Record the transfers and mints of each transaction."""
        sender, to = intern(event.sender.lower()), intern(event.to.lower())
        tx, amount_base = _to_bytes(event.tx_hash), int(event.amount_base)
        self._transfers[tx] = (*self._transfers.get(tx, ()), (sender, to, amount_base))
        self._supply += _minted(event, sender, to, amount_base)
        return ()

    def _conserved(self) -> Iterator[Broken]:
        """Check that the sum of all balances is the minted amount."""
        minted, held = self._supply, self._parts.chain_recorder.supply_base
        if held != minted:
            expected, actual = f"{minted} base units", f"{held} base units"
            yield Broken(CONSERVED, expected, actual, "", abs(held - minted))

    def _within_deposit(
        self,
        event: (
            events.SessionOpened
            | events.SessionDebited
            | events.DebitUndone
            | events.SessionRefunded
        ),
    ) -> Iterator[Broken]:
        """Check that a session's released and refunded amounts do not exceed its deposit."""
        session = self._store(event.actor).sessions.get(event.session_id)
        if session is None:
            return
        refunded = session.remaining if session.refund_status == "settled" else 0
        out = session.released + refunded
        if not 0 <= session.released <= out <= session.deposited:
            expected, actual = f"at most {session.deposited}", f"{out} of {event.session_id}"
            over_base = abs(out - session.deposited)
            yield Broken(WITHIN_DEPOSIT, expected, actual, event.session_id, over_base)

    def _granted_if_paid(self, event: events.PaymentSettled) -> Iterator[Broken]:
        """Check that the transaction of a grant moved exactly this amount from this payer."""
        stored = self._store(event.actor).payments.get(event.payment_id)
        if stored is None:
            return
        moved = list(self._transfers.get(_to_bytes(event.tx_hash), ()))
        wanted = stored.from_address.lower(), stored.to_address.lower(), int(stored.amount)
        if wanted not in moved:
            payment_id = stored.payment_id
            expected, actual = f"a transfer of {wanted}", f"{moved} for {payment_id}"
            yield Broken(GRANTED_IF_PAID, expected, actual, payment_id, wanted[2])

    def _store(self, service: events.ServiceName) -> Store:
        """Return the database of a service."""
        return self._parts.services[service].service.store

    def _interned(self, text: str) -> bytes:
        """Return the bytes of an authorization, the same object each time, to save memory."""
        authorization = _to_bytes(text)
        ids = self._presented.get(authorization, ())
        held = self._offered[ids[0]] if ids else ()
        return next((each for each in held if each == authorization), authorization)

    def _paid_once(self, event: events.AuthorizationConsumed) -> Iterator[Broken]:
        """Check that at most one of the authorizations for a single payment id was settled."""
        authorization, tx = self._interned(event.authorization), _to_bytes(event.tx_hash)
        if event.use == "used":
            self._used[authorization] = tx
        ids = self._presented.get(authorization, ())
        if event.use != "used" or len(ids) != 1:
            return
        (payment_id,) = ids
        others = [use for use in self._paid.get(payment_id, ()) if use[0] != authorization]
        self._paid[payment_id] = (*others, (authorization, tx))
        if others:
            prices = (self._price(service, payment_id) for service in self._parts.services)
            found, too_much = (
                f"{len(others) + 1} transfers for {payment_id}",
                len(others) * max(prices),
            )
            yield Broken(PAID_ONCE, "at most 1 transfer", found, payment_id, too_much)


def _minted(event: events.ChainEvent, sender: str, _: str, amount_base: int) -> int:
    """Return what a transfer has added to the supply of the first network's token."""
    return amount_base if int(sender, 16) == 0 and event.actor == "chain" else 0


def _to_bytes(text: str) -> bytes:
    """Return the bytes of a hash or a nonce: half as much memory as its hex digits."""
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        return text.encode()
