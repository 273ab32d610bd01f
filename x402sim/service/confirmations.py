"""Counts the confirmations of a payment, for a policy `serve` that wants to know them.

Such a policy says so by `counts_confirmations`; for any other, the chain is not asked.
"""

from collections.abc import Mapping

from x402sim.protocol.refusals import Finding
from x402sim.service.reconcile import ask_chain
from x402sim.service.state import Service


def are_counted(service: Service) -> bool:
    """Tell whether the policy `serve` counts confirmations."""
    return bool(getattr(service.settings.policy.serve, "counts_confirmations", False))


async def count_shown(service: Service, headers: Mapping[str, str]) -> None:
    """Count those of the payment, and of the session's deposit, that a request shows."""
    shown, session_id = headers.get("x-payment-id", ""), headers.get("x-session-id", "")
    session = service.store.sessions.get(session_id)
    deposit_id = session.payment_id if session else None
    answered = service.store.payments.answer_to(shown)
    await count(service, *(each for each in {shown, answered, deposit_id} if each))


async def count(service: Service, *payment_ids: str) -> None:
    """Ask the chain how many blocks are on top of these payments' transfers.

    It is remembered until the next question: the answer must follow at once. A payment whose
    transfer is in no block, or of which the node says nothing, has no number.
    """
    counted: dict[str, int] = {}
    for payment_id in sorted(payment_ids):
        for stored in service.store.payments.attempts(payment_id):
            answer = await ask_chain(service, stored)
            if answer.finding is Finding.PAID and answer.use is not None:
                counted[payment_id] = answer.height - answer.use.block_number
    service.confirmations.clear()
    service.confirmations.update(counted)
