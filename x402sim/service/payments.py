"""POST /api/pay: the seven steps of 4.1, in their order.

Around them: requests for one payment id go one after the other, and the id is claimed
in the database before the facilitator may move money, so that neither a crash nor a
lost answer can charge twice or lose a payment.
Clauses: 4.1/*, 5/nonce-once, 5/exact-amount, 7/*.
"""

from typing import Literal

from x402sim.protocol.crypto import checksum, parse_address
from x402sim.protocol.header import authorization_of, decode_header
from x402sim.protocol.messages import BadMessage, Receipt, Settled, SettlementRequest
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import (
    NEVER_PAID,
    NOT_SEEN_PAID,
    Finding,
    Refusal,
    SettlementRefused,
    refusal_of,
)
from x402sim.protocol.rules import Presented, Rules, first_broken
from x402sim.service.grant import grant
from x402sim.service.issue import Terms
from x402sim.service.reconcile import authorization_key, look_up
from x402sim.service.state import Service
from x402sim.service.store import Claim, Stored
from x402sim.service.upstream import OutcomeUnknown, Unavailable


async def pay(service: Service, request: SettlementRequest) -> Receipt:
    """Settle a payment and grant access (4.1/order); raises `SettlementRefused`."""
    terms = validate(service, request)  # step 1
    async with service.settling.hold(request.payment_id):
        earlier = await earlier_attempt(service, request)
        if earlier is None:
            _require(service.freshness_rules, service, request, terms)
            await verify(service, request)  # steps 2 and 3
            claim(service, request, terms)
        if earlier != "settled":
            await settle(service, request, resumed=earlier == "pending")  # steps 4, 5 and 6
        return receipt(service, request.payment_id)  # step 7


def validate(service: Service, request: SettlementRequest) -> Terms:
    """Step 1: the requirements must be those issued under this payment id (4.1/validate).

    Returns what was issued; raises `SettlementRefused`.
    """
    terms = service.issuer.read(request.payment_id)
    if terms is None:
        raise SettlementRefused(Refusal.MISMATCH, "this payment id was not issued here")
    _require(service.settlement_rules, service, request, terms)
    return terms


async def verify(service: Service, request: SettlementRequest) -> None:
    """Steps 2 and 3: have the facilitator verify the signature (4.1/verify-signature).

    Raises `SettlementRefused` "Invalid signature" if it does not (7/invalid-signature).
    """
    requirements = request.payment_requirements
    try:
        verdict = await service.upstream.verify(request.payment_header, requirements)
    except Unavailable as error:
        reason = f"nothing was charged: {error}"
        raise SettlementRefused(Refusal.UNREACHABLE, reason, final=True) from error
    if not verdict.is_valid:
        raise SettlementRefused(Refusal.INVALID_SIGNATURE, verdict.invalid_reason)


def claim(service: Service, request: SettlementRequest, terms: Terms) -> None:
    """Take the payment id and the authorization, before money can move.

    An authorization that is taken already is refused (7/nonce-already-used).
    """
    issued = service.issuer.requirements(terms)
    payer, key, valid_before_s = _read(request.payment_header)
    taken = service.store.claim(
        Claim(
            payment_id=request.payment_id,
            from_address=payer,
            to_address=issued.pay_to,
            amount=issued.max_amount_required,
            resource_url=issued.resource,
            timestamp_ms=service.clock.now_ms(),
            header=request.payment_header,
            authorization_key=key,
            valid_before_s=valid_before_s,
            duration=terms.duration,
        )
    )
    if not taken:
        raise SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")


async def settle(service: Service, request: SettlementRequest, *, resumed: bool) -> None:
    """Steps 4 to 6: have the facilitator settle, store the record, cache the entitlement.

    Clause 4.1/settle-on-chain. Raises `SettlementRefused`; the payment stays pending if
    money may have moved or may still move, and is forgotten if it certainly never will.
    A payment that is `resumed` may be on its way since its first attempt.
    """
    payment_id = request.payment_id
    try:
        outcome = await service.upstream.settle(
            request.payment_header, request.payment_requirements
        )
    except Unavailable as error:
        reason = str(error) if resumed else f"nothing was charged: {error}"
        refused = SettlementRefused(Refusal.UNREACHABLE, reason, final=True)
        over_if = NOT_SEEN_PAID
    except OutcomeUnknown as error:
        service.note("settlement answer lost", payment_id=payment_id)
        refused = SettlementRefused(Refusal.UNREACHABLE, str(error), final=True)
        over_if = NEVER_PAID
    else:
        if isinstance(outcome, Settled):
            _grant_settled(service, payment_id, outcome)
            return
        refused = SettlementRefused(refusal_of(outcome.error), outcome.error, final=True)
        if refused.refusal is Refusal.EXPIRED:
            refused.reason = _why_expired(service, request)
        over_if = refused.refusal.row.over_if
    if resumed:
        over_if = NEVER_PAID
    if await _was_paid_all_the_same(service, payment_id, refused, over_if):
        return
    service.store.release(payment_id)
    raise refused


