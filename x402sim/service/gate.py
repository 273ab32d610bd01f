"""Does a request carry a valid proof of payment? Section 5, in one place.

`find_pass` looks for the proof and changes nothing; `spend` debits the session, if the proof is a
session id. Between the two the endpoint validates the body and prepares its answer, so that a
request that is not served costs nothing.
Clauses: 5/cache-first, 5/stored-records, 5/resource-binding, 5/session-debit.
"""

from collections.abc import Mapping

import msgspec

from x402sim import events
from x402sim.service.state import Service


class Pass(msgspec.Struct, frozen=True):
    """A valid proof of payment for one resource; only one with a `session_id` is debited."""

    resource: str
    amount_base: int
    session_id: str | None = None


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
        return Pass(resource, amount_base)

    def by_session() -> Pass | None:
        sessions, now_ms = service.store.sessions, service.clock.now_ms()
        if session_id is None or not sessions.can_pay(session_id, amount_base, now_ms):
            return None
        return Pass(resource, amount_base, session_id)

    if service.settings.decisions.payment_id_first:
        return by_payment() or by_session()
    return by_session() or by_payment()


def is_entitled(service: Service, payment_id: str, resource: str) -> bool:
    """Check an entitlement: the cache (5/cache-first), then the records (5/stored-records).

    Only for exactly the resource that was paid for (5/resource-binding).
    """
    now_ms = service.clock.now_ms()
    if service.entitlements.grants(payment_id, resource, now_ms):
        return True
    return service.store.payments.grants(payment_id, resource)


def spend(service: Service, granted: Pass) -> bool:
    """Debit the session of a pass (5/session-debit); False if it cannot pay any more."""
    if granted.session_id is None:
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
