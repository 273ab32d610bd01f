"""Money has moved: store it, open the session it pays for, and let the payer in.

The one place where access is granted, whoever found out about the payment.
Clauses: 4.1/store-settled, 4.1/cache, 2.6/id-prefix, 3/deposit-makes-session.
"""

import hmac

from x402sim import events
from x402sim.service.entitlements import Entitlement
from x402sim.service.issue import SESSIONS
from x402sim.service.state import Service


def grant(service: Service, payment_id: str, tx_hash: str, payer: str) -> bool:
    """Turn a pending payment into a settled one and grant its entitlement (steps 5 and 6).

    A deposit also becomes a session, in the same database transaction
    (3/deposit-makes-session). False, and
    nothing is granted, if the payment is not pending or the transaction already paid
    for another one.
    """
    stored = service.store.payment(payment_id)
    if stored is None:
        return False
    now_ms = service.clock.now_ms()
    session = None
    if stored.record.resource_url == SESSIONS:
        unit_ms = service.settings.decisions.duration_unit_s * 1000
        expires_ms = now_ms + stored.duration * unit_ms
        session = session_id(service, payment_id), now_ms, expires_ms
    if not service.store.settle(payment_id, tx_hash, payer, session):
        return False
    service.entitlements.add(Entitlement(payment_id, stored.record.resource_url, payer, now_ms))
    service.record(
        events.PaymentSettled(
            payment_id=payment_id,
            tx_hash=tx_hash,
            payer=payer,
            amount_base=int(stored.record.amount),
            resource=stored.record.resource_url,
        )
    )
    if session is not None:
        service.record(
            events.SessionOpened(
                session_id=session[0],
                payment_id=payment_id,
                payer=payer,
                deposited_base=int(stored.record.amount),
                expires_ms=session[2],
            )
        )
    return True


def session_id(service: Service, payment_id: str) -> str:
    """Return the id of the session a deposit makes (2.6/id-prefix).

    Only this server can compute it, and it is the same however often it is asked.
    """
    message = b"session " + payment_id.encode()
    return "session_" + hmac.digest(service.settings.id_secret, message, "sha256").hex()[:40]
