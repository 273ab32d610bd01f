"""POST /api/pay: the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The id and the authorization are claimed in the database
before the facilitator is asked anything, because from then on anybody may submit the authorization.
The claim stays until the chain proves that it can never be used: so neither a crash, a lost answer
nor a third party can charge twice or lose a payment. By default; of `Settings.policy`, `claim` says
when the claim is written, and `verify` whether the facilitator verifies.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import assert_never

import msgspec

from x402sim import events
from x402sim.events import MAX_REASON, clipped
from x402sim.protocol.differences import difference, times
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.messages import PaymentRequirements, Receipt, SettlementRequest
from x402sim.protocol.refusals import Finding, Refusal, SettlementRefused
from x402sim.protocol.rules import (
    AUTHORIZES,
    VERIFICATION,
    Invalid,
    Verification,
    first_broken,
    without,
)
from x402sim.service.attempts import Attempt, check, claim, require, reserves
from x402sim.service.grant import grant
from x402sim.service.reconcile import Unresolved
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Stored
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.dialect import Moved, NotMoved

_NODE_SILENT = "the chain's node did not answer, so nothing was sent to the facilitator"
_LAST_DATE_S = 253_402_300_799
"""The end of the year 9999, the last date of ISO 8601."""


class NotSettled(Exception):
    """The facilitator did not settle. `may_move`: it was asked to, and may still do it.

    `is_lost`: its answer is lost, and it may have done it.
    """

    def __init__(
        self,
        refusal: Refusal,
        reason: str | None,
        *,
        may_move: bool = False,
        is_lost: bool = False,
    ) -> None:
        super().__init__(refusal, reason)
        self.refusal = refusal
        self.reason = reason
        self.may_move = may_move
        self.is_lost = is_lost


async def pay(
    service: Service,
    request: SettlementRequest,
    *,
    offered_id: str | None = None,
    verifies: bool = True,
) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`.

    `offered_id` is the payment id of the 402 that a payment in one step answers, if it is known,
    and `verifies` is False if its flow has verified it, or lets the settlement do that.
    """
    policy = service.settings.policy
    attempt = await validate(service, request, offered_id)  # step 1
    async with service.settling.hold(request.payment_id):
        stored, is_unused = await check(service, attempt)
        if stored is not None and stored.record.status == "settled":
            return stored_receipt(service, request.payment_id)
        try:
            if policy.claim.claims_before("verify"):
                stored = stored or claim(service, attempt, seen_unused=is_unused)
            if attempt.can_pay and not is_unused:  # a used one was refused above
                raise NotSettled(Refusal.UNREACHABLE, _NODE_SILENT)
            if verifies and policy.verify.verifies(attempt.terms.amount_base):
                await verify(service, attempt)  # steps 2 and 3
            if not reserves(service):
                service.presented[request.payment_id] = attempt.terms.resource
            if policy.claim.claims_before("settle"):
                stored = stored or claim(service, attempt, seen_unused=is_unused)
            tx_hash = await settle(service, attempt)  # step 4
            stored = stored or claim(service, attempt, seen_unused=is_unused)
            if grant(service, stored, tx_hash):  # steps 5 and 6
                return receipt(stored, tx_hash)  # step 7
        except NotSettled as cause:
            service.presented.pop(request.payment_id, None)
            await refuse_unless_paid(service, attempt, stored, cause)
        return stored_receipt(service, request.payment_id)


async def accept(service: Service, request: SettlementRequest, offered_id: str | None) -> None:
    """Steps 1 to 3 and the claim: what a service does that works or serves before it settles.

    Raises `SettlementRefused`.
    """
    is_reserved = reserves(service)
    attempt = await validate(service, request, offered_id)
    async with service.settling.hold(request.payment_id) if is_reserved else nullcontext():
        stored, is_unused = await check(service, attempt)
        if stored is not None:  # `check` took it for one that is sent now
            service.store.payments.set_may_move(stored.attempt, stored.may_move)
        try:
            if service.settings.policy.verify.verifies(attempt.terms.amount_base):
                await verify(service, attempt)
        except NotSettled as cause:
            raise SettlementRefused(cause.refusal, cause.reason) from cause
        if is_reserved and stored is None:
            stored = claim(service, attempt, seen_unused=is_unused)
            if service.settings.payment_flow is not None:  # if the endpoint fails, it is not sent
                service.store.payments.set_may_move(stored.attempt, False)


