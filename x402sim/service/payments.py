"""POST /api/pay: the seven steps of 4.1, in their order.

Requests for one payment id are serialized, and the id is claimed in the database before the
facilitator may move money, so that neither a crash nor a lost answer can charge twice or lose a
payment.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from typing import assert_never

import msgspec

from x402sim import events
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.messages import PaymentRequirements, Receipt, SettlementRequest
from x402sim.protocol.refusals import (
    ALL_BUT_PAID,
    ONLY_NEVER,
    Finding,
    Refusal,
    SettlementRefused,
)
from x402sim.protocol.rules import Presented, Rules, first_broken
from x402sim.service.grant import grant
from x402sim.service.issue import Terms
from x402sim.service.reconcile import refuse_unless_paid, resolve
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Claim, Stored
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.dialect import Moved, NotMoved, Outcome


class Attempt(msgspec.Struct, frozen=True):
    """One request to settle, with everything in it decoded."""

    payment_id: str
    payment: PresentedPayment
    requirements: PaymentRequirements
    terms: Terms
    issued: PaymentRequirements


async def pay(service: Service, request: SettlementRequest) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`."""
    attempt = validate(service, request)  # step 1
    async with service.settling.hold(attempt.payment_id):
        earlier = await earlier_attempt(service, attempt)
        if earlier is None:  # there was none, or it can never be paid
            _require(service, service.freshness_rules, attempt)
            await verify(service, attempt)  # steps 2 and 3
            claimed = claim(service, attempt)
            await settle(service, attempt, claimed, resumed=False)  # steps 4, 5 and 6
        elif earlier.record.status == "pending":  # this header was sent before, and may be again
            await settle(service, attempt, earlier, resumed=True)
        # else it is settled: the chain says so only now, and `earlier_attempt` stored it
        return receipt(service, attempt.payment_id)  # step 7


