"""A settlement whose answer was lost: the chain knows.

The token's state tells only that a nonce is used up; its events tell whether it was
used or cancelled, and the Transfer tells whether this merchant was paid this amount.
Clauses: 5/nonce-once, 3/pending-resolved.
"""

from x402sim.protocol.crypto import Address, parse_address
from x402sim.protocol.refusals import Finding
from x402sim.service.grant import grant
from x402sim.service.state import Service
from x402sim.service.store import Stored
from x402sim.service.upstream import NonceState, NonceUse, Unavailable

BLOCK_TIME_S = 60
"""How old a chain's newest block may be."""


async def look_up(service: Service, stored: Stored) -> Finding:
    """Ask the chain what became of a pending payment; grant it if it was paid.

    It will never be paid if the nonce is unused in a block whose time is past
    validBefore, was cancelled, or paid for something else.
    """
    if stored.authorization_key is None:
        return "unknown"
    payer, nonce = _from_key(stored.authorization_key)
    try:
        state = await service.upstream.nonce_state(payer, nonce)
    except Unavailable:
        return "unknown"
    if not state.is_used:
        return "not settled" if _is_too_late(stored, state) else "unused"
    if state.use is None:
        return "unknown"
    behind_s = max(0, service.clock.now_s() - state.head_s) + BLOCK_TIME_S
    if not _paid(state.use, stored, payer, behind_s):
        return "not settled"
    record = stored.record
    granted = grant(service, record.payment_id, state.use.tx_hash, record.from_address)
    return "settled" if granted else "not settled"


async def can_never_be_mined(service: Service, stored: Stored) -> bool:
    """Tell whether a payment's authorization is unused and too late; raises `Unavailable`."""
    if stored.authorization_key is None:
        return False
    state = await service.upstream.nonce_state(*_from_key(stored.authorization_key))
    return not state.is_used and _is_too_late(stored, state)


def _is_too_late(stored: Stored, state: NonceState) -> bool:
    return stored.valid_before_s is not None and state.head_s >= stored.valid_before_s


async def reconcile(service: Service) -> int:
    """Resolve the pending payments that can be resolved (3/pending-resolved); return how many."""
    resolved = 0
    for pending in service.store.pending():
        payment_id = pending.record.payment_id
        async with service.settling.hold(payment_id):
            stored = service.store.payment(payment_id)
            if stored is None or stored.record.status != "pending":
                continue
            finding = await look_up(service, stored)
            if finding == "not settled":
                service.store.fail(payment_id)
                service.note("payment failed", payment_id=payment_id)
            resolved += finding in ("settled", "not settled")
    return resolved


def authorization_key(payer: Address, nonce: bytes) -> str:
    """Return the name under which an authorization is claimed: whose, and which nonce."""
    return payer.hex() + nonce.hex()


def _from_key(key: str) -> tuple[Address, bytes]:
    raw = bytes.fromhex(key)
    return Address(raw[:20]), raw[20:]


def _paid(use: NonceUse, stored: Stored, payer: Address, behind_s: int) -> bool:
    """Tell whether a nonce's use paid for this payment, and not for something before it.

    A transfer mined before the payment was claimed here was for something else; the chain's
    clock may be so many seconds behind ours.
    """
    record = stored.record
    wanted = (payer, parse_address(record.to_address), int(record.amount))
    is_ours = use.mined_s >= record.timestamp // 1000 - behind_s
    return not use.canceled and is_ours and wanted in use.transfers
