"""Checks the invariants after every event of every run.

Money is conserved; no session spends more than its deposit; access is granted, and a payment id is
served, only for money that moved; a payment id is paid at most once. Each is checked on the chain
and the database; only what was served is read from an answer.
"""

from collections.abc import Callable, Iterator
from typing import assert_never

from x402sim import events
from x402sim.journal import Entry
from x402sim.service.store import Store
from x402sim.world.assembly.parts import Parts

Broken = tuple[str, str, str]
"""A broken invariant: its clause, the expected and the actual value."""
CONSERVED = "invariant/value-conserved"
WITHIN_DEPOSIT = "invariant/released-within-deposit"
GRANTED_IF_PAID = "invariant/granted-only-if-transferred"
PAID_ONCE = "invariant/one-transfer-per-payment"
SERVED_IF_PAID = "invariant/served-only-if-transferred"


class Invariants:
    """Listens to a world's journal; calls `broken` once for each broken case."""

    def __init__(self, parts: Parts, broken: Callable[[str, str, str], None]) -> None:
        self._parts, self._broken = parts, broken
        self._supply = parts.watch.supply_base
        self._moved: dict[str, list[tuple[str, str, int]]] = {}
        """The transfers of each transaction: from, to, base units."""
        self._minted: dict[str, int] = {}
        self._is_settled = True
        self._presented: dict[str, set[str]] = {}
        self._offered: dict[str, set[str]] = {}
        """The authorizations that were presented for each payment id."""
        self._paid: dict[str, dict[str, str]] = {}
        """The authorizations that stand for each payment id, and their transactions."""
        self._used: set[str] = set()
        """The authorizations that were ever used to pay."""
        self._shown: dict[int, str] = {}
        """The payment ids that open requests show."""
        self._reported: set[tuple[str, str]] = set()
        self.checked = 0

    def __call__(self, entry: Entry) -> None:
        """Check the invariants that one event can break."""
        self.checked += 1
        event = entry.event
        if event.actor == "chain":  # a block is complete only after its last event
            self._is_settled = False
        else:
            for clause, expected, actual in self._conserved():
                self._report(clause, expected, actual)
        for clause, expected, actual in self._check(event):
            self._report(clause, expected, actual)

    def _report(self, clause: str, expected: str, actual: str) -> None:
        if (clause, actual) not in self._reported:
            self._reported.add((clause, actual))
            self._broken(clause, expected, actual)

    def _check(self, event: events.Event) -> Iterator[Broken]:
        if isinstance(event, events.ChainEvent):
            yield from self._look_at_chain(event)
        elif isinstance(event, events.ServiceEvent):
            yield from self._look_at_service(event)
        elif isinstance(event, events.ExchangeEvent):
            yield from self._look_at_exchange(event)

    def _look_at_exchange(self, event: events.ExchangeEvent) -> Iterator[Broken]:
        match event:
            case events.RequestSent(authorization=str(authorization), payment_id=str(payment_id)):
                self._presented.setdefault(authorization, set()).add(payment_id)
                self._offered.setdefault(payment_id, set()).add(authorization)
            case events.RequestSent(method="POST", payment_id=str(payment_id)):
                self._shown[event.exchange] = payment_id
            case events.AnswerReceived() | events.NoAnswer():
                shown = self._shown.pop(event.exchange, None)
                if shown is not None and isinstance(event, events.AnswerReceived):
                    yield from self._served_if_paid(event, shown)
            case events.RequestSent():
                pass
            case _:
                assert_never(event)

    def _served_if_paid(self, event: events.AnswerReceived, payment_id: str) -> Iterator[Broken]:
        """Check that a payment id that is served was paid, by a header that was presented."""
        offered = self._offered.get(payment_id)
        if event.status in (200, 201) and offered and not offered & self._used:
            yield SERVED_IF_PAID, "a transfer before it is served", f"none for {payment_id}"

    def _look_at_chain(self, event: events.ChainEvent) -> Iterator[Broken]:
        match event:
            case events.Transfer():
                self._count(event)
            case events.TransactionUndone():
                self._minted.pop(event.tx_hash, None)
                self._moved.pop(event.tx_hash, None)
                for paid in self._paid.values():
                    for authorization in [a for a, tx in paid.items() if tx == event.tx_hash]:
                        del paid[authorization]
            case events.AuthorizationConsumed():
                yield from self._paid_once(event)
            case events.TransactionMined():
                pass
            case _:
                assert_never(event)

    def _look_at_service(self, event: events.ServiceEvent) -> Iterator[Broken]:
        match event:
            case events.SessionDebited() | events.SessionOpened() | events.SessionRefunded():
                yield from self._within_deposit(event.actor, event.session_id)
            case events.PaymentSettled():
                yield from self._granted_if_paid(event)
            case events.PaymentRefused() | events.PaymentFailed() | events.PaymentIndexed():
                pass
            case events.PaymentUndone() | events.TransactionReplaced():
                pass
            case events.RefundDelayed() | events.RefundUndone() | events.PaidAgain():
                pass
            case events.SettlementAnswerLost() | events.SessionsExpired() | events.IndexerRan():
                pass
            case _:
                assert_never(event)

    def _count(self, event: events.Transfer) -> None:
        """Record the transfers and mints of each transaction."""
        sender, to, amount_base = event.sender.lower(), event.to.lower(), int(event.amount_base)
        self._moved.setdefault(event.tx_hash, []).append((sender, to, amount_base))
        if int(sender, 16) == 0:
            self._minted[event.tx_hash] = self._minted.get(event.tx_hash, 0) + amount_base

    def _conserved(self) -> Iterator[Broken]:
        """Check that the sum of all balances is the minted amount."""
        if self._is_settled:
            return
        self._is_settled = True
        minted = self._supply + sum(self._minted.values())
        held = self._parts.watch.supply_base
        if held != minted:
            yield CONSERVED, f"{minted} base units", f"{held} base units"

    def _within_deposit(self, service: events.ServiceName, session_id: str) -> Iterator[Broken]:
        """Check that a session's released and refunded amounts do not exceed its deposit."""
        session = self._store(service).sessions.get(session_id)
        if session is None:
            return
        refunded = session.remaining if session.refund_status == "settled" else 0
        out = session.released + refunded
        if not 0 <= session.released <= out <= session.deposited:
            yield WITHIN_DEPOSIT, f"at most {session.deposited}", f"{out} of {session_id}"

    def _granted_if_paid(self, event: events.PaymentSettled) -> Iterator[Broken]:
        """Check that the transaction of a grant moved exactly this amount from this payer."""
        stored = self._store(event.actor).payments.get(event.payment_id)
        if stored is None:
            return
        moved, record = self._moved.get(event.tx_hash.lower(), []), stored.record
        wanted = record.from_address.lower(), record.to_address.lower(), int(record.amount)
        if wanted not in moved:
            yield GRANTED_IF_PAID, f"a transfer of {wanted}", f"{moved} for {record.payment_id}"

    def _store(self, service: events.ServiceName) -> Store:
        """Return the database of a service."""
        return self._parts.services[service].process.service.store

    def _paid_once(self, event: events.AuthorizationConsumed) -> Iterator[Broken]:
        """Check that at most one of the authorizations for a single payment id was settled."""
        if event.use == "used":
            self._used.add(event.authorization)
        ids = self._presented.get(event.authorization, set())
        if event.use != "used" or len(ids) != 1:
            return
        (payment_id,) = ids
        paid = self._paid.setdefault(payment_id, {})
        paid[event.authorization] = event.tx_hash
        if len(paid) > 1:
            yield PAID_ONCE, "at most 1 transfer", f"{len(paid)} transfers for {payment_id}"
