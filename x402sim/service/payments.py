"""The settlement of a payment: POST /api/pay, the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The id and the authorization are claimed in the database
before the facilitator gets any request, because from then on anybody may submit the authorization:
it pays for one payment id only. The claim stays until the chain proves that it can never be used:
so neither a crash, a lost answer nor a third party can charge twice or lose a payment. By default;
of `Settings.policy`, `claim` says when the claim is written, and `verify` whether the facilitator
verifies.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

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
    Refusal,
    RequestError,
    SettlementRefused,
)
from x402sim.protocol.rules import (
    AUTHORIZES,
    VERIFICATION,
    Invalid,
    Presented,
    Rules,
    Verification,
    first_broken,
    without,
)
from x402sim.service.issue import IssuedTerms
from x402sim.service.reconcile import PendingPaymentHandle, follow_chain, grant
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.served import Named
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


class Submission(msgspec.Struct, frozen=True):
    """One request to settle, with everything in it decoded.

    `terms` and `issued` are what this service issued under the payment id; `requirements` are those
    that the payer sent back, which may differ. `can_pay`: the authorization in the header makes
    the required transfer, whoever submits it. `offered_id` is the payment id of the 402 that a
    payment in one step answers, if its payer has shown it, and `named` what its payer calls it.
    """

    payment_id: str
    payment: PresentedPayment
    terms: IssuedTerms
    requirements: PaymentRequirements
    issued: PaymentRequirements
    can_pay: bool
    offered_id: str | None
    named: Named | None


@dataclass(eq=False)
class NotSettled(Exception):
    """The facilitator did not settle. `may_move`: it got the request, and may still do it.

    `is_lost`: its answer is lost, and it may have done it.
    """

    refusal: Refusal
    reason: str | None
    _: KW_ONLY
    may_move: bool = False
    is_lost: bool = False


async def pay(
    service: Service,
    request: SettlementRequest,
    *,
    offered_id: str | None = None,
    named: Named | None = None,
    verifies: bool = True,
) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`.

    `offered_id` is the payment id of the 402 that a payment in one step answers, if it is known,
    `named` what its payer calls it, and `verifies` is False if its flow has verified it, or lets
    the settlement do that.
    """
    policy, payment_id, tx_hash = service.settings.policy, request.payment_id, ""
    submission = await validate(service, request, offered_id, named)  # step 1
    async with service.locks.hold(payment_id):
        attempt, is_unused = await check(service, submission)
        if attempt is not None and attempt.status == "settled":
            return stored_receipt(service, payment_id)
        try:
            await require_form(service, submission, attempt)
            for step in policy.steps:  # by default the claim comes first: see above
                match step:
                    case "claim":
                        attempt = attempt or claim(service, submission, seen_unused=is_unused)
                    case "verify":  # steps 2 and 3
                        if submission.can_pay and not is_unused:  # `check` refused a used one
                            raise NotSettled(Refusal.UNREACHABLE, _NODE_SILENT)
                        if verifies and policy.verify.verifies(submission.terms.amount_base):
                            await verify(service, submission)
                        if not policy.reserves:
                            service.presented[payment_id] = submission.terms.resource
                    case "settle":  # step 4
                        tx_hash = await settle(service, submission)
                    case _:
                        assert_never(step)
            assert attempt is not None  # one of the steps is the claim
            if grant(service, attempt, tx_hash):  # steps 5 and 6
                return receipt(attempt, tx_hash)  # step 7
        except NotSettled as cause:
            service.presented.pop(payment_id, None)
            await refuse_unless_paid(service, submission, attempt, cause)
        return stored_receipt(service, payment_id)


