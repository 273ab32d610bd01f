"""POST /api/pay: the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The id and the authorization are claimed in the database
before the facilitator is asked anything, because from then on anybody may submit the authorization.
The claim stays until the chain proves that it can never be used: so neither a crash, a lost answer
nor a third party can charge twice or lose a payment.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from datetime import UTC, datetime
from typing import assert_never

from x402sim import events
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.messages import PaymentRequirements, Receipt, SettlementRequest
from x402sim.protocol.refusals import Finding, Refusal, SettlementRefused
from x402sim.protocol.rules import AUTHORIZES, Verification, first_broken
from x402sim.service.attempts import Attempt, claim, require
from x402sim.service.grant import grant
from x402sim.service.reconcile import follow_chain
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Stored
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.dialect import Moved, NotMoved

_LAST_DATE_S = 253_402_300_799
"""The end of the year 9999, the last date of ISO 8601."""


class NotSettled(Exception):
    """The facilitator did not settle. `may_move`: it was asked to, and may still do it."""

    def __init__(self, refusal: Refusal, reason: str | None, *, may_move: bool = False) -> None:
        super().__init__(refusal, reason)
        self.refusal = refusal
        self.reason = reason
        self.may_move = may_move


async def pay(service: Service, request: SettlementRequest) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`."""
    attempt = validate(service, request)  # step 1
    async with service.settling.hold(attempt.payment_id):
        stored = await claim(service, attempt)
        if stored.record.status == "pending":
            try:
                await verify(service, attempt, stored)  # steps 2 and 3
                tx_hash = await settle(service, attempt)  # step 4
                grant(service, stored, tx_hash)  # steps 5 and 6
            except NotSettled as cause:
                await refuse_unless_paid(service, attempt, stored, cause)
        # else it is settled: the chain says so only now, and `claim` granted it
        return receipt(service, attempt.payment_id)  # step 7


def validate(service: Service, request: SettlementRequest) -> Attempt:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Decodes the payment header, once. Raises `SettlementRefused`.
    """
    terms = service.issuer.read(request.payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, "this payment id was not issued here")
    payment, issued = present(request.payment_header), service.issuer.requirements(terms)
    attempt = Attempt(
        payment_id=request.payment_id,
        payment=payment,
        requirements=request.payment_requirements,
        terms=terms,
        issued=issued,
        can_pay=_can_pay(service, payment, issued),
    )
    require(service, service.settlement_rules, attempt)
    return attempt


async def verify(service: Service, attempt: Attempt, stored: Stored) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` "Invalid signature" if it does not (7/invalid-signature). Nothing is sent to
    it before the chain's node has said that the authorization is unused.
    """
    if attempt.can_pay and not stored.seen_unused:
        reason = "the chain's node did not answer, so nothing was sent to the facilitator"
        raise NotSettled(Refusal.UNREACHABLE, reason)
    try:
        verdict = await service.facilitator.verify(attempt.payment, attempt.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if not verdict.is_valid:
        raise NotSettled(Refusal.INVALID_SIGNATURE, verdict.reason)


async def settle(service: Service, attempt: Attempt) -> str:
    """Step 4: have the facilitator settle; return the transaction hash (4.1/settle-on-chain).

    Raises `NotSettled`.
    """
    try:
        outcome = await service.facilitator.settle(attempt.payment, attempt.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    except OutcomeUnknown as error:
        service.record(events.SettlementAnswerLost(payment_id=attempt.payment_id))
        raise NotSettled(Refusal.UNREACHABLE, str(error), may_move=True) from error
    match outcome:
        case Moved(tx_hash=tx_hash):
            if service.store.payments.paid_by(tx_hash) is not None:
                reason = f"transaction {tx_hash} already paid for another payment id"
                raise NotSettled(Refusal.FAILED, reason, may_move=True)
            return tx_hash
        case NotMoved(refusal=refusal, reason=reason):
            if refusal is Refusal.EXPIRED:
                reason = _why_expired(service, attempt.payment)
            raise NotSettled(refusal, reason, may_move=refusal.row.is_sent)
        case _:
            assert_never(outcome)


async def refuse_unless_paid(
    service: Service, attempt: Attempt, stored: Stored, cause: NotSettled
) -> None:
    """Ask the chain, after the facilitator did not settle or did not answer.

    Anyone may submit a signed authorization, so even a refused payment can be paid; then
    it is granted. Otherwise raises `SettlementRefused`, which is final only if the header can
    never pay.
    """
    payments, may_move = service.store.payments, stored.may_move or cause.may_move
    if not attempt.can_pay and not may_move:
        payments.drop_claim(stored.attempt)
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    finding = await follow_chain(service, _attempt(service, stored))
    if finding is Finding.PAID:
        return
    if finding is Finding.NEVER:
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    payments.set_may_move(stored.attempt, may_move)
    is_pending = may_move and cause.refusal.row.final is not None
    raise SettlementRefused(
        Refusal.PENDING if is_pending else cause.refusal,
        f"{cause.reason}; {_what_now(attempt, cause.refusal, finding, may_move=may_move)}",
        final=False,
    )


def receipt(service: Service, payment_id: str) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    record = _stored(service, payment_id).record
    return Receipt(
        success=True,
        payment_id=payment_id,
        tx_hash=str(record.tx_hash),
        timestamp=record.timestamp,
    )


def _can_pay(service: Service, payment: PresentedPayment, issued: PaymentRequirements) -> bool:
    signed, network = payment.signed, service.setup.network
    return signed is not None and not first_broken(
        AUTHORIZES, Verification(signed, issued, network)
    )


# --- records, rules and reasons ------------------------------------------------------


def _stored(service: Service, payment_id: str) -> Stored:
    """Return a payment that was claimed.

    Raises `SettlementRefused` if the control API restored an older database meanwhile.
    """
    stored = service.store.payments.get(payment_id)
    if stored is None:
        raise SettlementRefused(Refusal.FAILED, "the record of this payment is gone", final=False)
    return stored


def _attempt(service: Service, stored: Stored) -> Stored:
    """Return an attempt as it is now; raises `SettlementRefused` as `_stored` does."""
    now = service.store.payments.attempt(stored.attempt)
    if now is None or now.record.payment_id != stored.record.payment_id:
        raise SettlementRefused(Refusal.FAILED, "the record of this payment is gone", final=False)
    return now


def _what_now(attempt: Attempt, refusal: Refusal, finding: Finding, *, may_move: bool) -> str:
    """Return what a payer should know and do, while the header may still pay."""
    again = "send the same payment header again, or ask GET /api/payments/{paymentId}"
    auth = attempt.payment.authorization
    if auth is None or may_move or finding is not Finding.NOT_YET:
        return f"it may still be paid: {again}; do not sign another one"
    if refusal is Refusal.EXPIRED:
        return f"not charged by this service, but no block has passed that time yet: {again}"
    until_s = min(auth.valid_before, _LAST_DATE_S)
    until = datetime.fromtimestamp(until_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"not charged by this service; this header stays valid until {until}: {again}"


def _why_expired(service: Service, payment: PresentedPayment) -> str:
    """Return the times that do not fit, so that a payer sees whose clock is wrong."""
    auth, now_s = payment.authorization, service.clock.now_s()
    until_s = auth.valid_before if auth else None
    return f"validBefore is {until_s}, the server's clock says {now_s}"
