"""What a settlement can be refused with: the five texts of section 7, and those we decided.

Clauses: 7/insufficient-balance, 7/invalid-signature, 7/nonce-already-used,
7/authorization-expired, 7/payment-already-settled.
"""

from dataclasses import dataclass
from enum import Enum

from x402sim.spec.decisions import Decisions


class Refusal(Enum):
    """Why a settlement was refused; the value is the text on the wire."""

    INSUFFICIENT_BALANCE = "Insufficient USDC balance"
    INVALID_SIGNATURE = "Invalid signature"
    NONCE_USED = "Nonce already used"
    EXPIRED = "Authorization expired"
    ALREADY_SETTLED = "Payment already settled"
    # where the specification is silent
    MISMATCH = "Payment requirements do not match"
    PENDING = "Settlement pending"
    UNREACHABLE = "Facilitator unreachable"
    FAILED = "Settlement failed"


@dataclass(eq=False)
class SettlementRefused(Exception):
    """A settlement that did not grant anything; `reason` says more where there is more to say.

    `final` is False as long as this attempt may still move money.
    """

    refusal: Refusal
    reason: str | None = None
    final: bool = True

    def __str__(self) -> str:
        return self.refusal.value + (f": {self.reason}" if self.reason else "")


def status_of(refusal: Refusal, decisions: Decisions) -> int:
    """Return the HTTP status we decided for a refusal (section 7 shows none)."""
    match refusal:
        case Refusal.INSUFFICIENT_BALANCE:
            return decisions.insufficient_balance_status
        case Refusal.INVALID_SIGNATURE:
            return decisions.invalid_signature_status
        case Refusal.NONCE_USED:
            return decisions.nonce_used_status
        case Refusal.EXPIRED:
            return decisions.authorization_expired_status
        case Refusal.ALREADY_SETTLED:
            return decisions.already_settled_status
        case Refusal.MISMATCH:
            return decisions.requirements_mismatch_status
        case Refusal.PENDING:
            return decisions.settlement_pending_status
        case Refusal.UNREACHABLE:
            return decisions.facilitator_unreachable_status
        case Refusal.FAILED:
            return 502


FACILITATOR_ERRORS = {
    "Authorization already used": Refusal.NONCE_USED,
    "Authorization expired": Refusal.EXPIRED,
    "Authorization not yet valid": Refusal.INVALID_SIGNATURE,
    "ERC20: transfer amount exceeds balance": Refusal.INSUFFICIENT_BALANCE,
    "Invalid signature": Refusal.INVALID_SIGNATURE,
}
"""The facilitator's settlement errors, in the service's words; any other text is `FAILED`."""


def refusal_of(facilitator_error: str) -> Refusal:
    """Translate a facilitator's settlement error into the text of section 7.

    7/insufficient-balance, 7/authorization-expired.
    """
    return FACILITATOR_ERRORS.get(facilitator_error, Refusal.FAILED)
