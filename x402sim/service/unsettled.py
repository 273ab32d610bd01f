"""The fate of a payment not settled by the facilitator, and advice for the payer.

Anyone may submit a signed authorization, so even a refused payment may be paid. Only the chain can
tell. After a lost answer, the policy `lost_answer` decides when to ask the chain.
"""

from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime

import msgspec

from x402sim import events
from x402sim.events import MAX_REASON, clipped
from x402sim.protocol.crypto import canonical
from x402sim.protocol.differences import difference, times
from x402sim.protocol.header import PresentedPayment, SignedPayment
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.refusals import ChainFinding, Finality, Refusal, SettlementRefused, is_final
from x402sim.protocol.rules import MATCH, VERIFICATION, Verification, first_broken
from x402sim.protocol.states import PaymentState
from x402sim.service.issue import IssuedTerms
from x402sim.service.reconcile import PendingPaymentHandle
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.served import IdempotencyKey
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.facilitator import NotMoved

NODE_SILENT = "the chain's node did not answer, so nothing was sent to the facilitator"
_LAST_DATE_S = 253_402_300_799  # the end of the year 9999, the last date of ISO 8601


class ValidRequest(msgspec.Struct, frozen=True):
    """One request to settle, decoded by step 1.

    `terms` and `issued` were issued under the payment id; `requirements` are the payer's, and may
    differ. `is_authorized`: the authorization in the header makes the required transfer, whoever
    submits it. Of a payment in one step, `offered_id` is the payment id of the paid 402, if the
    payer has sent the id, and `key` is the payer's own id of the payment.
    """

    payment_id: str
    payment: PresentedPayment
    terms: IssuedTerms
    requirements: PaymentRequirements
    issued: PaymentRequirements
    is_authorized: bool
    offered_id: str | None
    key: IdempotencyKey | None


@dataclass(eq=False)
class NotSettled(Exception):
    """The facilitator did not settle, or was not asked to settle.

    `maybe_submitted`: the facilitator got the request, and may still submit the authorization.
    `is_lost`: the answer is lost, and the authorization may be submitted already.
    """

    refusal: Refusal
    reason: str | None
    _: KW_ONLY
    maybe_submitted: bool = False
    is_lost: bool = False


def not_moved(service: Service, request: ValidRequest, outcome: NotMoved) -> NotSettled:
    """Return the facilitator's refusal to settle; about the window with our clock's time."""
    auth, now_s, reason = request.payment.authorization, service.clock.now_s(), outcome.reason
    if auth is not None and outcome.misses == "validAfter":
        reason += f"; {times(outcome.misses, auth.valid_after, now_s)}"
        if now_s > auth.valid_after:
            reason += ", and the chain's is behind it"
    elif auth is not None and outcome.misses == "validBefore":
        reason = times(outcome.misses, auth.valid_before, now_s)
        if now_s < auth.valid_before:
            reason += ", and the chain's is ahead of it"
    may_be_sent = outcome.refusal.row.may_have_been_sent
    return NotSettled(outcome.refusal, reason, maybe_submitted=may_be_sent)


async def reject_low_v(
    service: Service, request: ValidRequest, signed: SignedPayment, attempt: Attempt
) -> None:
    """Refuse an account's signature with a `v` of 0 or 1 before the facilitator sees it.

    No token takes the signature, but every observer can add 27. So the refusal is final only if the
    authorization was not sent before (7/invalid-signature). Raises `NotSettled`, or
    `SettlementRefused` for an attempt not stored.
    """
    auth = signed.authorization
    try:
        if await service.rpc.has_code(auth.from_):
            return
    except Unavailable as error:
        raise NotSettled(Refusal.CHAIN_UNREACHABLE, NODE_SILENT) from error
    reason = (
        f"v is {signed.signature[64]}: the token takes 27 or 28, so add 27 to the signature's last "
        "byte"
    )
    if attempt.state is not PaymentState.NEW:
        raise NotSettled(Refusal.INVALID_SIGNATURE, reason)
    was_sent = request.is_authorized and service.store.payments.is_claimed(auth.from_, auth.nonce)
    if was_sent:
        reason += "; the same authorization was sent before, and may still be paid"
    raise SettlementRefused(Refusal.INVALID_SIGNATURE, reason, final=not was_sent)