async def validate(
    service: Service, request: SettlementRequest, offered_id: str | None = None
) -> Attempt:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Decodes the payment header, once. Raises `SettlementRefused`.
    """
    payment_id, sent = request.payment_id, request.payment_requirements
    terms = service.issuer.read(payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, "this payment id was not issued here")
    payment, issued = present(request.payment_header), service.issuer.requirements(terms)
    attempt = Attempt(payment_id, payment, terms, sent, issued, offered_id=offered_id)
    require(service, service.settlement_rules, attempt)
    return msgspec.structs.replace(attempt, can_pay=await _can_pay(service, payment, issued))


async def _can_pay(
    service: Service, payment: PresentedPayment, issued: PaymentRequirements
) -> bool:
    """Tell whether an authorization pays, whoever submits it; a payer's contract is asked.

    Raises `SettlementRefused` if the node does not answer.
    """
    signed, network = payment.signed, service.setup.network
    if signed is None:
        return False
    broken = first_broken(AUTHORIZES, Verification(signed, issued, network))
    if broken is None or broken.refusal is not Invalid.SIGNATURE:
        return broken is None
    digest = transfer_digest(signed.authorization, network.domain)
    try:
        return await service.rpc.accepts(signed.authorization.from_, digest, signed.signature)
    except Unavailable as error:
        raise SettlementRefused(Refusal.UNREACHABLE, _NODE_SILENT, final=False) from error


async def verify(service: Service, attempt: Attempt) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` "Invalid signature" if it does not (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(attempt.payment, attempt.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if not verdict.is_valid:
        told = filter(None, (verdict.reason, _difference(service, attempt)))
        raise NotSettled(Refusal.INVALID_SIGNATURE, "; ".join(told))


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
        raise NotSettled(Refusal.UNREACHABLE, str(error), may_move=True, is_lost=True) from error
    match outcome:
        case Moved(tx_hash=tx_hash):
            if service.store.payments.paid_by(tx_hash) is not None:
                reason = f"transaction {tx_hash} already paid for another payment id"
                raise NotSettled(Refusal.FAILED, reason, may_move=True)
            return tx_hash
        case NotMoved(refusal=refusal):
            raise NotSettled(
                refusal, _why_not_moved(service, attempt, outcome), may_move=refusal.row.is_sent
            )
        case _:
            assert_never(outcome)


async def refuse_unless_paid(
    service: Service, attempt: Attempt, stored: Stored | None, cause: NotSettled
) -> None:
    """Ask the chain, after the facilitator did not settle; after a lost answer, ask the policy.

    Anyone may submit a signed authorization, so even a refused payment can be paid; then
    it is granted. Otherwise raises `SettlementRefused`, which is final only if the header can
    never pay, or if the policy has forgotten the payment.
    """
    if stored is None:  # not claimed, so there is nothing to look up
        raise SettlementRefused(cause.refusal, cause.reason, final=cause.is_lost or None)
    payments, may_move = service.store.payments, stored.may_move or cause.may_move
    if not attempt.can_pay and not may_move:
        payments.drop_claim(stored.attempt)
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    payment = Unresolved(service, _attempt(service, stored), in_background=False)
    if cause.is_lost:
        await service.settings.policy.lost_answer.resolve(payment)
    else:
        await payment.ask_chain()
    finding = payment.finding
    if finding is Finding.PAID:
        return
    if finding is Finding.NEVER or payment.is_forgotten:
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    payments.set_may_move(stored.attempt, may_move)
    is_pending = may_move and cause.refusal.row.final is not None
    raise SettlementRefused(
        Refusal.PENDING if is_pending else cause.refusal,
        f"{cause.reason}; {_what_now(service, attempt, cause.refusal, finding, may_move)}",
        final=False,
    )


def stored_receipt(service: Service, payment_id: str) -> Receipt:
    """Return the receipt of a payment that was settled before.

    Raises `SettlementRefused` if the control API restored an older database meanwhile.
    """
    stored = service.store.payments.get(payment_id)
    if stored is None:
        raise _gone()
    return receipt(stored, str(stored.record.tx_hash))


def receipt(stored: Stored, tx_hash: str) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    payment_id, at_ms = stored.record.payment_id, stored.record.timestamp
    return Receipt(success=True, payment_id=payment_id, tx_hash=tx_hash, timestamp=at_ms)


def record_refusal(service: Service, payment_id: str, refused: SettlementRefused) -> None:
    """Write a refusal to the journal."""
    event = events.PaymentRefused(
        payment_id=clipped(payment_id),
        refusal=refused.refusal.text,
        reason=refused.reason and clipped(refused.reason, MAX_REASON),
        final=refused.final,
        leaves_earlier=refused.refusal.row.leaves_earlier,
    )
    service.record(event)


# --- records and reasons -------------------------------------------------------------


def _attempt(service: Service, stored: Stored) -> Stored:
    """Return an attempt as it is now; raises `SettlementRefused` as `stored_receipt` does."""
    now = service.store.payments.attempt(stored.attempt)
    if now is None or now.record.payment_id != stored.record.payment_id:
        raise _gone()
    return now


def _gone() -> SettlementRefused:
    return SettlementRefused(Refusal.FAILED, "the record of this payment is gone", final=False)


def _what_now(
    service: Service, attempt: Attempt, refusal: Refusal, finding: Finding, may_move: bool
) -> str:
    """Return what a payer should know and do, while the header may still pay."""
    again = "send the same payment header again"
    if refusal is Refusal.INSUFFICIENT_BALANCE:
        again = f"fund the payer and {again}"
    if refusal is Refusal.INVALID_SIGNATURE and _difference(service, attempt):
        again = "correct the header and send the same authorization again"
    auth = attempt.payment.authorization
    if known := _known_id(service, attempt):
        again += f", or ask GET /api/payments/{known}"
    if auth is None or may_move or finding is not Finding.NOT_YET:
        return f"it may still be paid: {again}; do not sign another one"
    if refusal is Refusal.EXPIRED:
        return f"not charged by this service, but no block has passed that time yet: {again}"
    until_s = min(auth.valid_before, _LAST_DATE_S)
    until = datetime.fromtimestamp(until_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"not charged by this service; this header stays valid until {until}: {again}"


def _known_id(service: Service, attempt: Attempt) -> str | None:
    """Return the payment id that a payer has sent, if any.

    That of a payment in one step is told only with what it buys: it is a proof of payment, and
    whoever reads the chain can send the authorization.
    """
    auth, terms = attempt.payment.authorization, attempt.terms
    if auth is None or auth.value != terms.amount_base:
        return attempt.payment_id
    is_derived = service.issuer.derive(terms.resource, auth) == attempt.payment_id
    return attempt.offered_id if is_derived else attempt.payment_id


def _difference(service: Service, attempt: Attempt) -> str:
    """Return where a refused payment differs from what was asked for; empty if nowhere.

    If it can pay, its signature is right, although only its payer's contract may know that.
    """
    if attempt.payment.signed is None:
        return ""
    rules = VERIFICATION if not attempt.can_pay else without(VERIFICATION, "5/signature-proves")
    case = Verification(attempt.payment.signed, attempt.issued, service.setup.network)
    broken = first_broken(rules, case)
    return difference(broken.refusal, case) if broken else ""


def _why_not_moved(service: Service, attempt: Attempt, outcome: NotMoved) -> str:
    """Return the facilitator's reason; if it is the time, whose clock says what."""
    auth, now_s = attempt.payment.authorization, service.clock.now_s()
    if auth is None or outcome.misses is None:
        return outcome.reason
    if outcome.misses == "validAfter":
        return f"{outcome.reason}; {times(outcome.misses, auth.valid_after, now_s)}"
    told = times(outcome.misses, auth.valid_before, now_s)
    return told if now_s >= auth.valid_before else f"{told}, and the chain's is ahead of it"
