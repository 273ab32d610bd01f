"""The settlement of a payment: POST /api/pay, the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The id and the authorization are claimed in the database
before the facilitator gets any request, because from then on anybody may submit the authorization:
it pays for one payment id only. The claim stays until the chain proves that it can never be used:
so neither a crash, a lost answer nor a third party can charge twice or lose a payment. By default;
of `Settings.policy`, `claim` says when the claim is written, and `verify` whether the facilitator
verifies. What can happen to a payment in which state is the table `PAYMENT` of `protocol.states`.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import assert_never

import msgspec

from x402sim import events
from x402sim.events import MAX_REASON, clipped
from x402sim.http import web
from x402sim.protocol.crypto import canonical, checksum, low_v
from x402sim.protocol.differences import difference, times
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.messages import PaymentRequirements, Receipt, SettlementRequest
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import (
    NOT_ISSUED,
    ChainFinding,
    Finality,
    Refusal,
    RequestError,
    SettlementRefused,
)
from x402sim.protocol.rules import (
    AUTHORIZES,
    VERIFICATION,
    InvalidReason,
    Presented,
    Rules,
    Verification,
    first_broken,
    without,
)
from x402sim.protocol.states import PaymentState
from x402sim.service.issue import IssuedTerms
from x402sim.service.reconcile import PendingPaymentHandle, follow_chain, grant
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.served import IdempotencyKey
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import Moved, NotMoved

MAX_ATTEMPTS = 8
"""The most payment headers that can be presented for one payment id."""
_NODE_SILENT = "the chain's node did not answer, so nothing was sent to the facilitator"
_LAST_DATE_S = 253_402_300_799
"""The end of the year 9999, the last date of ISO 8601."""

_EARLIER_MAY_SETTLE = "an earlier payment header may still settle"
_OTHER_MAY_SETTLE = "another payment of its 402 may still settle"
_PAID_OTHERWISE = "its 402 was paid already: in one step, or by POST /api/pay"


class ValidRequest(msgspec.Struct, frozen=True):
    """One request to settle, after step 1: with everything in it decoded.

    `terms` and `issued` are what this service issued under the payment id; `requirements` are those
    that the payer sent back, which may differ. `is_authorized`: the authorization in the header
    makes the required transfer, whoever submits it. `offered_id` is the payment id of the 402 that
    a payment in one step answers, if its payer has sent it, and `key` the payer's own id of it.
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
    """The facilitator did not settle, or was not requested to.

    `maybe_submitted`: it got the request, and may still submit the authorization. `is_lost`: its
    answer is lost, and it may have done so already.
    """

    refusal: Refusal
    reason: str | None
    _: KW_ONLY
    maybe_submitted: bool = False
    is_lost: bool = False


