"""The proofs that a request shows: whether its payment id or session id is served (section 5).

The policy `serve` decides. By default, a proof is served if its payment is settled.
Clauses: 5/cache-first, 5/stored-records, 5/resource-binding, 5/session-condition.
"""

from functools import partial

from x402sim.protocol.refusals import ChainFinding
from x402sim.service.policies import Proof
from x402sim.service.reconcile import ask_chain
from x402sim.service.state import Service


async def is_entitled(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a payment id is served, for exactly this resource (5/resource-binding).

    The entitlements in memory are looked at first (5/cache-first), then the records
    (5/stored-records).
    """
    is_cached = service.entitlements.grants(payment_id, resource, service.clock.now_ms())
    proof = Proof(
        is_settled=is_cached or service.store.payments.grants(payment_id, resource),
        is_claimed=partial(_is_claimed, service, payment_id, resource),
        confirmations=partial(_confirmations, service, payment_id),
        draw=partial(service.draw, payment_id),
    )
    return await service.env.settings.policy.serve.serves(proof)


async def served_id(service: Service, payment_id: str, resource: str) -> str | None:
    """Return the payment id that gives access: the shown id, or the id of the payment in one step
    for the 402 with the shown id. None if neither gives access.
    """
    if await is_entitled(service, payment_id, resource):
        return payment_id
    answered = service.store.payments.answer_to(payment_id)
    return answered if answered and await is_entitled(service, answered, resource) else None


async def session_has_budget(service: Service, session_id: str, amount_base: int) -> bool:
    """Tell whether a session is served a request of this amount (5/session-condition)."""
    sessions = service.store.sessions
    session = sessions.get(session_id)
    proof = Proof(
        is_settled=sessions.has_budget(session_id, amount_base, service.clock.now_ms()),
        is_claimed=lambda: False,  # a session opens only when its deposit is settled
        confirmations=partial(_confirmations, service, session.payment_id if session else ""),
        draw=partial(service.draw, session_id),
    )
    return await service.env.settings.policy.serve.serves(proof)


def _is_claimed(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a header that can pay was presented and may still be settled."""
    return service.unreserved_in_flight.get(payment_id) == resource or any(
        attempt.is_authorized and attempt.is_pending and attempt.resource_url == resource
        for attempt in service.store.payments.attempts(payment_id)
    )


async def _confirmations(service: Service, payment_id: str) -> int | None:
    depth = None
    for attempt in service.store.payments.attempts(payment_id):
        answer = await ask_chain(service, attempt)
        if answer.finding is ChainFinding.PAID and answer.use is not None:
            depth = answer.height - answer.use.block_number
    return depth
