"""POST /api/pay: the seven steps of 4.1, in their order.

Requests for one payment id are serialized. The id and the authorization are claimed in the database
before the facilitator is asked anything, because from then on anybody may submit the authorization.
The claim stays until the chain proves that it can never be used: so neither a crash, a lost answer
nor a third party can charge twice or lose a payment. By default; of `Settings.policy`, `claim` says
when the claim is written, and `verify` whether the facilitator verifies.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from contextlib import nullcontext
from typing import assert_never

import msgspec

from x402sim import events
from x402sim.protocol.crypto import low_v
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import PresentedPayment, present
from x402sim.protocol.messages import PaymentRequirements, Receipt, SettlementRequest
from x402sim.protocol.refusals import NOT_ISSUED, Refusal, SettlementRefused
from x402sim.protocol.rules import AUTHORIZES, Invalid, Verification, first_broken
from x402sim.service.attempts import Attempt, check, claim, require
from x402sim.service.grant import grant
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Stored
from x402sim.service.store.served import Named
from x402sim.service.unsettled import (
    NotSettled,
    gone,
    refuse_unless_paid,
    where_it_differs,
    why_not_moved,
)
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.facilitator import Moved, NotMoved

_NODE_SILENT = "the chain's node did not answer, so nothing was sent to the facilitator"


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
    policy = service.settings.policy
    attempt = await validate(service, request, offered_id, named)  # step 1
    async with service.locks.hold(request.payment_id):
        stored, is_unused = await check(service, attempt)
        if stored is not None and stored.status == "settled":
            return stored_receipt(service, request.payment_id)
        try:
            await require_form(service, attempt, stored)
            if policy.claim.claims_before("verify"):
                stored = stored or claim(service, attempt, seen_unused=is_unused)
            if attempt.can_pay and not is_unused:  # a used one was refused above
                raise NotSettled(Refusal.UNREACHABLE, _NODE_SILENT)
            if verifies and policy.verify.verifies(attempt.terms.amount_base):
                await verify(service, attempt)  # steps 2 and 3
            if not policy.reserves:
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


async def accept(
    service: Service, request: SettlementRequest, offered_id: str | None, named: Named | None
) -> None:
    """Steps 1 to 3 and the claim: what a service does that works or serves before it settles.

    Raises `SettlementRefused`.
    """
    policy = service.settings.policy
    attempt = await validate(service, request, offered_id, named)
    async with service.locks.hold(request.payment_id) if policy.reserves else nullcontext():
        stored, is_unused = await check(service, attempt)
        if stored is not None:  # `check` took it for one that is sent now
            service.store.payments.set_may_move(stored.attempt, stored.may_move)
        try:
            await require_form(service, attempt, stored)
            if policy.verify.verifies(attempt.terms.amount_base):
                await verify(service, attempt)
        except NotSettled as cause:  # what was sent before may still be paid
            is_sent = stored is not None and stored.may_move
            refusal = Refusal.PENDING if is_sent else cause.refusal
            final = None if stored is None else False
            raise SettlementRefused(refusal, cause.reason, final=final) from cause
        if policy.reserves and stored is None:
            stored = claim(service, attempt, seen_unused=is_unused)
            if service.settings.payment_flow is not None:  # if the endpoint fails, it is not sent
                service.store.payments.set_may_move(stored.attempt, False)


async def validate(
    service: Service,
    request: SettlementRequest,
    offered_id: str | None = None,
    named: Named | None = None,
) -> Attempt:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Decodes the payment header, once. Raises `SettlementRefused`.
    """
    payment_id, sent = request.payment_id, request.payment_requirements
    terms = service.issuer.read(payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, NOT_ISSUED)
    payment = present(request.payment_header)
    issued = service.issuer.requirements(terms.resource, terms.amount_base)
    attempt = Attempt(payment_id, payment, terms, sent, issued, offered_id=offered_id, named=named)
    if sent != issued:  # equal ones break no rule
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


async def require_form(service: Service, attempt: Attempt, stored: Stored | None) -> None:
    """Refuse an account's signature with a `v` of 0 or 1 before the facilitator sees it.

    No token takes one, but anybody who has seen it can add 27. So that is final only if the
    authorization was not sent before (7/invalid-signature). Raises `SettlementRefused`, or
    `NotSettled` for an attempt that is `stored`.
    """
    signed = attempt.payment.signed
    if signed is None or (v := low_v(signed.signature)) is None:
        return
    auth = signed.authorization
    try:
        if await service.rpc.has_code(auth.from_):
            return
    except Unavailable as error:
        raise SettlementRefused(Refusal.UNREACHABLE, _NODE_SILENT, final=False) from error
    told = f"v is {v}: the token takes 27 or 28, so add 27 to the signature's last byte"
    if stored is not None:
        raise NotSettled(Refusal.INVALID_SIGNATURE, told)
    was_sent = attempt.can_pay and service.store.payments.is_claimed(auth.from_, auth.nonce)
    if was_sent:
        told += "; the same authorization was sent before, and may still be paid"
    raise SettlementRefused(Refusal.INVALID_SIGNATURE, told, final=not was_sent)


async def verify(service: Service, attempt: Attempt) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `NotSettled` "Invalid signature" if it does not (7/invalid-signature).
    """
    try:
        verdict = await service.facilitator.verify(attempt.payment, attempt.requirements)
    except Unavailable as error:
        raise NotSettled(Refusal.UNREACHABLE, str(error)) from error
    if not verdict.is_valid:
        told = filter(None, (verdict.reason, where_it_differs(service, attempt)))
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
                refusal,
                why_not_moved(service, attempt, outcome),
                may_move=refusal.row.may_have_been_sent,
            )
        case _:
            assert_never(outcome)


def stored_receipt(service: Service, payment_id: str) -> Receipt:
    """Return the receipt of a payment that was settled before.

    Raises `SettlementRefused` if the control API restored an older database meanwhile.
    """
    stored = service.store.payments.get(payment_id)
    if stored is None:
        raise gone()
    return receipt(stored, str(stored.tx_hash))


def receipt(stored: Stored, tx_hash: str) -> Receipt:
    """Step 7: return the transaction hash (4.1/receipt)."""
    payment_id, at_ms = stored.payment_id, stored.timestamp
    return Receipt(success=True, payment_id=payment_id, tx_hash=tx_hash, timestamp=at_ms)
