"""The attempts to pay a payment id: which authorizations were presented, which one claims it.

An authorization pays for one payment id only. A claim stays until the chain proves that the
authorization can never be used.
Clauses: 5/nonce-once, 7/payment-already-settled, 7/nonce-already-used.
"""

from contextlib import nullcontext

import msgspec

from x402sim.http import web
from x402sim.protocol.crypto import checksum
from x402sim.protocol.differences import times
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import ChainFinding, Refusal, RequestError, SettlementRefused
from x402sim.protocol.rules import Presented, Rules, first_broken
from x402sim.service.issue import IssuedTerms
from x402sim.service.reconcile import follow_chain
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Stored
from x402sim.service.store.served import Named
from x402sim.service.upstream.calls import Unavailable

MAX_ATTEMPTS = 8
"""The most payment headers that can be presented for one payment id."""


class Attempt(msgspec.Struct, frozen=True):
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
    can_pay: bool = False
    offered_id: str | None = None
    named: Named | None = None


async def check(service: Service, attempt: Attempt) -> tuple[Stored | None, bool]:
    """Check that the payment id is free for the authorization in the header.

    Returns the record, if the same header was sent before, and whether the chain says that its
    authorization is not used yet. The record is pending, or settled if the chain says only now
    that it was paid. Raises `SettlementRefused` if the id is used (7/payment-already-settled), if
    another header may still pay for it, if the authorization was used before
    (7/nonce-already-used), or if it lasts too long
    (decision 4.1/longest-window).
    """
    sent = service.store.payments.attempts(attempt.payment_id)
    earlier = await _earlier_attempt(service, attempt, sent) if sent else None
    if earlier is not None:
        return earlier, earlier.seen_unused
    require(service, service.freshness_rules, attempt)
    until_s, now_s = attempt.payment.valid_before, service.clock.now_s()
    most_s = max(service.settings.longest_window_s, 2 * service.settings.max_timeout_s)
    if until_s - now_s > most_s:
        told = times("validBefore", until_s, now_s)
        reason = f"{told}; at most {most_s:.0f} s ahead of that are taken"
        raise SettlementRefused(Refusal.INVALID_SIGNATURE, reason)
    return None, await _is_unused(service, attempt)


def claim(service: Service, attempt: Attempt, *, seen_unused: bool) -> Stored:
    """Claim the payment id for the authorization in the header; return the pending record.

    With it, the name of a payment is reserved: of two payments with one name, the second is refused
    before anything is settled. Raises `SettlementRefused` if it pays for another payment id
    (7/nonce-already-used), if its 402 is paid in one step and in two, or if another process on this
    database was faster, and `Refused` 409 if another payment has its name.
    """
    payment, issued, auth = attempt.payment, attempt.issued, attempt.payment.authorization
    new = Stored(
        payment_id=attempt.payment_id,
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
        duration=attempt.terms.duration,
        offered_id=attempt.offered_id,
        can_pay=attempt.can_pay,
        seen_unused=seen_unused,
    )
    with service.store.transaction() if attempt.named is not None else nullcontext():
        reserve_name(service, attempt.payment_id, attempt.named, payment.valid_before)
        stored = service.store.payments.insert_pending(new)
    if stored is None:
        _require_unclaimed(service, attempt)
        raise _claimed_otherwise(service, attempt)
    return stored


def reserve_name(service: Service, payment_id: str, named: Named | None, valid_before: int) -> None:
    """Bind the name of a payment to it, while it may be paid or asked for again.

    Raises `Refused` 409 if another payment has it (decision 5/payment-identifier).
    """
    if named is None:
        return
    now_s = service.clock.now_s()
    until_s = max(min(valid_before, MAX_STORED), now_s + service.settings.max_timeout_s)
    if not service.store.served.reserve(named, payment_id, until_s, now_s):
        raise web.refused(RequestError.IDENTIFIER_TAKEN)


def _require_unclaimed(service: Service, attempt: Attempt) -> None:
    """Raise `SettlementRefused` if another process on this database has just claimed it."""
    sent = service.store.payments.attempts(attempt.payment_id)
    if any(_is_same(attempt, each) and each.status != "failed" for each in sent):
        raise SettlementRefused(Refusal.PENDING, "another request with it is being settled")


