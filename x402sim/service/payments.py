"""The settlement of a payment: POST /api/pay, the seven steps of 4.1, in their order.

A claim is a row of the database: this authorization pays for this payment id, and for no other. The
claim is written before the facilitator gets any request, because from then on anybody may submit
the authorization, and stays until the chain proves the authorization useless. So neither a crash,
nor a lost answer, nor a third party can charge a payer twice or lose a payment.

The default order of `pay`, and of `accept` as far as `verify`:

    validate                   step 1: decode the header, compare with the terms
    resume_earlier, or admit   the attempt: an earlier one again, or a new one
    claim_if_due               a new attempt
    verify                     steps 2 and 3, at the facilitator
    settle                     step 4, at the facilitator
    recover                    only after a refusal or without an answer: ask the chain
    grant, receipt             steps 5 and 6, step 7

`claim_and_verify` has the steps from `resume_earlier` to `verify`. Requests for one payment id are
serialized. `Settings.policy` can change the default: `verify` decides whether the facilitator
verifies, `claim` when the claim is written, once: before `verify`, before `settle`, or at last
before `grant`. So `claim_if_due` claims at one of the first two places, and `ensure_claimed` at the
last if neither did. The table `PAYMENT` of `protocol.states` has the moves of a payment in each
state. `recover` of `unsettled.py` looks up on the chain whatever the facilitator does not settle.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Literal

from msgspec.structs import replace

from x402sim import events
from x402sim.http import web
from x402sim.protocol.crypto import checksum, low_v
from x402sim.protocol.differences import too_far
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import present
from x402sim.protocol.messages import Receipt, SettlementRequest
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
    InvalidReason,
    Presented,
    Rules,
    Verification,
    first_broken,
)
from x402sim.protocol.states import PaymentState
from x402sim.service.reconcile import follow_chain, grant
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.served import IdempotencyKey
from x402sim.service.unsettled import (
    NODE_SILENT,
    NotSettled,
    ValidRequest,
    not_moved,
    record_changed,
    recover,
    reject_low_v,
    settled_attempt,
    where_it_differs,
)
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import NotMoved

MAX_ATTEMPTS = 8
"""The most payment headers for one payment id."""

_USED_BEFORE = "the authorization was used before it was presented for this payment id"
_EARLIER_MAY_SETTLE = "an earlier payment header may still settle"
_OTHER_MAY_SETTLE = "another payment of its 402 may still settle"
_PAID_OTHERWISE = "its 402 was paid already: in one step, or by POST /api/pay"


async def pay(
    service: Service,
    sent: SettlementRequest,
    *,
    offered_id: str | None = None,
    key: IdempotencyKey | None = None,
    verifies: bool = True,
) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`.

    The other arguments are of a payment in one step. `offered_id` is the payment id of the paid
    402, if known. `key` is the payer's own id of the payment. `verifies` is False if the payment
    flow has verified already, or lets the settlement verify.
    """
    request = await validate(service, sent, offered_id, key)  # step 1
    async with service.locks.hold(request.payment_id):
        attempt = await claim_and_verify(service, request, verifies=verifies)
        if attempt.state is PaymentState.SETTLED:  # resumed or recovered
            return receipt(attempt)
        try:
            tx_hash = await settle(service, request)  # step 4
        except NotSettled as cause:
            return receipt(await recover(service, request, attempt, cause))
        attempt = ensure_claimed(service, request, attempt)
        settled = grant(service, attempt, tx_hash)  # steps 5 and 6
        return receipt(settled or settled_attempt(service, request.payment_id))  # step 7


async def accept(
    service: Service, sent: SettlementRequest, offered_id: str | None, key: IdempotencyKey | None
) -> None:
    """Take steps 1 to 3, and claim: the part before the work of a service that settles later.

    Raises `SettlementRefused`.
    """
    reserves = service.env.settings.policy.reserves
    request = await validate(service, sent, offered_id, key)
    async with service.locks.hold(request.payment_id) if reserves else nullcontext():
        attempt = await claim_and_verify(service, request)
        if reserves:
            attempt = ensure_claimed(service, request, attempt)
        if service.env.settings.payment_flow is not None:
            # the endpoint works before anything is sent
            service.store.payments.mark_not_submitted(attempt.number)


