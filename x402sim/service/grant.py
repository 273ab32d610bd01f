"""Grants access after money has moved, and takes it back if the chain undoes the transfer.

A grant is a settled record, the session of a deposit, and an entitlement. Settlement,
reconciliation and the indexer use it.
Clauses: 4.1/store-settled, 4.1/cache, 2.6/id-prefix, 3/deposit-makes-session.
"""

import hmac
from sys import intern

from x402sim import events
from x402sim.service.entitlements import Entitlement
from x402sim.service.issue import SESSIONS
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Stored
from x402sim.service.store.session_budgets import NewSession


def grant(service: Service, stored: Stored, tx_hash: str) -> bool:
    """Turn a payment into a settled one and grant its entitlement (steps 5 and 6).

    A deposit also opens a session, in the same database transaction
    (3/deposit-makes-session). False if another process on this database has settled it, or if
    the control API restored an older one meanwhile, which has no such payment.
    """
    now_ms, session = service.clock.now_ms(), None
    payment_id, payer, amount = stored.payment_id, stored.from_address, int(stored.amount)
    resource = stored.resource_url
    if resource == SESSIONS:
        unit_ms = service.settings.decisions.duration_unit_s * 1000
        expires_ms = now_ms + stored.duration * unit_ms
        session = NewSession(session_id(service, payment_id), now_ms, expires_ms)
    is_known = session is not None and service.store.sessions.paid_by(payment_id) is not None
    if not service.store.payments.mark_settled(stored.attempt, tx_hash, session):
        return False
    service.entitlements.add(Entitlement(payment_id, intern(resource), intern(payer), now_ms))
    settled = events.PaymentSettled(
        payment_id=payment_id, tx_hash=tx_hash, payer=payer, amount_base=amount, resource=resource
    )
    service.record(settled)
    if session is not None and not is_known:
        service.record(
            events.SessionOpened(
                session_id=session.session_id,
                payment_id=payment_id,
                payer=payer,
                deposited_base=amount,
                expires_ms=session.expires_ms,
            )
        )
    return True


def suspend(service: Service, stored: Stored) -> None:
    """End access while the chain has undone a transfer that it may still make."""
    payment_id = stored.payment_id
    service.entitlements.remove(payment_id)
    if service.store.payments.undo(stored.attempt):
        service.record(events.PaymentUndone(payment_id=payment_id))


def revoke(service: Service, stored: Stored, height: int) -> None:
    """Note that an attempt can never be paid any more, and end the access that it gave.

    A chain of this height says so.
    """
    payment_id = stored.payment_id
    is_news = service.store.payments.fail(stored.attempt, height)
    if not service.store.payments.is_paid_otherwise(stored):
        service.entitlements.remove(payment_id)
        if is_news:
            service.record(events.PaymentFailed(payment_id=payment_id))


def session_id(service: Service, payment_id: str) -> str:
    """Return the id of the session that a deposit opens (2.6/id-prefix).

    Only this server can compute it, and it is the same every time.
    """
    message = b"session " + payment_id.encode()
    return "session_" + hmac.digest(service.setup.id_secret, message, "sha256").hex()[:40]