async def recover(
    service: Service, request: ValidRequest, attempt: Attempt, cause: NotSettled
) -> Attempt:
    """Ask the chain about a payment; after a lost answer, the policy asks.

    Returns the settled attempt of a paid payment. Otherwise raises `SettlementRefused`, final only
    if the header can never pay, or if the policy has forgotten the payment.
    """
    payments, was = service.store.payments, attempt.state
    if was is PaymentState.NEW:  # without a record, a lost answer keeps and serves nothing
        is_over = cause.is_lost or is_final(cause.refusal.text)
        raise SettlementRefused(cause.refusal, cause.reason, final=is_over)
    maybe_submitted = was is PaymentState.MAYBE_SUBMITTED or cause.maybe_submitted
    if not request.is_authorized and not maybe_submitted:
        payments.drop_claim(attempt.number)
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    if (now := payments.reload(attempt)) is None:
        raise record_changed()
    payment = PendingPaymentHandle(service, now)
    if cause.is_lost:
        await service.env.settings.policy.lost_answer.resolve(payment)
    else:
        await payment.ask_chain()
    if payment.finding is ChainFinding.PAID:
        return settled_attempt(service, request.payment_id)
    if payment.finding is ChainFinding.NEVER or payment.is_forgotten:
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    if maybe_submitted:
        payments.mark_maybe_submitted(attempt.number)
    else:
        payments.mark_not_submitted(attempt.number)
    is_pending = maybe_submitted and cause.refusal.row.final is not Finality.STATED
    advice = _retry_advice(service, request, now, cause.refusal, payment.finding, maybe_submitted)
    raise SettlementRefused(
        Refusal.PENDING if is_pending else cause.refusal, f"{cause.reason}; {advice}", final=False
    )


def settled_attempt(service: Service, payment_id: str) -> Attempt:
    """Return the settled attempt of a payment id, perhaps settled by another service.

    Raises `SettlementRefused` without a settled attempt.
    """
    attempt = service.store.payments.get(payment_id)
    if attempt is None or attempt.state is not PaymentState.SETTLED:
        raise record_changed()
    return attempt


def record_changed() -> SettlementRefused:
    """Return the refusal of a payment with a record changed by another service, or a restore."""
    return SettlementRefused(Refusal.FAILED, "the record of this payment has changed meanwhile")


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


# --- advice for the payer ---------------------------------------------------------------


def _retry_advice(
    service: Service,
    request: ValidRequest,
    attempt: Attempt,
    refusal: Refusal,
    finding: ChainFinding,
    maybe_submitted: bool,
) -> str:
    again = "send the same payment header again"
    if refusal is Refusal.INSUFFICIENT_BALANCE:
        again = f"fund the payer and {again}"
    signed = request.payment.signed
    if refusal is Refusal.INVALID_SIGNATURE and where_it_differs(service, request):
        again = "correct the header and send the same authorization again"
    elif (
        refusal is Refusal.INVALID_SIGNATURE
        and signed is not None
        and canonical(signed.signature) != signed.signature  # the token takes only that form
    ):
        again = (
            "write the signature as 65 bytes, with a low s and v 27 or 28, and send the same "
            "authorization again"
        )
    auth = request.payment.authorization
    if known := _known_id(service, request, attempt):
        again += f", or ask GET /api/payments/{known}"
    if auth is None or maybe_submitted or finding is not ChainFinding.NOT_YET:
        return f"it may still be paid: {again}; do not sign another one"
    if refusal is Refusal.EXPIRED:
        return f"not charged by this service, but no block has passed that time yet: {again}"
    until = _date(auth.valid_before)
    is_early = service.clock.now_s() <= auth.valid_after
    valid = f"is valid from {_date(auth.valid_after + 1)}" if is_early else "stays valid"
    return f"not charged by this service; this header {valid} until {until}: {again}"


def _date(at_s: int) -> str:
    return datetime.fromtimestamp(min(at_s, _LAST_DATE_S), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _known_id(service: Service, request: ValidRequest, attempt: Attempt) -> str | None:
    """Return the payment id for a payer to look an attempt up, if any.

    The id of a payment in one step proves the payment. The id is sent only with the bought content:
    every reader of the chain can send the authorization, and would get the id.
    """
    auth, terms = request.payment.authorization, request.terms
    if auth is None or auth.value != terms.amount_base:
        return request.payment_id
    is_derived = service.issuer.derive(terms.resource, auth) == request.payment_id
    return attempt.offered_id if is_derived else request.payment_id


def where_it_differs(service: Service, request: ValidRequest) -> str:
    """Return the difference between a refused payment and the requirements, or "".

    The signature of an able header is not compared: perhaps only the payer's contract can judge.
    """
    if request.payment.signed is None:
        return ""
    rules = MATCH if request.is_authorized else VERIFICATION
    case = Verification(request.payment.signed, request.issued, service.env.network)
    broken = first_broken(rules, case)
    return difference(broken.refusal, case) if broken else ""