async def claim_and_verify(
    service: Service, request: ValidRequest, *, verifies: bool = True
) -> Attempt:
    """Claim a payment and take steps 2 and 3, in the order of the policy; return its attempt.

    An earlier payment is resumed, and may be settled. If the policy claims last, a new attempt is
    not stored yet. Raises `SettlementRefused`.
    """
    policy = service.env.settings.policy
    presented = service.store.payments.attempts(request.payment_id)
    earlier = await resume_earlier(service, request, presented) if presented else None
    attempt = earlier or await admit(service, request)
    if attempt.state is PaymentState.SETTLED:
        return attempt
    try:
        if (signed := request.payment.signed) and low_v(signed.signature) is not None:
            await reject_low_v(service, request, signed, attempt)
        attempt = claim_if_due("verify", service, request, attempt)  # by default
        if request.is_authorized and not attempt.nonce_confirmed_unused:
            # the node was silent; a use reported later may be older than this payment
            raise NotSettled(Refusal.CHAIN_UNREACHABLE, NODE_SILENT)
        if verifies and policy.verify.verifies(request.terms.amount_base):
            await verify(service, request)
        attempt = claim_if_due("settle", service, request, attempt)
    except NotSettled as cause:
        return await recover(service, request, attempt, cause)
    return attempt


# --- step 1 ---------------------------------------------------------------------------


async def validate(
    service: Service,
    sent: SettlementRequest,
    offered_id: str | None = None,
    key: IdempotencyKey | None = None,
) -> ValidRequest:
    """Step 1: the requirements must be as issued under this payment id (4.1/validate).

    Decodes the payment header, once. Raises `SettlementRefused`.
    """
    payment_id, requirements = sent.payment_id, sent.payment_requirements
    terms = service.issuer.read(payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, NOT_ISSUED)
    payment, now_s = present(sent.payment_header), service.clock.now_s()
    issued = service.issuer.requirements(terms.resource, terms.amount_base)
    if requirements != issued:  # equal ones break no rule
        case = Presented(requirements, issued, expires_s=terms.expires_s, now_s=now_s)
        require(service.settlement_rules, case)
    signed, is_authorized = payment.signed, False
    if signed is not None:
        broken = first_broken(AUTHORIZES, Verification(signed, issued, service.env.network))
        is_authorized = broken is None
        if broken is not None and broken.refusal is InvalidReason.SIGNATURE:
            auth = signed.authorization  # the payer may be a contract that accepts the signature
            digest = transfer_digest(auth, service.env.network.domain)
            try:
                is_authorized = await service.rpc.accepts(auth.from_, digest, signed.signature)
            except Unavailable as error:
                raise SettlementRefused(Refusal.CHAIN_UNREACHABLE, NODE_SILENT) from error
    return ValidRequest(
        payment_id, payment, terms, requirements, issued, is_authorized, offered_id, key
    )


def require(rules: Rules[Presented, Refusal], case: Presented) -> None:
    """Check a rule table; raises `SettlementRefused` with the first failing row."""
    if broken := first_broken(rules, case):
        raise SettlementRefused(broken.refusal, broken.reason(case))


# --- earlier attempts -----------------------------------------------------------------


async def resume_earlier(
    service: Service, request: ValidRequest, presented: list[Attempt]
) -> Attempt | None:
    """Return the earlier attempt with the same authorization, to be resumed; None without one.

    First the records of the earlier attempts are updated from the chain. The attempt is pending, or
    settled if the chain reports the payment only now. Raises `SettlementRefused` for a used payment
    id (7/payment-already-settled), if another header may still pay, or after too many headers.
    """
    if any(attempt.state is PaymentState.SETTLED for attempt in presented):
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    same, may_settle = None, False
    for attempt in presented:
        is_same = _is_same(request, attempt)
        if attempt.state is PaymentState.FAILED and not is_same:
            continue  # a failed attempt concerns no other authorization
        finding = await follow_chain(service, attempt)
        if finding is ChainFinding.PAID:
            if not is_same:
                raise SettlementRefused(Refusal.ALREADY_SETTLED)
            return resume(service, request, attempt)
        if finding is ChainFinding.NEVER or attempt.state is PaymentState.FAILED:
            continue
        if is_same:
            same = attempt
        elif not _has_same_nonce(request, attempt):  # two with one nonce cannot both pay
            may_settle |= attempt.state is not PaymentState.NOT_SUBMITTED
    if may_settle:
        raise SettlementRefused(Refusal.PENDING, _EARLIER_MAY_SETTLE)
    if same is not None:
        return resume(service, request, same)
    if len(presented) >= MAX_ATTEMPTS:
        reason = f"{len(presented)} payment headers were sent for it; ask for a new payment id"
        raise SettlementRefused(Refusal.PENDING, reason)
    return None