def _claimed_otherwise(service: Service, attempt: Attempt) -> SettlementRefused:
    """Return why an authorization cannot be claimed: for its 402, or because of its own use."""
    match service.store.payments.rival(attempt.payment_id, attempt.offered_id):
        case None:
            return SettlementRefused(Refusal.NONCE_USED, "it pays for another payment id")
        case "settled":
            return SettlementRefused(
                Refusal.ALREADY_SETTLED,
                "its 402 was paid already: in one step, or by POST /api/pay",
            )
        case _:
            return SettlementRefused(Refusal.PENDING, "another payment of its 402 may still settle")


def require(service: Service, rules: Rules[Presented, Refusal], attempt: Attempt) -> None:
    """Check a rule table; raises `SettlementRefused` with the first row that fails."""
    expires_s, now_s = attempt.terms.expires_s, service.clock.now_s()
    case = Presented(attempt.requirements, attempt.issued, expires_s=expires_s, now_s=now_s)
    if broken := first_broken(rules, case):
        raise SettlementRefused(broken.refusal, broken.reason(case))


async def _earlier_attempt(
    service: Service, attempt: Attempt, earlier: list[Stored]
) -> Stored | None:
    """Return the one of the earlier attempts with the same authorization, as it is by now.

    It is pending or settled. None if there is none, or if it can never be paid. Raises
    `SettlementRefused` if the id is used, or if another header may still be paid.
    """
    payments, same = service.store.payments, None
    if any(stored.status == "settled" for stored in earlier):
        raise SettlementRefused(Refusal.ALREADY_SETTLED)
    for stored in earlier:
        is_same, has_failed = _is_same(attempt, stored), stored.status == "failed"
        if has_failed and not is_same:
            continue
        finding = await follow_chain(service, stored)
        if finding is ChainFinding.PAID:
            if is_same:
                return payments.now(stored)
            raise SettlementRefused(Refusal.ALREADY_SETTLED)
        if finding is ChainFinding.NEVER or has_failed:
            continue
        if is_same:
            same = stored
        elif stored.may_move:
            raise SettlementRefused(Refusal.PENDING, "an earlier payment header may still settle")
    if same is not None:
        return _resumed(service, attempt, same)
    if len(earlier) >= MAX_ATTEMPTS:
        reason = f"{len(earlier)} payment headers were sent for it; ask for a new payment id"
        raise SettlementRefused(Refusal.PENDING, reason)
    return None


def _resumed(service: Service, attempt: Attempt, earlier: Stored) -> Stored:
    """Return an earlier attempt that is sent to the facilitator again, as the chain sees it now.

    Raises `SettlementRefused` if its 402 was paid in the other way since.
    """
    payments = service.store.payments
    reserve_name(service, attempt.payment_id, attempt.named, attempt.payment.valid_before)
    if not earlier.may_move:
        if payments.rival(attempt.payment_id, attempt.offered_id) is not None:
            raise _claimed_otherwise(service, attempt)
        payments.set_may_move(earlier.attempt, True)
    now = payments.now(earlier) or earlier
    return msgspec.structs.replace(now, may_move=earlier.may_move)


def _is_same(attempt: Attempt, stored: Stored) -> bool:
    """Tell whether a header holds the authorization of an earlier attempt."""
    auth = attempt.payment.authorization
    if stored.header == attempt.payment.text:
        return True
    if auth is None or not attempt.can_pay:
        return False
    return (auth.from_, auth.nonce) == (stored.payer, stored.nonce)


async def _is_unused(service: Service, attempt: Attempt) -> bool:
    """Tell whether the chain says that the authorization is not used yet; False if it is silent.

    One that was used before it was presented here may have paid at another service. Raises
    `SettlementRefused` "Nonce already used" then (5/nonce-once), if its events say so as well: a
    payment that is good needs one call, and only a refusal needs the others.
    """
    if (authorization := attempt.payment.authorization) is None or not attempt.can_pay:
        return False
    rpc, payer, nonce = service.rpc, authorization.from_, authorization.nonce
    try:
        is_used = await rpc.is_used(payer, nonce) and (await rpc.nonce_state(payer, nonce)).is_used
    except Unavailable:
        return False
    if is_used:
        _require_unclaimed(service, attempt)
        reason = "the authorization was used before it was presented for this payment id"
        raise SettlementRefused(Refusal.NONCE_USED, reason)
    return True