async def pay(
    service: Service,
    sent: SettlementRequest,
    *,
    offered_id: str | None = None,
    key: IdempotencyKey | None = None,
    verifies: bool = True,
) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`.

    `offered_id` is the payment id of the 402 that a payment in one step answers, if it is known,
    `key` the payer's own id of it, and `verifies` is False if its flow has verified it, or lets
    the settlement do that.
    """
    policy, payment_id, tx_hash = service.settings.policy, sent.payment_id, ""
    request = await validate(service, sent, offered_id, key)  # step 1
    async with service.locks.hold(payment_id):
        attempt, is_unused = await resume_or_admit(service, request)
        if attempt is not None and attempt.status == "settled":
            return receipt(attempt, str(attempt.tx_hash))
        try:
            await reject_low_v_signature(service, request, attempt)
            for step in policy.steps:  # by default the claim comes first: see above
                match step:
                    case "claim":
                        attempt = attempt or claim(service, request, is_unused=is_unused)
                    case "verify":  # steps 2 and 3
                        _require_unused(request, is_unused)
                        if verifies and policy.verify.verifies(request.terms.amount_base):
                            await verify(service, request)
                        if not policy.reserves:
                            service.unreserved_in_flight[payment_id] = request.terms.resource
                    case "settle":  # step 4
                        tx_hash = await settle(service, request)
                    case _:
                        assert_never(step)
            assert attempt is not None  # one of the steps is the claim
            if grant(service, attempt, tx_hash):  # steps 5 and 6
                return receipt(attempt, tx_hash)  # step 7
        except NotSettled as cause:
            service.unreserved_in_flight.pop(payment_id, None)
            await recover_or_refuse(service, request, attempt, cause)
        finally:  # settled or refused, nothing is in flight
            service.unreserved_in_flight.pop(payment_id, None)
        # the chain shows that it was paid after all, or another process has settled it
        settled = service.store.payments.get(payment_id)
        if settled is None or settled.status != "settled":
            raise _record_missing()
        return receipt(settled, str(settled.tx_hash))


def _require_unused(request: ValidRequest, is_unused: bool) -> None:
    """Raise `NotSettled` if the node did not say that the authorization is unused.

    A used one was refused before; a use by this payment could not be told from one before it.
    """
    if request.is_authorized and not is_unused:
        raise NotSettled(Refusal.CHAIN_UNREACHABLE, _NODE_SILENT)


async def accept(
    service: Service, sent: SettlementRequest, offered_id: str | None, key: IdempotencyKey | None
) -> None:
    """Steps 1 to 3 and the claim: what a service does that works or serves before it settles.

    Raises `SettlementRefused`.
    """
    policy, payments = service.settings.policy, service.store.payments
    request = await validate(service, sent, offered_id, key)
    async with service.locks.hold(sent.payment_id) if policy.reserves else nullcontext():
        attempt, is_unused = await resume_or_admit(service, request)
        if attempt is not None and attempt.status == "settled":
            return
        try:
            await reject_low_v_signature(service, request, attempt)
            for step in policy.steps:  # by default the claim comes first, as in `pay`
                if step == "claim" and policy.reserves:
                    attempt = attempt or claim(service, request, is_unused=is_unused)
                elif step == "verify":
                    _require_unused(request, is_unused)
                    if policy.verify.verifies(request.terms.amount_base):
                        await verify(service, request)
        except NotSettled as cause:  # what was sent before, or by others, may still be paid
            await recover_or_refuse(service, request, attempt, cause)
            return
        if attempt is not None and service.settings.payment_flow is not None:
            # nothing is sent before the endpoint has worked
            payments.mark_not_submitted(attempt.number)


# --- step 1: what was sent, and what was presented before --------------------------------


async def validate(
    service: Service,
    sent: SettlementRequest,
    offered_id: str | None = None,
    key: IdempotencyKey | None = None,
) -> ValidRequest:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Decodes the payment header, once. A payer's contract is queried whether it calls the signature
    its own. Raises `SettlementRefused`.
    """
    payment_id, requirements = sent.payment_id, sent.payment_requirements
    terms = service.issuer.read(payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, NOT_ISSUED)
    payment, network = present(sent.payment_header), service.env.network
    issued = service.issuer.requirements(terms.resource, terms.amount_base)
    if requirements != issued:  # equal ones break no rule
        require(service, service.settlement_rules, requirements, issued, terms)
    signed, is_authorized = payment.signed, False
    if signed is not None:
        broken = first_broken(AUTHORIZES, Verification(signed, issued, network))
        is_authorized = broken is None
        if broken is not None and broken.refusal is InvalidReason.SIGNATURE:
            auth = signed.authorization
            digest = transfer_digest(auth, network.domain)
            try:
                is_authorized = await service.rpc.accepts(auth.from_, digest, signed.signature)
            except Unavailable as error:
                raise SettlementRefused(
                    Refusal.CHAIN_UNREACHABLE, _NODE_SILENT, final=False
                ) from error
    return ValidRequest(
        payment_id, payment, terms, requirements, issued, is_authorized, offered_id, key
    )


async def resume_or_admit(service: Service, request: ValidRequest) -> tuple[Attempt | None, bool]:
    """Return the earlier attempt to resume, or None for a new authorization, which is admitted.

    And whether the chain reports the authorization as unused. Raises `SettlementRefused`.
    """
    attempt = await resume_earlier(service, request)
    if attempt is not None:
        return attempt, attempt.nonce_confirmed_unused
    admit(service, request)
    return None, await is_unused(service, request)


async def resume_earlier(service: Service, request: ValidRequest) -> Attempt | None:
    """Return the attempt to resume, if the same authorization was presented before; None if not.

    First the record of every earlier attempt follows the chain. The attempt is pending, or settled
    if the chain reports only now that it was paid. Raises `SettlementRefused` if the id is used
    (7/payment-already-settled), or if another header may still pay for it.
    """
    presented = service.store.payments.attempts(request.payment_id)
    findings = {}
    if all(attempt.status != "settled" for attempt in presented):
        for attempt in presented:  # a failed one says nothing about another authorization
            if attempt.status != "failed" or _is_same(request, attempt):
                findings[attempt.number] = await follow_chain(service, attempt)
    earlier = earlier_attempt(request, presented, findings)
    return None if earlier is None else resume(service, request, earlier)


def admit(service: Service, request: ValidRequest) -> None:
    """Admit an authorization that was not presented before.

    Raises `SettlementRefused` for a 402 that has expired, and for an authorization that lasts too
    long (decision 4.1/longest-window).
    """
    sent, terms = request.requirements, request.terms
    require(service, service.freshness_rules, sent, request.issued, terms)
    until_s, now_s = request.payment.valid_before, service.clock.now_s()
    most_s = max(service.settings.longest_window_s, 2 * service.settings.max_timeout_s)
    if until_s - now_s > most_s:
        too_long = f"{times('validBefore', until_s, now_s)}; at most {most_s:.0f} s ahead of that"
        raise SettlementRefused(Refusal.INVALID_SIGNATURE, f"{too_long} are taken")


def earlier_attempt(
    request: ValidRequest, presented: Sequence[Attempt], findings: Mapping[int, ChainFinding]
) -> Attempt | None:
    """Return which attempt of those presented for its payment id a request resumes.

    None if it is a new one. `findings` are what the chain reports, by the attempts' numbers. Reads
    and writes nothing. Raises `SettlementRefused` if the id was paid, if another authorization may
    still pay for it, or if too many were presented.
    """
    if any(attempt.status == "settled" for attempt in presented):
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    same, may_settle = None, False
    for attempt in presented:
        finding, is_same = findings.get(attempt.number), _is_same(request, attempt)
        if finding is ChainFinding.PAID:
            if not is_same:
                raise SettlementRefused(Refusal.ALREADY_SETTLED)
            return attempt
        if finding is ChainFinding.NEVER or attempt.status == "failed":
            continue
        if is_same:
            same = attempt
        elif not _has_same_nonce(request, attempt):  # of two with one nonce, one can pay
            may_settle |= attempt.state is not PaymentState.NOT_SUBMITTED
    if may_settle:
        raise SettlementRefused(Refusal.PENDING, _EARLIER_MAY_SETTLE)
    if same is None and len(presented) >= MAX_ATTEMPTS:
        reason = f"{len(presented)} payment headers were sent for it; ask for a new payment id"
        raise SettlementRefused(Refusal.PENDING, reason)
    return same


def resume(service: Service, request: ValidRequest, earlier: Attempt) -> Attempt:
    """Write that an earlier attempt is to be sent again, unless it is settled; return it as it is.

    Raises `SettlementRefused` if its 402 was paid otherwise since or its authorization pays for
    another payment id, and `Refused` 409 if another payment has its key.
    """
    payments = service.store.payments
    if (now := payments.reload(earlier)) is None:
        raise _record_missing()
    if now.state is PaymentState.SETTLED:
        return now
    if now.state is PaymentState.FAILED:  # paid, but another payment id has claimed it since
        raise _claim_conflict(service, now)
    if request.key is not None:
        reserve_key(service, request.payment_id, request.key, request.payment.valid_before)
    # which 402 it answers, only its payer can say, and before anybody else can know the header
    if now.state is PaymentState.NOT_SUBMITTED and now.offered_id is None:
        now = msgspec.structs.replace(now, offered_id=request.offered_id)
    if (resumed := payments.resume(now)) is None:
        raise _claim_conflict(service, now)
    return resumed


def _is_same(request: ValidRequest, attempt: Attempt) -> bool:
    """Tell whether a header holds the authorization of an earlier attempt.

    A good one does not resume the attempt of a header that could not pay, such as one with another
    signature, or one that a smart wallet had not signed yet: that attempt has claimed nothing.
    """
    if request.is_authorized and not attempt.is_authorized:
        return False
    if attempt.header == request.payment.text:
        return True
    return request.is_authorized and _has_same_nonce(request, attempt)


def _has_same_nonce(request: ValidRequest, attempt: Attempt) -> bool:
    auth = request.payment.authorization
    return auth is not None and (auth.from_, auth.nonce) == (attempt.payer, attempt.nonce)


async def is_unused(service: Service, request: ValidRequest) -> bool:
    """Tell whether the chain reports that the authorization is unused; False if it is silent.

    One that was used before it was presented here may have paid at another service. Raises
    `SettlementRefused` "Nonce already used" then (5/nonce-once), if its events report so as well: a
    payment that is good needs one call, and only a refusal needs the others.
    """
    if (authorization := request.payment.authorization) is None or not request.is_authorized:
        return False
    rpc, payer, nonce = service.rpc, authorization.from_, authorization.nonce
    try:
        is_used = await rpc.is_used(payer, nonce) and (await rpc.nonce_state(payer, nonce)).is_used
    except Unavailable:
        return False
    if is_used:
        _require_unclaimed(service, request)
        reason = "the authorization was used before it was presented for this payment id"
        raise SettlementRefused(Refusal.NONCE_USED, reason)
    return True


def require(
    service: Service,
    rules: Rules[Presented, Refusal],
    sent: PaymentRequirements,
    issued: PaymentRequirements,
    terms: IssuedTerms,
) -> None:
    """Check a rule table; raises `SettlementRefused` with the first row that fails."""
    case = Presented(sent, issued, expires_s=terms.expires_s, now_s=service.clock.now_s())
    if broken := first_broken(rules, case):
        raise SettlementRefused(broken.refusal, broken.reason(case))


async def reject_low_v_signature(
    service: Service, request: ValidRequest, attempt: Attempt | None
) -> None:
    """Refuse an account's signature with a `v` of 0 or 1 before the facilitator sees it.

    No token takes one, but anybody who has observed it can add 27. So that is final only if the
    authorization was not sent before (7/invalid-signature). Raises `SettlementRefused`, or
    `NotSettled` if an `attempt` to pay with it is stored.
    """
    signed = request.payment.signed
    if signed is None or (v := low_v(signed.signature)) is None:
        return
    auth = signed.authorization
    try:
        if await service.rpc.has_code(auth.from_):
            return
    except Unavailable as error:
        if attempt is not None:
            raise NotSettled(Refusal.CHAIN_UNREACHABLE, _NODE_SILENT) from error
        raise SettlementRefused(Refusal.CHAIN_UNREACHABLE, _NODE_SILENT, final=False) from error
    reason = f"v is {v}: the token takes 27 or 28, so add 27 to the signature's last byte"
    if attempt is not None:
        raise NotSettled(Refusal.INVALID_SIGNATURE, reason)
    was_sent = request.is_authorized and service.store.payments.is_claimed(auth.from_, auth.nonce)
    if was_sent:
        reason += "; the same authorization was sent before, and may still be paid"
    raise SettlementRefused(Refusal.INVALID_SIGNATURE, reason, final=not was_sent)


# --- the claim ------------------------------------------------------------------------


def claim(service: Service, request: ValidRequest, *, is_unused: bool) -> Attempt:
    """Claim the payment id for the authorization in the header; return the pending record.

    `is_unused`: the chain reports that the authorization is unused. The payer's key is reserved
    with it: of two payments with one key, the second is refused before anything is settled. Raises
    `SettlementRefused` if it pays for another payment id (7/nonce-already-used), if its 402 is paid
    in one step and in two, or if another process on this database was faster, and `Refused` 409 if
    another payment has its key.
    """
    payment, issued, auth = request.payment, request.issued, request.payment.authorization
    new = Attempt(
        payment_id=request.payment_id,
        tx_hash=None,
        from_address=checksum(auth.from_) if auth else "",
        to_address=issued.pay_to,
        amount=issued.max_amount_required,
        resource_url=issued.resource,
        status="pending",
        block_number=None,
        timestamp=service.clock.now_ms(),
        payer=auth.from_ if auth else None,
        nonce=auth.nonce if auth else None,
        valid_before_s=min(payment.valid_before, MAX_STORED) if auth else None,
        header=payment.text,
        duration=request.terms.duration,
        offered_id=request.offered_id,
        is_authorized=request.is_authorized,
        nonce_confirmed_unused=is_unused,
        state=PaymentState.IN_FLIGHT,
    )
    if request.key is None:
        attempt = service.store.payments.insert_pending(new)
    else:
        with service.store.transaction():
            reserve_key(service, new.payment_id, request.key, payment.valid_before)
            attempt = service.store.payments.insert_pending(new)
    if attempt is None:
        _require_unclaimed(service, request)
        raise _claim_conflict(service, new)
    return attempt


def reserve_key(service: Service, payment_id: str, key: IdempotencyKey, valid_before: int) -> None:
    """Reserve a payer's key for its payment, while that may be paid or requested again.

    Raises `Refused` 409 if another payment has it (decision 5/payment-identifier).
    """
    now_s, until_s = service.clock.now_s(), key_ends_s(service, valid_before)
    if not service.store.served.reserve(key, payment_id, until_s, now_s):
        raise web.refused(RequestError.IDENTIFIER_TAKEN)


def key_ends_s(service: Service, valid_before: int) -> int:
    """Return until when a payment keeps its key: while it may be paid, or requested again."""
    now_s, most_s = service.clock.now_s(), service.settings.max_timeout_s
    return max(min(valid_before, MAX_STORED), now_s + most_s)


def _require_unclaimed(service: Service, request: ValidRequest) -> None:
    """Raise `SettlementRefused` if another process on this database has just claimed it."""
    sent = service.store.payments.attempts(request.payment_id)
    if any(_is_same(request, each) and each.status != "failed" for each in sent):
        raise SettlementRefused(Refusal.PENDING, "another request with it is being settled")


def _claim_conflict(service: Service, attempt: Attempt) -> SettlementRefused:
    """Return why an attempt cannot be claimed: for its 402, or because of its own use."""
    rival = service.store.payments.rival(attempt.payment_id, attempt.offered_id)
    if rival is None:
        return SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")
    is_same_way, is_settled = rival.payment_id == attempt.payment_id, rival.status == "settled"
    if is_settled:
        reason = None if is_same_way else _PAID_OTHERWISE
        return SettlementRefused(Refusal.ALREADY_SETTLED, reason)
    return SettlementRefused(
        Refusal.PENDING, _EARLIER_MAY_SETTLE if is_same_way else _OTHER_MAY_SETTLE
    )


# --- steps 2 to 7 ---------------------------------------------------------------------


async def verify(service: Service, request: ValidRequest) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` "Invalid signature" if it does not (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(request.payment, request.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if not verdict.is_valid:
        reasons = filter(None, (verdict.reason, _where_it_differs(service, request)))
        raise NotSettled(Refusal.INVALID_SIGNATURE, "; ".join(reasons))


async def settle(service: Service, request: ValidRequest) -> str:
    """Step 4: have the facilitator settle; return the transaction hash (4.1/settle-on-chain).

    Raises `NotSettled`.
    """
    try:
        outcome = await service.facilitator.settle(request.payment, request.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    except OutcomeUnknown as error:
        service.record(events.SettlementAnswerLost(payment_id=request.payment_id))
        raise NotSettled(
            Refusal.UNREACHABLE, str(error), maybe_submitted=True, is_lost=True
        ) from error
    match outcome:
        case Moved(tx_hash=tx_hash):
            if service.store.payments.paid_by(tx_hash) is not None:
                reason = f"transaction {tx_hash} already paid for another payment id"
                raise NotSettled(Refusal.FAILED, reason, maybe_submitted=True)
            return tx_hash
        case NotMoved(refusal=refusal):
            raise NotSettled(
                refusal,
                _why_not_moved(service, request, outcome),
                maybe_submitted=refusal.row.may_have_been_sent,
            )
        case _:
            assert_never(outcome)


def receipt(attempt: Attempt, tx_hash: str) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    payment_id, at_ms = attempt.payment_id, attempt.timestamp
    return Receipt(success=True, payment_id=payment_id, tx_hash=tx_hash, timestamp=at_ms)


# --- what the facilitator did not settle ----------------------------------------------


async def recover_or_refuse(
    service: Service, request: ValidRequest, attempt: Attempt | None, cause: NotSettled
) -> None:
    """Ask the chain, after the facilitator did not settle; after a lost answer, ask the policy.

    Anyone may submit a signed authorization, so even a refused payment can be paid; then
    it is granted. Otherwise raises `SettlementRefused`, which is final only if the header can
    never pay, or if the policy has forgotten the payment.
    """
    if attempt is None:  # not claimed, so there is nothing to look up
        # a policy that claims last has forgotten what is lost, and never serves it
        raise SettlementRefused(cause.refusal, cause.reason, final=cause.is_lost or None)
    payments, was = service.store.payments, attempt.state
    maybe_submitted = was is PaymentState.MAYBE_SUBMITTED or cause.maybe_submitted
    if not request.is_authorized and not maybe_submitted:
        payments.drop_claim(attempt.number)
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    if (now := payments.reload(attempt)) is None:
        raise _record_missing()
    payment = PendingPaymentHandle(service, now, in_background=False)
    if cause.is_lost:
        await service.settings.policy.lost_answer.resolve(payment)
    else:
        await payment.ask_chain()
    finding = payment.finding
    if finding is ChainFinding.PAID:
        return
    if finding is ChainFinding.NEVER or payment.is_forgotten:
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    if maybe_submitted:
        payments.mark_maybe_submitted(attempt.number)
    else:
        payments.mark_not_submitted(attempt.number)
    is_pending = maybe_submitted and cause.refusal.row.final is not Finality.STATED
    advice = _retry_advice(service, request, now, cause.refusal, finding, maybe_submitted)
    raise SettlementRefused(
        Refusal.PENDING if is_pending else cause.refusal, f"{cause.reason}; {advice}", final=False
    )


def _record_missing() -> SettlementRefused:
    """Return what refuses a payment if another process, or a restored database, has changed it."""
    reason = "the record of this payment has changed meanwhile"
    return SettlementRefused(Refusal.FAILED, reason, final=False)


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


def _retry_advice(
    service: Service,
    request: ValidRequest,
    attempt: Attempt,
    refusal: Refusal,
    finding: ChainFinding,
    maybe_submitted: bool,
) -> str:
    """Return what a payer should know and do, while the header may still pay."""
    again = "send the same payment header again"
    if refusal is Refusal.INSUFFICIENT_BALANCE:
        again = f"fund the payer and {again}"
    signed = request.payment.signed
    if refusal is Refusal.INVALID_SIGNATURE and _where_it_differs(service, request):
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
    """Return the payment id by which a payer can look an attempt up, if any.

    That of a payment in one step is sent only with what it buys: it is a proof of payment, and
    whoever reads the chain can send the authorization.
    """
    auth, terms = request.payment.authorization, request.terms
    if auth is None or auth.value != terms.amount_base:
        return request.payment_id
    is_derived = service.issuer.derive(terms.resource, auth) == request.payment_id
    return attempt.offered_id if is_derived else request.payment_id


def _where_it_differs(service: Service, request: ValidRequest) -> str:
    """Return where a refused payment differs from its requirements; empty if nowhere.

    If it can pay, its signature is right, although only its payer's contract may know that.
    """
    if request.payment.signed is None:
        return ""
    rules = (
        VERIFICATION if not request.is_authorized else without(VERIFICATION, "5/signature-proves")
    )
    case = Verification(request.payment.signed, request.issued, service.env.network)
    broken = first_broken(rules, case)
    return difference(broken.refusal, case) if broken else ""


def _why_not_moved(service: Service, request: ValidRequest, outcome: NotMoved) -> str:
    """Return the facilitator's reason; if it is the time, whose clock says what."""
    auth, now_s = request.payment.authorization, service.clock.now_s()
    if auth is None or outcome.misses is None:
        return outcome.reason
    if outcome.misses == "validAfter":
        return f"{outcome.reason}; {times(outcome.misses, auth.valid_after, now_s)}"
    reason = times(outcome.misses, auth.valid_before, now_s)
    return reason if now_s >= auth.valid_before else f"{reason}, and the chain's is ahead of it"
