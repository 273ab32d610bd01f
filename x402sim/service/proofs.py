"""The proofs that a request shows: whether its payment id or session id is served (section 5).

The policy `serve` decides. By default, a proof is served if its payment is settled.
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

    The entitlements in memory are looked at first (5/cache-first), then the records
    (5/stored-records).
    """
    proof = partial(_of_payment, service, payment_id, resource)
    return await _is_served(service, proof, payment_id)


async def served_id(service: Service, payment_id: str, resource: str) -> str | None:
    """Return the payment id that gives access: the one shown, or the id of the payment in one step
    that answers the 402 of this id. None if neither gives access.
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
    """Tell whether the policy counts the confirmations of a payment that is settled."""
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
    """Return what the policy decides; query the chain only if the policy reads confirmations."""
    serve = service.settings.policy.serve
    try:
        return serve.serves(proof())
    except NeedsConfirmations:
        depth = await _depth(service, payment_id)
        return serve.serves(replace(proof(), depth=depth))  # anew: it may be settled by now


def _is_claimed(service: Service, payment_id: str, resource: str) -> bool:
    """Tell whether a header that can pay was presented and may still be settled."""
    return service.unreserved_in_flight.get(payment_id) == resource or any(
        attempt.is_authorized and attempt.status == "pending" and attempt.resource_url == resource
        for attempt in service.store.payments.attempts(payment_id)
    )


async def _depth(service: Service, payment_id: str) -> int | None:
    """Ask the chain how many blocks are on top of a payment's transfer.

    None if the transfer is in no block, or if the node does not answer.
    """
    depth = None
    for attempt in service.store.payments.attempts(payment_id):
        answer = await ask_chain(service, attempt)
        if answer.finding is ChainFinding.PAID and answer.use is not None:
            depth = answer.height - answer.use.block_number
    return depth
