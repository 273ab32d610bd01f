"""The x402 standard's words for why a payment is not valid or not settled.

The words of section 9 of its specification come first. Where it has none for a case, version 2
uses the word that the public libraries share, and version 1, whose words are a closed list there,
the nearest of its section 9. Decision: 4.1/standard-reasons.
"""

from x402sim.protocol.rules import InvalidReason
from x402sim.protocol.x402 import Version

INVALID_VERSION = "invalid_x402_version"
INVALID_PAYLOAD = "invalid_payload"
INVALID_REQUIREMENTS = "invalid_payment_requirements"
VALID_AFTER = "invalid_exact_evm_payload_authorization_valid_after"
VALID_BEFORE = "invalid_exact_evm_payload_authorization_valid_before"
NETWORK = "invalid_network"
SIGNATURE = "invalid_exact_evm_payload_signature"
FUNDS = "insufficient_funds"
STATE = "invalid_transaction_state"
PENDING = "settlement_pending"
"""Not final: the transaction was sent, and may still be mined."""
UNEXPECTED_VERIFY = "unexpected_verify_error"
UNEXPECTED_SETTLE = "unexpected_settle_error"

_INVALID: dict[InvalidReason, str] = {
    InvalidReason.HEADER: INVALID_PAYLOAD,
    InvalidReason.SCHEME: "unsupported_scheme",
    InvalidReason.NETWORK: NETWORK,
    InvalidReason.ASSET: INVALID_REQUIREMENTS,
    InvalidReason.RECIPIENT: "invalid_exact_evm_payload_recipient_mismatch",
    InvalidReason.AMOUNT: "invalid_exact_evm_payload_authorization_value",
    InvalidReason.SIGNATURE: SIGNATURE,
    InvalidReason.UNDEPLOYED: "invalid_exact_evm_payload_undeployed_smart_wallet",
    InvalidReason.DOMAIN: INVALID_REQUIREMENTS,
    InvalidReason.DOMAIN_NAME: INVALID_REQUIREMENTS,
    InvalidReason.DOMAIN_VERSION: INVALID_REQUIREMENTS,
    InvalidReason.EARLY: VALID_AFTER,
    InvalidReason.LATE: VALID_BEFORE,
}
_INVALID_V2: dict[InvalidReason, str] = {
    **_INVALID,
    InvalidReason.AMOUNT: "invalid_exact_evm_payload_authorization_value_mismatch",
    InvalidReason.DOMAIN_NAME: "invalid_exact_evm_token_name_mismatch",
    InvalidReason.DOMAIN_VERSION: "invalid_exact_evm_token_version_mismatch",
}
NONCE_USED: dict[Version, str] = {1: STATE, 2: "invalid_exact_evm_nonce_already_used"}
"""The word for an authorization that was used or cancelled."""


def invalid_reason(version: Version, why: InvalidReason) -> str:
    """Return the word for an invalid payment."""
    return (_INVALID if version == 1 else _INVALID_V2)[why]
