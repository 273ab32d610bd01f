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
from x402sim.service.store.payment_records import ClaimedAuthorization, Stored
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.rpc import NonceState, NonceUse

BLOCK_TIME_S = 60
"""The greatest age of a chain's newest block."""


async def resolve(service: Service, stored: Stored) -> Finding:
    """Ask the chain what became of a pending payment; if it was paid, store it and grant it.

    It can never be paid if the nonce is unused in a block whose time is past
    validBefore, was cancelled, or paid for something else.
    """
    claimed = stored.authorization
    if claimed is None:
        return Finding.UNKNOWN
    try:
        state = await service.rpc.nonce_state(claimed.payer, claimed.nonce)
    except Unavailable:
        return Finding.UNKNOWN
    if not state.is_used:
        return Finding.NEVER if _is_too_late(claimed, state) else Finding.NOT_YET
    if state.use is None:
        return Finding.UNKNOWN
    behind_s = max(0, service.clock.now_s() - state.head_s) + BLOCK_TIME_S
    if not _paid(state.use, stored, claimed.payer, behind_s):
        return Finding.NEVER
    return Finding.PAID if grant(service, stored, state.use.tx_hash) else Finding.NEVER


async def refuse_unless_paid(
    service: Service, stored: Stored, refused: SettlementRefused, over_if: frozenset[Finding]
) -> None:
    """Ask the chain, after the facilitator did not settle or did not answer.

    Anyone may submit a signed authorization, so even a refused payment can be paid; then
    it is granted. Otherwise raises `SettlementRefused`: `refused`, and drops the claim, if
    the finding is in `over_if`; else one that says that it may still be paid.
    """
    finding = await resolve(service, stored)
    if finding is Finding.PAID:
        return
    if finding in over_if:
        service.store.payments.drop_claim(stored.record.payment_id)
        raise refused
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
            finding = await resolve(service, stored)
            if finding is Finding.NEVER:
                service.store.payments.fail(payment_id)
                service.record(events.PaymentFailed(payment_id=payment_id))
            resolved += finding in (Finding.PAID, Finding.NEVER)
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