def resume(service: Service, request: ValidRequest, earlier: Attempt) -> Attempt:
    """Record that an earlier attempt is sent again, unless settled; return the attempt.

    Raises `SettlementRefused` if another payment has paid for the 402 since, or if the
    authorization pays for another payment id. Raises `Refused` 409 if another payment has the key.
    """
    payments = service.store.payments
    if (now := payments.reload(earlier)) is None:
        raise record_changed()
    if now.state is PaymentState.SETTLED:
        return now
    if now.state is PaymentState.FAILED:  # paid, but another payment id has claimed it since
        raise _claim_conflict(service, now)
    # The 402 of the first request counts. Since then the facilitator may have published the
    # authorization: then anybody can send the authorization and name a 402 of their own.
    named = now.offered_id or request.offered_id
    resumed = _written(service, request, lambda: payments.resume(now, named))
    if resumed is None:
        raise _claim_conflict(service, replace(now, offered_id=named))
    return resumed


def _is_same(request: ValidRequest, attempt: Attempt) -> bool:
    """Tell whether a header holds the authorization of an earlier attempt.

    An able header starts a new attempt after an unable attempt, which claims no nonce: the
    signature was another, or the smart wallet had not approved yet.
    """
    if request.is_authorized and not attempt.is_authorized:
        return False
    if attempt.header == request.payment.text:
        return True
    return request.is_authorized and _has_same_nonce(request, attempt)


def _has_same_nonce(request: ValidRequest, attempt: Attempt) -> bool:
    auth = request.payment.authorization
    return auth is not None and (auth.from_, auth.nonce) == (attempt.payer, attempt.nonce)


# --- a new attempt, and the claim ---------------------------------------------------------


def lasts_too_long(service: Service, valid_before: int) -> str:
    """Return the reason if an authorization lasts too long, else "" (4.1/longest-window)."""
    now_s, settings = service.clock.now_s(), service.env.settings
    most_s = max(settings.longest_window_s, 2 * settings.max_timeout_s)
    return too_far(valid_before, now_s, most_s) if valid_before - now_s > most_s else ""


async def admit(service: Service, request: ValidRequest) -> Attempt:
    """Return the new attempt of an authorization (state `NEW`).

    Raises `SettlementRefused` for an expired 402, for an authorization that lasts too long
    (decision 4.1/longest-window), and for a used authorization.
    """
    issued, payment, auth = request.issued, request.payment, request.payment.authorization
    now_s, expires_s = service.clock.now_s(), request.terms.expires_s
    case = Presented(request.requirements, issued, expires_s=expires_s, now_s=now_s)
    require(service.freshness_rules, case)
    if reason := lasts_too_long(service, payment.valid_before):
        raise SettlementRefused(Refusal.EXPIRED, reason)
    return Attempt(
        payment_id=request.payment_id,
        from_address=checksum(auth.from_) if auth else "",
        to_address=issued.pay_to,
        amount=issued.max_amount_required,
        resource_url=issued.resource,
        payer=auth.from_ if auth else None,
        nonce=auth.nonce if auth else None,
        valid_before_s=min(payment.valid_before, MAX_STORED) if auth else None,
        header=payment.text,
        duration=request.terms.duration,
        offered_id=request.offered_id,
        is_authorized=request.is_authorized,
        nonce_confirmed_unused=await is_unused(service, request),
    )


async def is_unused(service: Service, request: ValidRequest) -> bool:
    """Tell whether the chain reports the authorization unused; False for a silent node.

    An authorization used before may have paid at another service: this raises `SettlementRefused`
    "Nonce already used" (5/nonce-once). The token's events are queried only after a reported use; a
    good payment needs one call.
    """
    if (auth := request.payment.authorization) is None or not request.is_authorized:
        return False
    rpc, payer, nonce = service.rpc, auth.from_, auth.nonce
    try:
        is_used = await rpc.is_used(payer, nonce) and (await rpc.nonce_state(payer, nonce)).is_used
    except Unavailable:
        return False
    if is_used:
        _require_unclaimed(service, request)
        raise SettlementRefused(Refusal.NONCE_USED, _USED_BEFORE)
    return True


def ensure_claimed(service: Service, request: ValidRequest, attempt: Attempt) -> Attempt:
    """Claim the payment id for the authorization of a new attempt; return the pending record.

    An attempt claimed already is returned unchanged. The payer's key is reserved with the claim: of
    two payments with a key, the second is refused before anything is settled. Raises
    `SettlementRefused` if the authorization pays for another payment id (7/nonce-already-used), if
    the 402 is paid in one step and in two, or if another service on this store was faster. Raises
    `Refused` 409 if another payment has the key.
    """
    if attempt.state is not PaymentState.NEW:
        return attempt
    new = replace(attempt, timestamp=service.clock.now_ms(), state=PaymentState.IN_FLIGHT)
    claimed = _written(service, request, lambda: service.store.payments.insert_pending(new))
    if claimed is None:
        _require_unclaimed(service, request)
        raise _claim_conflict(service, new)
    return claimed


