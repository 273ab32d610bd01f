"""Resolves settlements of unknown outcome by asking the chain.

The token's state shows only that a nonce is used up; its events show whether it was used or
cancelled, and the Transfer event shows whether this merchant was paid this amount. Clauses:
5/nonce-once, 3/pending-resolved.
"""

from x402sim import events
from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.refusals import Finding, Refusal, SettlementRefused
from x402sim.service.grant import grant
from x402sim.service.state import Service
from x402sim.service.store.payments import ClaimedAuthorization, Stored
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.rpc import NonceState, NonceUse

BLOCK_TIME_S = 60
"""The greatest age of a chain's newest block."""


async def look_up(service: Service, stored: Stored) -> Finding:
    """Look up a pending payment on the chain; grant it if it was paid.

    It can never be paid if the nonce is unused in a block after validBefore, was cancelled, or
    paid for something else.
    """
    claimed = stored.authorization
    if claimed is None:
        return "unknown"
    try:
        state = await service.rpc.nonce_state(claimed.payer, claimed.nonce)
    except Unavailable:
        return "unknown"
    if not state.is_used:
        return "not settled" if _is_too_late(claimed, state) else "unused"
    if state.use is None:
        return "unknown"
    behind_s = max(0, service.clock.now_s() - state.head_s) + BLOCK_TIME_S
    if not _paid(state.use, stored, claimed.payer, behind_s):
        return "not settled"
    return "settled" if grant(service, stored, state.use.tx_hash) else "not settled"


async def is_paid_anyway(
    service: Service, stored: Stored, refused: SettlementRefused, over_if: frozenset[Finding]
) -> bool:
    """Look up a payment on the chain, after the facilitator refused it or did not answer.

    Anyone may submit a signed authorization, so even a refusal can mean "paid". False
    if it is over; raises `SettlementRefused` as long as it may still be paid.
    """
    finding = await look_up(service, stored)
    if finding == "settled":
        return True
    if finding in over_if:
        return False
    refusal = refused.refusal
    raise SettlementRefused(
        refusal if refusal.row.final is None else Refusal.PENDING,
        f"{refused.reason}; it may still be paid: send the same payment header again, or ask "
        "GET /api/payments/{paymentId}; do not sign another one",
        final=False,
    )


async def can_never_be_mined(service: Service, stored: Stored) -> bool:
    """Tell whether a payment's authorization is unused and too late; raises `Unavailable`."""
    claimed = stored.authorization
    if claimed is None:
        return False
    state = await service.rpc.nonce_state(claimed.payer, claimed.nonce)
    return not state.is_used and _is_too_late(claimed, state)


def _is_too_late(claimed: ClaimedAuthorization, state: NonceState) -> bool:
    return state.head_s >= claimed.valid_before_s


async def reconcile(service: Service) -> int:
    """Resolve the pending payments that can be resolved (3/pending-resolved); return how many."""
    resolved = 0
    for pending in service.store.payments.pending():
        payment_id = pending.record.payment_id
        async with service.settling.hold(payment_id):
            stored = service.store.payments.get(payment_id)
            if stored is None or stored.record.status != "pending":
                continue
            finding = await look_up(service, stored)
            if finding == "not settled":
                service.store.payments.fail(payment_id)
                service.record(events.PaymentFailed(payment_id=payment_id))
            resolved += finding in ("settled", "not settled")
    return resolved


def _paid(use: NonceUse, stored: Stored, payer: Address, behind_s: int) -> bool:
    """Tell whether a nonce's use paid for this payment, and not for something before it.

    A transfer mined before the payment was claimed here was for something else; the chain's
    clock may be so many seconds behind ours.
    """
    record = stored.record
    wanted = (payer, parse_address(record.to_address), int(record.amount))
    is_ours = use.mined_s >= record.timestamp // 1000 - behind_s
    return not use.canceled and is_ours and wanted in use.transfers
