"""The settlement of a payment: POST /api/pay, the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The claim comes first, before the facilitator gets any
request; `claims.py` says why. This is the default. `Settings.policy` can change it: `claim` says
when the claim is written, and `verify` whether the facilitator verifies. The table `PAYMENT` of
`protocol.states` says what can happen to a payment in each state. What the facilitator does not
settle, `unsettled.py` looks up on the chain.
Clauses: 4.1/*, 7/*.
"""

from contextlib import nullcontext

from x402sim.protocol.crypto import low_v
from x402sim.protocol.messages import Receipt, SettlementRequest
from x402sim.protocol.refusals import Refusal
from x402sim.service.claims import NODE_SILENT, ValidRequest, claim, resume_or_admit, validate
from x402sim.service.reconcile import grant
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Attempt
from x402sim.service.store.served import IdempotencyKey
from x402sim.service.unsettled import (
    NotSettled,
    not_answered,
    not_moved,
    recover,
    reject_low_v,
    settled_attempt,
    where_it_differs,
)
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import NotMoved


async def pay(
    service: Service,
    sent: SettlementRequest,
    *,
    offered_id: str | None = None,
    key: IdempotencyKey | None = None,
    verifies: bool = True,
) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`.

    The other arguments are of a payment in one step. `offered_id` is the payment id of the 402 that
    it answers, if that is known. `key` is the payer's own id of it. `verifies` is False if its flow
    has verified it already, or lets the settlement verify it.
    """
    request = await validate(service, sent, offered_id, key)  # step 1
    async with service.locks.hold(request.payment_id):
        attempt = await claimed_and_verified(service, request, verifies=verifies)  # steps 2 and 3
        if attempt.status == "settled":
            return receipt(attempt)
        try:
            tx_hash = await settle(service, request)  # step 4
        except NotSettled as cause:
            return receipt(await recover(service, request, attempt, cause))
        # the default policy has claimed it already, before step 3
        attempt = claim(service, request, attempt)
        settled = grant(service, attempt, tx_hash)  # steps 5 and 6
        return receipt(settled or settled_attempt(service, request.payment_id))  # step 7


async def accept(
    service: Service, sent: SettlementRequest, offered_id: str | None, key: IdempotencyKey | None
) -> None:
    """Take steps 1 to 3, and claim: all that is done before a service that settles later works.

    Raises `SettlementRefused`.
    """
    reserves = service.settings.policy.reserves
    request = await validate(service, sent, offered_id, key)
    async with service.locks.hold(request.payment_id) if reserves else nullcontext():
        attempt = await claimed_and_verified(service, request)
        if reserves:
            attempt = claim(service, request, attempt)
        if service.settings.payment_flow is not None:
            # nothing is sent before the endpoint has worked
            service.store.payments.mark_not_submitted(attempt.number)


async def claimed_and_verified(
    service: Service, request: ValidRequest, *, verifies: bool = True
) -> Attempt:
    """Claim a payment and take steps 2 and 3, in the order of the policy; return its attempt.

    A payment that was presented before is resumed, and its attempt may be settled. If the policy
    claims last, a new attempt is not stored yet. Raises `SettlementRefused`.
    """
    policy = service.settings.policy
    attempt = await resume_or_admit(service, request)
    if attempt.status == "settled":
        return attempt
    try:
        if (signed := request.payment.signed) and low_v(signed.signature) is not None:
            await reject_low_v(service, request, signed, attempt)
        if policy.claim.claims_before("verify"):  # by default
            attempt = claim(service, request, attempt)
        if request.is_authorized and not attempt.nonce_confirmed_unused:
            # the node was silent; a use that it reports later may be older than this payment
            raise NotSettled(Refusal.CHAIN_UNREACHABLE, NODE_SILENT)
        if verifies and policy.verify.verifies(request.terms.amount_base):
            await verify(service, request)
        if policy.claim.claims_before("settle"):
            attempt = claim(service, request, attempt)
    except NotSettled as cause:
        return await recover(service, request, attempt, cause)
    return attempt


async def verify(service: Service, request: ValidRequest) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` "Invalid signature" if it does not (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(request.payment, request.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if not verdict.is_valid:
        reasons = filter(None, (verdict.reason, where_it_differs(service, request)))
        raise NotSettled(Refusal.INVALID_SIGNATURE, "; ".join(reasons))


async def settle(service: Service, request: ValidRequest) -> str:
    """Step 4: have the facilitator settle; return the transaction hash (4.1/settle-on-chain).

    Raises `NotSettled`.
    """
    payment_id, unreserved = request.payment_id, service.unreserved_in_flight
    if not service.settings.policy.reserves:
        unreserved[payment_id] = request.terms.resource
    try:
        outcome = await service.facilitator.settle(request.payment, request.requirements)
    except (Unavailable, OutcomeUnknown) as error:
        raise not_answered(service, request, error) from error
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