def claim_if_due(
    before: Literal["verify", "settle"], service: Service, request: ValidRequest, attempt: Attempt
) -> Attempt:
    """Claim a new attempt now if the policy claims before this step; return the attempt."""
    if attempt.state is not PaymentState.NEW:
        return attempt
    is_due = service.env.settings.policy.claim.claims_before(before)
    return ensure_claimed(service, request, attempt) if is_due else attempt


def _written(
    service: Service, request: ValidRequest, write: Callable[[], Attempt | None]
) -> Attempt | None:
    """Write a claim, together with the reservation of the payer's key, if any."""
    if request.key is None:
        return write()
    with service.store.transaction():
        reserve_key(service, request.payment_id, request.key, request.payment.valid_before)
        return write()


def reserve_key(service: Service, payment_id: str, key: IdempotencyKey, valid_before: int) -> None:
    """Reserve a payer's key for the payment, until `key_ends_s`.

    Raises `Refused` 409 if another payment has the key (decision 5/payment-identifier).
    """
    now_s, until_s = service.clock.now_s(), key_ends_s(service, valid_before)
    if not service.store.served.reserve(key, payment_id, until_s, now_s):
        raise web.refused(RequestError.IDENTIFIER_TAKEN)


def key_ends_s(service: Service, valid_before: int) -> int:
    """Return the end of a payment's key: the end of the window for payment and repetition."""
    now_s, most_s = service.clock.now_s(), service.env.settings.max_timeout_s
    return max(min(valid_before, MAX_STORED), now_s + most_s)


def _require_unclaimed(service: Service, request: ValidRequest) -> None:
    """Raise `SettlementRefused` if another service on this store has just claimed the payment."""
    sent = service.store.payments.attempts(request.payment_id)
    if any(
        _is_same(request, attempt) and attempt.state is not PaymentState.FAILED for attempt in sent
    ):
        raise SettlementRefused(Refusal.PENDING, "another request with it is being settled")


def _claim_conflict(service: Service, attempt: Attempt) -> SettlementRefused:
    """Return the reason against a claim: the 402 is taken, or the authorization is."""
    rival = service.store.payments.rival(attempt.payment_id, attempt.offered_id)
    if rival is None:
        return SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")
    is_same_way = rival.payment_id == attempt.payment_id
    if rival.state is PaymentState.SETTLED:
        reason = None if is_same_way else _PAID_OTHERWISE
        return SettlementRefused(Refusal.ALREADY_SETTLED, reason)
    return SettlementRefused(
        Refusal.PENDING, _EARLIER_MAY_SETTLE if is_same_way else _OTHER_MAY_SETTLE
    )


# --- steps 2 to 4, and 7 --------------------------------------------------------------


async def verify(service: Service, request: ValidRequest) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` otherwise, by default "Invalid signature" (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(request.payment, request.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if verdict.refused is not None:
        refused = not_moved(service, request, verdict.refused)
        raise NotSettled(refused.refusal, refused.reason)  # nothing was sent
    if not verdict.is_valid:
        reasons = filter(None, (verdict.reason, where_it_differs(service, request)))
        raise NotSettled(Refusal.INVALID_SIGNATURE, "; ".join(reasons))


async def settle(service: Service, request: ValidRequest) -> str:
    """Step 4: have the facilitator settle; return the transaction hash (4.1/settle-on-chain).

    Raises `NotSettled`.
    """
    payment_id, unreserved = request.payment_id, service.unreserved_in_flight
    if not service.env.settings.policy.reserves:
        unreserved[payment_id] = request.terms.resource
    try:
        outcome = await service.facilitator.settle(request.payment, request.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    except OutcomeUnknown as lost:
        service.record(events.SettlementAnswerLost(payment_id=payment_id))
        raise NotSettled(
            Refusal.UNREACHABLE, str(lost), maybe_submitted=True, is_lost=True
        ) from lost
    finally:
        unreserved.pop(payment_id, None)
    if isinstance(outcome, NotMoved):
        raise not_moved(service, request, outcome)
    if service.store.payments.paid_by(outcome.tx_hash) is not None:
        reason = f"transaction {outcome.tx_hash} already paid for another payment id"
        raise NotSettled(Refusal.FAILED, reason, maybe_submitted=True)
    return outcome.tx_hash


def receipt(settled: Attempt) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    paid, tx_hash, now_ms = settled.payment_id, str(settled.tx_hash), settled.timestamp
    return Receipt(success=True, payment_id=paid, tx_hash=tx_hash, timestamp=now_ms)