def validate(service: Service, request: SettlementRequest) -> Attempt:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Decodes the payment header, once. Raises `SettlementRefused`.
    """
    terms = service.issuer.read(request.payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, "this payment id was not issued here")
    attempt = Attempt(
        payment_id=request.payment_id,
        payment=present(request.payment_header),
        requirements=request.payment_requirements,
        terms=terms,
        issued=service.issuer.requirements(terms),
    )
    _require(service, service.settlement_rules, attempt)
    return attempt


async def verify(service: Service, attempt: Attempt) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `SettlementRefused` "Invalid signature" if it does not (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(attempt.payment, attempt.requirements)
    except Unavailable as error:
        reason = f"nothing was charged: {error}"
        raise SettlementRefused(Refusal.UNREACHABLE, reason, final=True) from error
    if not verdict.is_valid:
        raise SettlementRefused(Refusal.INVALID_SIGNATURE, verdict.reason)


def claim(service: Service, attempt: Attempt) -> Stored:
    """Claim the payment id and the authorization, before money can move.

    An authorization that is already claimed is refused (7/nonce-already-used).
    """
    stored = service.store.payments.insert_pending(
        Claim(
            payment_id=attempt.payment_id,
            payment=attempt.payment,
            issued=attempt.issued,
            timestamp_ms=service.clock.now_ms(),
            duration=attempt.terms.duration,
        )
    )
    if stored is None:
        raise SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")
    return stored


async def settle(service: Service, attempt: Attempt, stored: Stored, *, resumed: bool) -> None:
    """Steps 4 to 6: have the facilitator settle, store the record, cache the entitlement.

    Clause 4.1/settle-on-chain. Raises `SettlementRefused`. The facilitator may have received
    a `resumed` payment before.
    """
    outcome: Outcome | Unavailable | OutcomeUnknown
    try:
        outcome = await service.facilitator.settle(attempt.payment, attempt.requirements)
    except (Unavailable, OutcomeUnknown) as error:
        outcome = error
    if not isinstance(outcome, Moved):
        await _not_settled(service, attempt, outcome, resumed=resumed)
    elif not grant(service, stored, outcome.tx_hash):  # steps 5 and 6
        reason = f"transaction {outcome.tx_hash} already paid for another payment id"
        refused = SettlementRefused(Refusal.FAILED, reason, final=True)
        await refuse_unless_paid(service, stored, refused, ONLY_NEVER)


def receipt(service: Service, payment_id: str) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    record = _stored(service, payment_id).record
    return Receipt(
        success=True,
        payment_id=payment_id,
        tx_hash=str(record.tx_hash),
        timestamp=record.timestamp,
    )


def _stored(service: Service, payment_id: str) -> Stored:
    """Return a payment that was claimed.

    Raises `SettlementRefused` if the control API restored an older database meanwhile.
    """
    stored = service.store.payments.get(payment_id)
    if stored is None:
        raise SettlementRefused(Refusal.FAILED, "the record of this payment is gone", final=False)
    return stored


def _require(service: Service, rules: Rules[Presented, Refusal], attempt: Attempt) -> None:
    """Check a rule table; raises `SettlementRefused` with the first row that fails."""
    case = Presented(
        requirements=attempt.requirements,
        issued=attempt.issued,
        expires_s=attempt.terms.expires_s,
        now_s=service.clock.now_s(),
    )
    broken = first_broken(rules, case)
    if broken:
        raise SettlementRefused(broken.refusal, broken.reason(case))


# --- what becomes of a payment that the facilitator did not settle -------------------


async def earlier_attempt(service: Service, attempt: Attempt) -> Stored | None:
    """Return the record of an earlier attempt with this payment id.

    - None: there was none, or it can never be paid;
    - a pending record: the same header, which may be sent to the facilitator again;
    - a settled record: the same header, pending until now; the chain says that it was paid.

    Raises `SettlementRefused` if the id is used (7/payment-already-settled), or if another
    header's outcome is still unknown.
    """
    payments = service.store.payments
    stored = payments.get(attempt.payment_id)
    if stored is None or (stored.record.status == "failed" and not stored.record.tx_hash):
        return None
    if stored.record.status != "pending":
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    is_same = stored.header == attempt.payment.text
    finding = await resolve(service, stored)
    if finding is Finding.PAID:
        if is_same:
            return payments.get(attempt.payment_id)
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    if finding is Finding.NEVER:
        payments.drop_claim(attempt.payment_id)
        return None
    if is_same:
        return stored
    raise SettlementRefused(Refusal.PENDING, "an earlier payment header may still settle")


async def _not_settled(
    service: Service,
    attempt: Attempt,
    outcome: NotMoved | Unavailable | OutcomeUnknown,
    *,
    resumed: bool,
) -> None:
    """Raise `SettlementRefused`, unless the chain shows that the payment was made anyway.

    The claim stays if money may have moved or may still move, and is dropped if it never will.
    """
    match outcome:
        case NotMoved(refusal=refusal, reason=reason):
            if refusal is Refusal.EXPIRED:
                reason = _why_expired(service, attempt.payment)
            over_if = refusal.row.over_if
        case OutcomeUnknown():
            service.record(events.SettlementAnswerLost(payment_id=attempt.payment_id))
            refusal, reason, over_if = Refusal.UNREACHABLE, str(outcome), ONLY_NEVER
        case Unavailable():
            reason = str(outcome) if resumed else f"nothing was charged: {outcome}"
            refusal, over_if = Refusal.UNREACHABLE, ALL_BUT_PAID
        case _:
            assert_never(outcome)
    refused = SettlementRefused(refusal, reason, final=True)
    stored = _stored(service, attempt.payment_id)
    await refuse_unless_paid(service, stored, refused, ONLY_NEVER if resumed else over_if)


def _why_expired(service: Service, payment: PresentedPayment) -> str:
    """Return the times that do not fit, so that a payer sees whose clock is wrong."""
    auth, now_s = payment.authorization, service.clock.now_s()
    until_s = auth.valid_before if auth else None
    return f"validBefore is {until_s}, the server's clock says {now_s}"
