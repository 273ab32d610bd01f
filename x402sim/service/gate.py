"""Who may pass? Section 5, in one place.

`ask` looks for a proof of payment and changes nothing; `spend` debits the session it
found, if it was one. Between the two the endpoint validates the body and prepares its
answer, so that nobody pays for a request that is not served.
Clauses: 5/cache-first, 5/stored-records, 5/resource-binding, 5/session-condition,
5/session-debit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from x402sim import events
from x402sim.service.state import Service


@dataclass(frozen=True, slots=True)
class Pass:
    """A proof of payment for one resource; `session_id` is None if it costs nothing more."""

    resource: str
    amount_base: int
    session_id: str | None = None


def ask(
    service: Service, headers: Mapping[str, str], resource: str, amount_base: int
) -> Pass | None:
    """Return the pass that the request's headers give, or None (1/unpaid-402).

    X-Payment-Id counts before X-Session-Id (decision 5/precedence).
    """
    payment_id, session_id = headers.get("x-payment-id"), headers.get("x-session-id")

    def by_payment() -> Pass | None:
        if payment_id is None or not is_entitled(service, payment_id, resource):
            return None
        return Pass(resource, amount_base)

    def by_session() -> Pass | None:
        if session_id is None or not can_spend(service, session_id, amount_base):
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
    return service.entitlements.grants(payment_id, resource, now_ms) or service.store.grants(
        payment_id, resource
    )


def can_spend(service: Service, session_id: str, amount_base: int) -> bool:
    """Tell whether deposited - released >= amount, in a live session (5/session-condition)."""
    session = service.store.session(session_id)
    return (
        session is not None
        and session.status == "active"
        and service.clock.now_ms() < session.expires_ms
        and session.remaining >= amount_base
    )


def spend(service: Service, granted: Pass) -> bool:
    """Debit the session behind a pass (5/session-debit); False if the budget is gone by now."""
    if granted.session_id is None:
        return True
    debited = service.store.debit(
        granted.session_id, granted.amount_base, granted.resource, service.clock.now_ms()
    )
    if debited:
        session = service.store.session(granted.session_id)
        if session is not None:
            service.record(
                events.SessionDebited(
                    session_id=granted.session_id,
                    amount_base=granted.amount_base,
                    released_base=session.released,
                )
            )
    return debited
