"""Does a request carry a valid proof of payment? Section 5, in one place.

The policy `serve` decides which proofs are served; by default, what is settled.

`find_pass` looks for the proof and changes nothing; `spend` debits the session, if the proof is a
session id. Between the two the endpoint validates the body and prepares its answer, so that a
request that is not served costs nothing.
Clauses: 5/cache-first, 5/stored-records, 5/resource-binding, 5/session-debit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from x402sim import events
from x402sim.service.state import Service


class Pass(msgspec.Struct, frozen=True):
    """A valid proof of payment for one resource; only one with a `session_id` is debited."""

    resource: str
    amount_base: int
    session_id: str | None = None
    payment_id: str | None = None


def find_pass(
    service: Service, headers: Mapping[str, str], resource: str, amount_base: int
) -> Pass | None:
    """Return the pass that the request's headers give, or None (1/unpaid-402).

    X-Payment-Id has precedence over X-Session-Id (decision 5/precedence).
    """
    payment_id, session_id = headers.get("x-payment-id"), headers.get("x-session-id")

    def by_payment() -> Pass | None:
        if payment_id is None or not is_entitled(service, payment_id, resource):
            return None
        return Pass(resource, amount_base, payment_id=payment_id)

    def by_session() -> Pass | None:
        if session_id is None:
            return None
        proof = SessionProof(service, session_id, amount_base)
        is_served = service.settings.policy.serve.serves(proof)
        return Pass(resource, amount_base, session_id) if is_served else None

    if service.settings.decisions.payment_id_first:
        return by_payment() or by_session()
    return by_session() or by_payment()


def is_entitled(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a payment id is served, for exactly this resource (5/resource-binding)."""
    return service.settings.policy.serve.serves(PaymentProof(service, payment_id, resource))


@dataclass(frozen=True, slots=True)
class PaymentProof:
    """A payment id, shown for a resource."""

    service: Service
    payment_id: str
    resource: str

    def is_settled(self) -> bool:
        """Check the entitlement: the cache (5/cache-first), then the records (5/stored-records)."""
        service, shown = self.service, (self.payment_id, self.resource)
        is_cached = service.entitlements.grants(*shown, service.clock.now_ms())
        return is_cached or service.store.payments.grants(*shown)

    def is_claimed(self) -> bool:
        """Tell whether a header that can pay was presented, and may still be settled."""
        return any(
            stored.can_pay
            and stored.record.status == "pending"
            and stored.record.resource_url == self.resource
            for stored in self.service.store.payments.attempts(self.payment_id)
        )

    def is_indexed(self) -> bool:
        """Tell whether the block of the payment is known."""
        return _is_indexed(self.service, self.payment_id)

    def draw(self, name: str) -> float:
        """Return a number in [0, 1) of this payment."""
        return self.service.draw(name, self.payment_id)


@dataclass(frozen=True, slots=True)
class SessionProof:
    """A session id, shown for a request of this amount."""

    service: Service
    session_id: str
    amount_base: int

    def is_settled(self) -> bool:
        """Tell whether the session can pay (5/session-condition)."""
        sessions, now_ms = self.service.store.sessions, self.service.clock.now_ms()
        return sessions.can_pay(self.session_id, self.amount_base, now_ms)

    def is_claimed(self) -> bool:
        """Tell no: a session opens only when its deposit is settled."""
        return False

    def is_indexed(self) -> bool:
        """Tell whether the block of the deposit is known."""
        session = self.service.store.sessions.get(self.session_id)
        return session is not None and _is_indexed(self.service, session.payment_id)

    def draw(self, name: str) -> float:
        """Return a number in [0, 1) of this session."""
        return self.service.draw(name, self.session_id)


def _is_indexed(service: Service, payment_id: str) -> bool:
    stored = service.store.payments.get(payment_id)
    return stored is not None and stored.record.block_number is not None


def spend(service: Service, granted: Pass) -> bool:
    """Debit the session of a pass (5/session-debit); False if it cannot pay any more.

    A payment that is served is marked as such, if the reputation counts that.
    """
    if granted.session_id is None:
        if granted.payment_id is not None and service.settings.reputation.counts_served:
            service.store.payments.mark_served(granted.payment_id, granted.resource)
        return True
    released = service.store.sessions.debit(
        granted.session_id, granted.amount_base, granted.resource, service.clock.now_ms()
    )
    if released is None:
        return False
    service.record(
        events.SessionDebited(
            session_id=granted.session_id,
            amount_base=granted.amount_base,
            released_base=released,
        )
    )
    return True
