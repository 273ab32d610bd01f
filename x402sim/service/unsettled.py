"""What becomes of a payment that the facilitator did not settle, and what its payer is told.

Clauses: 5/nonce-once, 7/*.
"""

from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime

from x402sim import events
from x402sim.events import MAX_REASON, clipped
from x402sim.protocol.crypto import canonical
from x402sim.protocol.differences import difference, times
from x402sim.protocol.refusals import ChainFinding, Refusal, SettlementRefused
from x402sim.protocol.rules import VERIFICATION, Verification, first_broken, without
from x402sim.service.attempts import Attempt
from x402sim.service.reconcile import Unresolved
from x402sim.service.state import Service
from x402sim.service.store.payment_records import Stored
from x402sim.service.upstream.facilitator import NotMoved

_LAST_DATE_S = 253_402_300_799
"""The end of the year 9999, the last date of ISO 8601."""


@dataclass(eq=False)
class NotSettled(Exception):
    """The facilitator did not settle. `may_move`: it was asked to, and may still do it.

    `is_lost`: its answer is lost, and it may have done it.
    """

    refusal: Refusal
    reason: str | None
    _: KW_ONLY
    may_move: bool = False
    is_lost: bool = False


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
    if (now := payments.now(stored)) is None:
        raise gone()
    payment = Unresolved(service, now, in_background=False)
    if cause.is_lost:
        await service.settings.policy.lost_answer.resolve(payment)
    else:
        await payment.ask_chain()
    finding = payment.finding
    if finding is ChainFinding.PAID:
        return
    if finding is ChainFinding.NEVER or payment.is_forgotten:
        raise SettlementRefused(cause.refusal, cause.reason, final=True)
    payments.set_may_move(stored.attempt, may_move)
    is_pending = may_move and cause.refusal.row.final is not None
    raise SettlementRefused(
        Refusal.PENDING if is_pending else cause.refusal,
        f"{cause.reason}; {_what_now(service, attempt, cause.refusal, finding, may_move)}",
        final=False,
    )


def gone() -> SettlementRefused:
    """Return what is told if the control API restored an older database meanwhile."""
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
    service: Service, attempt: Attempt, refusal: Refusal, finding: ChainFinding, may_move: bool
) -> str:
    """Return what a payer should know and do, while the header may still pay."""
    again = "send the same payment header again"
    if refusal is Refusal.INSUFFICIENT_BALANCE:
        again = f"fund the payer and {again}"
    signed = attempt.payment.signed
    if refusal is Refusal.INVALID_SIGNATURE and where_it_differs(service, attempt):
        again = "correct the header and send the same authorization again"
    elif refusal is Refusal.INVALID_SIGNATURE and signed and _is_other_form(signed.signature):
        again = (
            "write the signature as 65 bytes, with a low s and v 27 or 28, and send the same "
            "authorization again"
        )
    auth = attempt.payment.authorization
    if known := _known_id(service, attempt):
        again += f", or ask GET /api/payments/{known}"
    if auth is None or may_move or finding is not ChainFinding.NOT_YET:
        return f"it may still be paid: {again}; do not sign another one"
    if refusal is Refusal.EXPIRED:
        return f"not charged by this service, but no block has passed that time yet: {again}"
    until = _date(auth.valid_before)
    is_early = service.clock.now_s() <= auth.valid_after
    valid = f"is valid from {_date(auth.valid_after + 1)}" if is_early else "stays valid"
    return f"not charged by this service; this header {valid} until {until}: {again}"


def _is_other_form(signature: bytes) -> bool:
    """Tell whether a signature can be written in the form that the token accepts, and is not."""
    return canonical(signature) != signature


def _date(at_s: int) -> str:
    return datetime.fromtimestamp(min(at_s, _LAST_DATE_S), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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


def where_it_differs(service: Service, attempt: Attempt) -> str:
    """Return where a refused payment differs from what was asked for; empty if nowhere.

    If it can pay, its signature is right, although only its payer's contract may know that.
    """
    if attempt.payment.signed is None:
        return ""
    rules = VERIFICATION if not attempt.can_pay else without(VERIFICATION, "5/signature-proves")
    case = Verification(attempt.payment.signed, attempt.issued, service.setup.network)
    broken = first_broken(rules, case)
    return difference(broken.refusal, case) if broken else ""


def why_not_moved(service: Service, attempt: Attempt, outcome: NotMoved) -> str:
    """Return the facilitator's reason; if it is the time, whose clock says what."""
    auth, now_s = attempt.payment.authorization, service.clock.now_s()
    if auth is None or outcome.misses is None:
        return outcome.reason
    if outcome.misses == "validAfter":
        return f"{outcome.reason}; {times(outcome.misses, auth.valid_after, now_s)}"
    told = times(outcome.misses, auth.valid_before, now_s)
    return told if now_s >= auth.valid_before else f"{told}, and the chain's is ahead of it"