def _grant_settled(service: Service, payment_id: str, settled: Settled) -> None:
    """Steps 5 and 6; raises `SettlementRefused` if that transaction paid for another id."""
    payer = checksum(parse_address(settled.from_))
    if not grant(service, payment_id, settled.tx_hash, payer):
        service.store.release(payment_id)
        reason = f"transaction {settled.tx_hash} already paid for another payment id"
        raise SettlementRefused(Refusal.FAILED, reason, final=True)


async def _was_paid_all_the_same(
    service: Service,
    payment_id: str,
    refused: SettlementRefused,
    over_if: frozenset[Finding],
) -> bool:
    """Ask the chain, after the facilitator did not settle or did not say.

    Anyone may submit a signed authorization, so even a refusal can mean "paid". False
    if it is over; raises `SettlementRefused` as long as it may still be paid.
    """
    finding = await look_up(service, _stored(service, payment_id))
    if finding == "settled":
        return True
    if finding in over_if:
        return False
    said = refused.refusal
    raise SettlementRefused(
        said if said in (Refusal.UNREACHABLE, Refusal.FAILED) else Refusal.PENDING,
        f"{refused.reason}; it may still be paid: send the same payment header again, or ask "
        "GET /api/payments/{paymentId}; do not sign another one",
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


async def earlier_attempt(
    service: Service, request: SettlementRequest
) -> Literal["settled", "pending"] | None:
    """Tell what is left of an earlier attempt with this payment id.

    None if nothing is in the way; "settled" if it was open until now and the chain says
    it was paid; "pending" if the same header may be sent to the facilitator again.
    Raises `SettlementRefused` if the id is used (7/payment-already-settled), or if
    another header's outcome is still unknown.
    """
    stored = service.store.payment(request.payment_id)
    if stored is None or (stored.record.status == "failed" and not stored.record.tx_hash):
        return None
    if stored.record.status != "pending":
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    is_same = stored.header == request.payment_header
    finding = await look_up(service, stored)
    if finding == "settled":
        if is_same:
            return "settled"
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    if finding == "not settled":
        service.store.release(request.payment_id)
        return None
    if is_same:
        return "pending"
    raise SettlementRefused(Refusal.PENDING, "an earlier payment header may still settle")


def _stored(service: Service, payment_id: str) -> Stored:
    """Return a payment that was claimed; raises `SettlementRefused` if the world was rewound."""
    stored = service.store.payment(payment_id)
    if stored is None:
        raise SettlementRefused(Refusal.FAILED, "the record of this payment is gone", final=False)
    return stored


def _require(
    rules: Rules[Presented, Refusal],
    service: Service,
    request: SettlementRequest,
    terms: Terms,
) -> None:
    """Walk a rule table; raises `SettlementRefused` with the first broken row."""
    case = Presented(
        requirements=request.payment_requirements,
        issued=service.issuer.requirements(terms),
        expires_s=terms.expires_s,
        now_s=service.clock.now_s(),
    )
    broken = first_broken(rules, case)
    if broken:
        raise SettlementRefused(broken.refusal, broken.reason(case))


def _why_expired(service: Service, request: SettlementRequest) -> str:
    """Say which times did not fit, so that a payer sees whose clock is wrong."""
    valid_before_s, now_s = _read(request.payment_header)[2], service.clock.now_s()
    return f"validBefore is {valid_before_s}, the server's clock says {now_s}"


def _read(header: str) -> tuple[str, str | None, int | None]:
    """Return what the header says of payer, authorization and validBefore, if it is readable.

    For the record and for finding a lost settlement; the facilitator judges the rest.
    """
    try:
        auth, _ = authorization_of(decode_header(header))
    except BadMessage:
        return "", None, None
    key = authorization_key(auth.from_, auth.nonce)
    return checksum(auth.from_), key, min(auth.valid_before, MAX_STORED)
