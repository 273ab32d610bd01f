"""POST /api/pay: the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The id and the authorization are claimed in the database
before the facilitator is asked anything, because from then on anybody may submit the authorization.
The claim stays until the chain proves that it can never be used: so neither a crash, a lost answer
nor a third party can charge twice or lose a payment.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from datetime import UTC, datetime
from typing import assert_never

import msgspec

from x402sim import events
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.messages import PaymentRequirements, Receipt, SettlementRequest
from x402sim.protocol.refusals import Finding, Refusal, SettlementRefused
from x402sim.protocol.rules import AUTHORIZES, Presented, Rules, Verification, first_broken
from x402sim.service.grant import grant
from x402sim.service.issue import Terms
from x402sim.service.reconcile import follow_chain
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Claim, Stored
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.dialect import Moved, NotMoved

MAX_ATTEMPTS = 8
"""The most payment headers that can be presented for one payment id."""
_LAST_DATE_S = 253_402_300_799
"""The end of the year 9999, the last date of ISO 8601."""


class Attempt(msgspec.Struct, frozen=True):
    """One request to settle, with everything in it decoded.

    `can_pay`: the authorization in the header makes the required transfer, whoever submits it.
    """

    payment_id: str
    payment: PresentedPayment
    requirements: PaymentRequirements
    terms: Terms
    issued: PaymentRequirements
    can_pay: bool


class NotSettled(Exception):
    """The facilitator did not settle. `is_unknown`: it was asked to, and may have done it."""

    def __init__(self, refusal: Refusal, reason: str | None, *, is_unknown: bool = False) -> None:
        super().__init__(refusal, reason)
        self.refusal = refusal
        self.reason = reason
        self.is_unknown = is_unknown


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
    _require(service, service.settlement_rules, attempt)
    return attempt


async def claim(service: Service, attempt: Attempt) -> Stored:
    """Claim the payment id for the authorization in the header, before anybody is asked.

    Returns the pending record, or the settled one if the same header was sent before and the
    chain says only now that it was paid. Raises `SettlementRefused` if the id is used
    (7/payment-already-settled), if another header may still pay for it, or if the authorization
    was used before, or pays for another payment id (7/nonce-already-used).
    """
    earlier = await _earlier_attempt(service, attempt)
    if earlier is not None:
        return earlier
    _require(service, service.freshness_rules, attempt)
    new = Claim(
        payment_id=attempt.payment_id,
        payment=attempt.payment,
        issued=attempt.issued,
        timestamp_ms=service.clock.now_ms(),
        duration=attempt.terms.duration,
        can_pay=attempt.can_pay,
        seen_unused=await _is_unused(service, attempt),
    )
    stored = service.store.payments.insert_pending(new)
    if stored is None:
        raise SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")
    return stored


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
        raise NotSettled(Refusal.UNREACHABLE, str(error), is_unknown=True) from error
    match outcome:
        case Moved(tx_hash=tx_hash):
            if service.store.payments.paid_by(tx_hash) is not None:
                reason = f"transaction {tx_hash} already paid for another payment id"
                raise NotSettled(Refusal.FAILED, reason, is_unknown=True)
            return tx_hash
        case NotMoved(refusal=refusal, reason=reason):
            if refusal is Refusal.EXPIRED:
                reason = _why_expired(service, attempt.payment)
            raise NotSettled(refusal, reason)
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
    payments, may_move = service.store.payments, stored.may_move or cause.is_unknown
    finding = await follow_chain(service, payments.attempt(stored.attempt) or stored)
    if finding is Finding.PAID:
        return
    if finding is Finding.NEVER:
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    if not attempt.can_pay and not may_move:
        payments.drop_claim(stored.attempt)
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    payments.set_may_move(stored.attempt, may_move)
    is_contradicted = cause.refusal is Refusal.NONCE_USED  # the chain does not show its use
    raise SettlementRefused(
        Refusal.PENDING if is_contradicted else cause.refusal,
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


# --- an earlier attempt with this payment id, and an earlier use of the authorization --


async def _earlier_attempt(service: Service, attempt: Attempt) -> Stored | None:
    """Return the record of the same authorization, pending or settled by now.

    None if it was not sent before, or can never be paid. Raises `SettlementRefused` if the id is
    used, or if another header may still be paid.
    """
    payments, same = service.store.payments, None
    earlier = payments.attempts(attempt.payment_id)
    if any(stored.record.status == "settled" for stored in earlier):
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    for stored in earlier:
        is_same, has_failed = _is_same(attempt, stored), stored.record.status == "failed"
        if has_failed and not is_same:
            continue
        finding = await follow_chain(service, stored)
        if finding is Finding.PAID:
            if is_same:
                return payments.attempt(stored.attempt)
            raise SettlementRefused(Refusal.ALREADY_SETTLED)
        if finding is Finding.NEVER or has_failed:
            continue
        if is_same:
            same = stored
        elif stored.may_move:
            raise SettlementRefused(Refusal.PENDING, "an earlier payment header may still settle")
    if same is not None:
        return _resumed(service, same)
    if len(earlier) >= MAX_ATTEMPTS:
        reason = f"{len(earlier)} payment headers were sent for it; ask for a new payment id"
        raise SettlementRefused(Refusal.PENDING, reason)
    return None


def _resumed(service: Service, earlier: Stored) -> Stored:
    """Return an earlier attempt that is sent to the facilitator again, as the chain sees it now."""
    payments = service.store.payments
    if not earlier.may_move:
        payments.set_may_move(earlier.attempt, True)
    now = payments.attempt(earlier.attempt) or earlier
    return msgspec.structs.replace(now, may_move=earlier.may_move)


def _is_same(attempt: Attempt, stored: Stored) -> bool:
    """Tell whether a header holds the authorization of an earlier attempt."""
    auth, claimed = attempt.payment.authorization, stored.authorization
    if stored.header == attempt.payment.text:
        return True
    if auth is None or claimed is None or not attempt.can_pay:
        return False
    return (auth.from_, auth.nonce) == (claimed.payer, claimed.nonce)


async def _is_unused(service: Service, attempt: Attempt) -> bool:
    """Tell whether the chain says that the authorization is not used yet; False if it is silent.

    One that was used before it was presented here may have paid at another service. Raises
    `SettlementRefused` "Nonce already used" then (5/nonce-once).
    """
    authorization = attempt.payment.authorization
    if authorization is None or not attempt.can_pay:
        return False
    try:
        state = await service.rpc.nonce_state(authorization.from_, authorization.nonce)
    except Unavailable:
        return False
    if state.is_used:
        reason = "the authorization was used before it was presented for this payment id"
        raise SettlementRefused(Refusal.NONCE_USED, reason)
    return True


def _can_pay(service: Service, payment: PresentedPayment, issued: PaymentRequirements) -> bool:
    if payment.signed is None:
        return False
    case = Verification(payment.signed, issued, service.settings.network)
    return first_broken(AUTHORIZES, case) is None


# --- records, rules and reasons ------------------------------------------------------


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
