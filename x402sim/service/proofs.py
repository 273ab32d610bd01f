"""The proofs that a request shows: whether its payment id or session id is served (section 5).

The policy `serve` decides it; by default, what is settled is served.
Clauses: 5/cache-first, 5/stored-records, 5/resource-binding, 5/session-condition.
"""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from x402sim.protocol.refusals import ChainFinding
from x402sim.service.policies import NeedsConfirmations, Proof
from x402sim.service.reconcile import ask_chain
from x402sim.service.state import Service


async def is_entitled(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a payment id is served, for exactly this resource (5/resource-binding).

    It is looked up in the cache (5/cache-first), then in the records (5/stored-records).
    """
    proof = partial(_of_payment, service, payment_id, resource)
    return await _is_served(service, proof, payment_id)


async def served_id(service: Service, payment_id: str, resource: str) -> str | None:
    """Return the payment id by which a request is served: its own, or that of the payment in one
    step which answers the 402 of this id. None if neither is served.
    """
    if await is_entitled(service, payment_id, resource):
        return payment_id
    answered = service.store.payments.answer_to(payment_id)
    return answered if answered and await is_entitled(service, answered, resource) else None


async def session_has_budget(service: Service, session_id: str, amount_base: int) -> bool:
    """Tell whether a session is served a request of this amount (5/session-condition)."""
    sessions = service.store.sessions
    session = sessions.get(session_id)

    def proof() -> Proof:
        return Proof(
            is_settled=sessions.has_budget(session_id, amount_base, service.clock.now_ms()),
            is_claimed=lambda: False,  # it opens only when its deposit is settled
            draw=partial(service.draw, session_id),
        )

    return await _is_served(service, proof, session.payment_id if session else "")


def awaits_confirmations(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a payment is settled, and the policy serves it by its confirmations."""
    try:
        service.settings.policy.serve.serves(_of_payment(service, payment_id, resource))
    except NeedsConfirmations:
        return True
    return False


def _of_payment(service: Service, payment_id: str, resource: str) -> Proof:
    now_ms = service.clock.now_ms()
    is_cached = service.entitlements.grants(payment_id, resource, now_ms)
    return Proof(
        is_settled=is_cached or service.store.payments.grants(payment_id, resource),
        is_claimed=partial(_is_claimed, service, payment_id, resource),
        draw=partial(service.draw, payment_id),
    )


async def _is_served(service: Service, proof: Callable[[], Proof], payment_id: str) -> bool:
    """Return what the policy decides; query the chain only if it reads the confirmations."""
    serve = service.settings.policy.serve
    try:
        return serve.serves(proof())
    except NeedsConfirmations:
        depth = await _depth(service, payment_id)
        return serve.serves(replace(proof(), depth=depth))  # what is settled may have changed


def _is_claimed(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a header that can pay was presented, and may still be settled."""
    return service.unreserved_in_flight.get(payment_id) == resource or any(
        attempt.is_authorized and attempt.status == "pending" and attempt.resource_url == resource
        for attempt in service.store.payments.attempts(payment_id)
    )


async def _depth(service: Service, payment_id: str) -> int | None:
    """Ask the chain how many blocks are on top of a payment's transfer.

    None if its transfer is in no block, or if the node says nothing of it.
    """
    depth = None
    for attempt in service.store.payments.attempts(payment_id):
        answer = await ask_chain(service, attempt)
        if answer.finding is ChainFinding.PAID and answer.use is not None:
            depth = answer.height - answer.use.block_number
    return depth