async def accept(
    service: Service, request: SettlementRequest, offered_id: str | None, named: Named | None
) -> None:
    """Steps 1 to 3 and the claim: what a service does that works or serves before it settles.

    Raises `SettlementRefused`.
    """
    policy = service.settings.policy
    submission = await validate(service, request, offered_id, named)
    async with service.locks.hold(request.payment_id) if policy.reserves else nullcontext():
        attempt, is_unused = await check(service, submission)
        if attempt is not None:  # `check` took it for one that is sent now: undo that
            service.store.payments.set_may_move(attempt.number, attempt.may_move)
        try:
            await require_form(service, submission, attempt)
            if policy.verify.verifies(submission.terms.amount_base):
                await verify(service, submission)
        except NotSettled as cause:  # what was sent before may still be paid
            is_sent = attempt is not None and attempt.may_move
            refusal = Refusal.PENDING if is_sent else cause.refusal
            final = None if attempt is None else False
            raise SettlementRefused(refusal, cause.reason, final=final) from cause
        if policy.reserves and attempt is None:
            attempt = claim(service, submission, seen_unused=is_unused)
            if service.settings.payment_flow is not None:  # if the endpoint fails, it is not sent
                service.store.payments.set_may_move(attempt.number, False)


# --- step 1: what was sent, and what was presented before --------------------------------


async def validate(
    service: Service,
    request: SettlementRequest,
    offered_id: str | None = None,
    named: Named | None = None,
) -> Submission:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Decodes the payment header, once. Raises `SettlementRefused`.
    """
    payment_id, sent = request.payment_id, request.payment_requirements
    terms = service.issuer.read(payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, NOT_ISSUED)
    payment = present(request.payment_header)
    issued = service.issuer.requirements(terms.resource, terms.amount_base)
    if sent != issued:  # equal ones break no rule
        require(service, service.settlement_rules, sent, issued, terms)
    can_pay = await _can_pay(service, payment, issued)
    return Submission(payment_id, payment, terms, sent, issued, can_pay, offered_id, named)


async def _can_pay(
    service: Service, payment: PresentedPayment, issued: PaymentRequirements
) -> bool:
    """Tell whether an authorization pays, whoever submits it; a payer's contract is queried.

    Raises `SettlementRefused` if the node does not answer.
    """
    signed, network = payment.signed, service.env.network
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


async def check(service: Service, submission: Submission) -> tuple[Attempt | None, bool]:
    """Check that the payment id is free for the authorization in the header.

    Returns the record, if the same header was sent before, and whether the chain says that its
    authorization is not used yet. The record is pending, or settled if the chain says only now
    that it was paid. Raises `SettlementRefused` if the id is used (7/payment-already-settled), if
    another header may still pay for it, if the authorization was used before
    (7/nonce-already-used), or if it lasts too long
    (decision 4.1/longest-window).
    """
    presented = service.store.payments.attempts(submission.payment_id)
    earlier = await _earlier_attempt(service, submission, presented) if presented else None
    if earlier is not None:
        return earlier, earlier.seen_unused
    sent, terms = submission.requirements, submission.terms
    require(service, service.freshness_rules, sent, submission.issued, terms)
    until_s, now_s = submission.payment.valid_before, service.clock.now_s()
    most_s = max(service.settings.longest_window_s, 2 * service.settings.max_timeout_s)
    if until_s - now_s > most_s:
        too_long = f"{times('validBefore', until_s, now_s)}; at most {most_s:.0f} s ahead of that"
        raise SettlementRefused(Refusal.INVALID_SIGNATURE, f"{too_long} are taken")
    return None, await _is_unused(service, submission)


async def _earlier_attempt(
    service: Service, submission: Submission, earlier: list[Attempt]
) -> Attempt | None:
    """Return the one of the earlier attempts with the same authorization, as it is by now.

    It is pending or settled. None if there is none, or if it can never be paid. Raises
    `SettlementRefused` if the id is used, or if another header may still be paid.
    """
    payments, same = service.store.payments, None
    if any(attempt.status == "settled" for attempt in earlier):
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    for attempt in earlier:
        is_same, has_failed = _is_same(submission, attempt), attempt.status == "failed"
        if has_failed and not is_same:
            continue
        finding = await follow_chain(service, attempt)
        if finding is ChainFinding.PAID:
            if is_same:
                return payments.now(attempt)
            raise SettlementRefused(Refusal.ALREADY_SETTLED)
        if finding is ChainFinding.NEVER or has_failed:
            continue
        if is_same:
            same = attempt
        elif attempt.may_move:
            raise SettlementRefused(Refusal.PENDING, _EARLIER_MAY_SETTLE)
    if same is not None:
        return _resumed(service, submission, same)
    if len(earlier) >= MAX_ATTEMPTS:
        reason = f"{len(earlier)} payment headers were sent for it; ask for a new payment id"
        raise SettlementRefused(Refusal.PENDING, reason)
    return None


def _resumed(service: Service, submission: Submission, earlier: Attempt) -> Attempt:
    """Return an earlier attempt that is sent to the facilitator again, as the chain sees it now.

    Raises `SettlementRefused` if its 402 was paid otherwise since.
    """
    payments, named = service.store.payments, submission.named
    if named is not None:
        reserve_name(service, submission.payment_id, named, submission.payment.valid_before)
    if not earlier.may_move and not payments.resume(earlier, submission.offered_id):
        raise _claimed_otherwise(service, submission)
    now = payments.now(earlier) or earlier
    return msgspec.structs.replace(now, may_move=earlier.may_move)


def _is_same(submission: Submission, attempt: Attempt) -> bool:
    """Tell whether a header holds the authorization of an earlier attempt."""
    auth = submission.payment.authorization
    if attempt.header == submission.payment.text:
        return True
    if auth is None or not submission.can_pay:
        return False
    return (auth.from_, auth.nonce) == (attempt.payer, attempt.nonce)


async def _is_unused(service: Service, submission: Submission) -> bool:
    """Tell whether the chain says that the authorization is not used yet; False if it is silent.

    One that was used before it was presented here may have paid at another service. Raises
    `SettlementRefused` "Nonce already used" then (5/nonce-once), if its events say so as well: a
    payment that is good needs one call, and only a refusal needs the others.
    """
    if (authorization := submission.payment.authorization) is None or not submission.can_pay:
        return False
    rpc, payer, nonce = service.rpc, authorization.from_, authorization.nonce
    try:
        is_used = await rpc.is_used(payer, nonce) and (await rpc.nonce_state(payer, nonce)).is_used
    except Unavailable:
        return False
    if is_used:
        _require_unclaimed(service, submission)
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


async def require_form(service: Service, submission: Submission, attempt: Attempt | None) -> None:
    """Refuse an account's signature with a `v` of 0 or 1 before the facilitator sees it.

    No token takes one, but anybody who has observed it can add 27. So that is final only if the
    authorization was not sent before (7/invalid-signature). Raises `SettlementRefused`, or
    `NotSettled` if an `attempt` to pay with it is stored.
    """
    signed = submission.payment.signed
    if signed is None or (v := low_v(signed.signature)) is None:
        return
    auth = signed.authorization
    try:
        if await service.rpc.has_code(auth.from_):
            return
    except Unavailable as error:
        raise SettlementRefused(Refusal.UNREACHABLE, _NODE_SILENT, final=False) from error
    reason = f"v is {v}: the token takes 27 or 28, so add 27 to the signature's last byte"
    if attempt is not None:
        raise NotSettled(Refusal.INVALID_SIGNATURE, reason)
    was_sent = submission.can_pay and service.store.payments.is_claimed(auth.from_, auth.nonce)
    if was_sent:
        reason += "; the same authorization was sent before, and may still be paid"
    raise SettlementRefused(Refusal.INVALID_SIGNATURE, reason, final=not was_sent)


# --- the claim ------------------------------------------------------------------------


def claim(service: Service, submission: Submission, *, seen_unused: bool) -> Attempt:
    """Claim the payment id for the authorization in the header; return the pending record.

    With it, the name of a payment is reserved: of two payments with one name, the second is refused
    before anything is settled. Raises `SettlementRefused` if it pays for another payment id
    (7/nonce-already-used), if its 402 is paid in one step and in two, or if another process on this
    database was faster, and `Refused` 409 if another payment has its name.
    """
    payment, issued, auth = submission.payment, submission.issued, submission.payment.authorization
    new = Attempt(
        payment_id=submission.payment_id,
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
        duration=submission.terms.duration,
        offered_id=submission.offered_id,
        can_pay=submission.can_pay,
        seen_unused=seen_unused,
    )
    if submission.named is None:
        attempt = service.store.payments.insert_pending(new)
    else:
        with service.store.transaction():
            reserve_name(service, new.payment_id, submission.named, payment.valid_before)
            attempt = service.store.payments.insert_pending(new)
    if attempt is None:
        _require_unclaimed(service, submission)
        raise _claimed_otherwise(service, submission)
    return attempt


def reserve_name(service: Service, payment_id: str, named: Named, valid_before: int) -> None:
    """Bind the name of a payment to it, while it may be paid or requested again.

    Raises `Refused` 409 if another payment has it (decision 5/payment-identifier).
    """
    now_s, until_s = service.clock.now_s(), name_ends_s(service, valid_before)
    if not service.store.served.reserve(named, payment_id, until_s, now_s):
        raise web.refused(RequestError.IDENTIFIER_TAKEN)


def name_ends_s(service: Service, valid_before: int) -> int:
    """Return until when a payment keeps its name: while it may be paid, or requested again."""
    now_s, most_s = service.clock.now_s(), service.settings.max_timeout_s
    return max(min(valid_before, MAX_STORED), now_s + most_s)


def _require_unclaimed(service: Service, submission: Submission) -> None:
    """Raise `SettlementRefused` if another process on this database has just claimed it."""
    sent = service.store.payments.attempts(submission.payment_id)
    if any(_is_same(submission, each) and each.status != "failed" for each in sent):
        raise SettlementRefused(Refusal.PENDING, "another request with it is being settled")


def _claimed_otherwise(service: Service, submission: Submission) -> SettlementRefused:
    """Return why an authorization cannot be claimed: for its 402, or because of its own use."""
    rival = service.store.payments.rival(submission.payment_id, submission.offered_id)
    if rival is None:
        return SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")
    is_same_way, is_settled = rival.payment_id == submission.payment_id, rival.status == "settled"
    if is_settled:
        reason = None if is_same_way else _PAID_OTHERWISE
        return SettlementRefused(Refusal.ALREADY_SETTLED, reason)
    return SettlementRefused(
        Refusal.PENDING, _EARLIER_MAY_SETTLE if is_same_way else _OTHER_MAY_SETTLE
    )


# --- steps 2 to 7 ---------------------------------------------------------------------


async def verify(service: Service, submission: Submission) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` "Invalid signature" if it does not (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(submission.payment, submission.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if not verdict.is_valid:
        reasons = filter(None, (verdict.reason, _where_it_differs(service, submission)))
        raise NotSettled(Refusal.INVALID_SIGNATURE, "; ".join(reasons))


async def settle(service: Service, submission: Submission) -> str:
    """Step 4: have the facilitator settle; return the transaction hash (4.1/settle-on-chain).

    Raises `NotSettled`.
    """
    try:
        outcome = await service.facilitator.settle(submission.payment, submission.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    except OutcomeUnknown as error:
        service.record(events.SettlementAnswerLost(payment_id=submission.payment_id))
        raise NotSettled(Refusal.UNREACHABLE, str(error), may_move=True, is_lost=True) from error
    match outcome:
        case Moved(tx_hash=tx_hash):
            if service.store.payments.paid_by(tx_hash) is not None:
                reason = f"transaction {tx_hash} already paid for another payment id"
                raise NotSettled(Refusal.FAILED, reason, may_move=True)
            return tx_hash
        case NotMoved(refusal=refusal):
            raise NotSettled(
                refusal,
                _why_not_moved(service, submission, outcome),
                may_move=refusal.row.may_have_been_sent,
            )
        case _:
            assert_never(outcome)


def stored_receipt(service: Service, payment_id: str) -> Receipt:
    """Return the receipt of a payment that was settled before.

    Raises `SettlementRefused` if the control API restored an older database meanwhile.
    """
    attempt = service.store.payments.get(payment_id)
    if attempt is None:
        raise _gone()
    return receipt(attempt, str(attempt.tx_hash))


def receipt(attempt: Attempt, tx_hash: str) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    payment_id, at_ms = attempt.payment_id, attempt.timestamp
    return Receipt(success=True, payment_id=payment_id, tx_hash=tx_hash, timestamp=at_ms)


# --- what the facilitator did not settle ----------------------------------------------


async def refuse_unless_paid(
    service: Service, submission: Submission, attempt: Attempt | None, cause: NotSettled
) -> None:
    """Ask the chain, after the facilitator did not settle; after a lost answer, ask the policy.

    Anyone may submit a signed authorization, so even a refused payment can be paid; then
    it is granted. Otherwise raises `SettlementRefused`, which is final only if the header can
    never pay, or if the policy has forgotten the payment.
    """
    if attempt is None:  # not claimed, so there is nothing to look up
        # A policy that claims last has forgotten what is lost: it never serves it, and says so.
        raise SettlementRefused(cause.refusal, cause.reason, final=cause.is_lost or None)
    payments, may_move = service.store.payments, attempt.may_move or cause.may_move
    if not submission.can_pay and not may_move:
        payments.drop_claim(attempt.number)
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    if (now := payments.now(attempt)) is None:
        raise _gone()
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
    payments.set_may_move(attempt.number, may_move)
    is_pending = may_move and cause.refusal.row.final is not None
    raise SettlementRefused(
        Refusal.PENDING if is_pending else cause.refusal,
        f"{cause.reason}; {_what_now(service, submission, cause.refusal, finding, may_move)}",
        final=False,
    )


def _gone() -> SettlementRefused:
    """Return what refuses a payment if the control API restored an older database meanwhile."""
    return SettlementRefused(Refusal.FAILED, "the record of this payment is gone", final=False)


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


def _what_now(
    service: Service,
    submission: Submission,
    refusal: Refusal,
    finding: ChainFinding,
    may_move: bool,
) -> str:
    """Return what a payer should know and do, while the header may still pay."""
    again = "send the same payment header again"
    if refusal is Refusal.INSUFFICIENT_BALANCE:
        again = f"fund the payer and {again}"
    signed = submission.payment.signed
    if refusal is Refusal.INVALID_SIGNATURE and _where_it_differs(service, submission):
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
    auth = submission.payment.authorization
    if known := _known_id(service, submission):
        again += f", or ask GET /api/payments/{known}"
    if auth is None or may_move or finding is not ChainFinding.NOT_YET:
        return f"it may still be paid: {again}; do not sign another one"
    if refusal is Refusal.EXPIRED:
        return f"not charged by this service, but no block has passed that time yet: {again}"
    until = _date(auth.valid_before)
    is_early = service.clock.now_s() <= auth.valid_after
    valid = f"is valid from {_date(auth.valid_after + 1)}" if is_early else "stays valid"
    return f"not charged by this service; this header {valid} until {until}: {again}"


def _date(at_s: int) -> str:
    return datetime.fromtimestamp(min(at_s, _LAST_DATE_S), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _known_id(service: Service, submission: Submission) -> str | None:
    """Return the payment id that a payer has sent, if any.

    That of a payment in one step is sent only with what it buys: it is a proof of payment, and
    whoever reads the chain can send the authorization.
    """
    auth, terms = submission.payment.authorization, submission.terms
    if auth is None or auth.value != terms.amount_base:
        return submission.payment_id
    is_derived = service.issuer.derive(terms.resource, auth) == submission.payment_id
    return submission.offered_id if is_derived else submission.payment_id


def _where_it_differs(service: Service, submission: Submission) -> str:
    """Return where a refused payment differs from its requirements; empty if nowhere.

    If it can pay, its signature is right, although only its payer's contract may know that.
    """
    if submission.payment.signed is None:
        return ""
    rules = VERIFICATION if not submission.can_pay else without(VERIFICATION, "5/signature-proves")
    case = Verification(submission.payment.signed, submission.issued, service.env.network)
    broken = first_broken(rules, case)
    return difference(broken.refusal, case) if broken else ""


def _why_not_moved(service: Service, submission: Submission, outcome: NotMoved) -> str:
    """Return the facilitator's reason; if it is the time, whose clock says what."""
    auth, now_s = submission.payment.authorization, service.clock.now_s()
    if auth is None or outcome.misses is None:
        return outcome.reason
    if outcome.misses == "validAfter":
        return f"{outcome.reason}; {times(outcome.misses, auth.valid_after, now_s)}"
    reason = times(outcome.misses, auth.valid_before, now_s)
    return reason if now_s >= auth.valid_before else f"{reason}, and the chain's is ahead of it"
