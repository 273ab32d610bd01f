"""The x402 standard's words for why a payment is not valid or not settled, and their meanings.

`meaning_of` tells for any facilitator's word whether a transaction may have been sent; for a word
outside `WORDS` nobody knows. The words of section 9 come first. For a case without a word there,
version 2 uses the word shared by the public libraries, and version 1, a closed list, the nearest
word of its section 9. Decision: 4.1/standard-reasons.
"""

from collections.abc import Mapping
from enum import Enum

from x402sim.protocol import cronos
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


# --- what a word means for the money -----------------------------------------------------


class PaymentFate(Enum):
    """The fate of a payment's money, as told by a refusal of settle."""

    REFUSED = "refused before anything was sent"
    UNKNOWN = "not known: the money may have moved, or still may"
    SETTLED = "the authorization was used before"


class Meaning(Enum):
    """The meaning of a refusal's words: the outcome of settle, and the remedy."""

    WRONG = (
        PaymentFate.REFUSED,
        "Correct what the reason says, and sign anew; the old one can be used until it expires.",
    )
    FUNDS = PaymentFate.REFUSED, "Fund the payer with the token, and send the same payment again."
    ALLOWANCE = (
        PaymentFate.REFUSED,
        "Permit2 may take too little of the payer's tokens: approve Permit2 for the amount, and "
        "send the same payment again.",
    )
    LATE = (
        PaymentFate.REFUSED,
        "It has expired, or soon will: sign a new one, and send it at once. If an earlier answer "
        "left open whether this one was paid, ask the chain first.",
    )
    EARLY = PaymentFate.REFUSED, "Send it again once its window has begun; compare the clocks."
    UNSUPPORTED = (
        PaymentFate.REFUSED,
        "The facilitator does not settle this: compare it with what GET /supported answers.",
    )
    USED = (
        PaymentFate.SETTLED,
        "Its authorization was used or cancelled before: it may have paid already. Ask the chain "
        "before you sign another.",
    )
    UNCLEAR = (
        PaymentFate.UNKNOWN,
        "It is not known whether it was paid: the money may have moved, or still may. Ask the "
        "chain for authorizationState(from, nonce), or settle the same payment again. Sign no "
        "other while this one can be used.",
    )

    @property
    def fate(self) -> PaymentFate:
        """What became of the money."""
        return self.value[0]

    @property
    def do(self) -> str:
        """What to do, in sentences."""
        return self.value[1]


_EVM = "invalid_exact_evm_"
_MEANINGS: Mapping[Meaning, tuple[str, ...]] = {
    Meaning.WRONG: (
        *(INVALID_PAYLOAD, "invalid_payment", INVALID_REQUIREMENTS, SIGNATURE),
        *(f"{_EVM}signature", f"{_EVM}payload_signature_address", f"{_EVM}insufficient_amount"),
        *(f"{_EVM}payload_recipient_mismatch", f"{_EVM}recipient_mismatch"),
        *(f"{_EVM}payload_authorization_value", f"{_EVM}payload_authorization_value_mismatch"),
        *(f"{_EVM}payload_authorization_value_too_low", f"{_EVM}authorization_value"),
        *(f"{_EVM}authorization_value_mismatch", f"{_EVM}payload_undeployed_smart_wallet"),
        *(f"{_EVM}token_name_mismatch", f"{_EVM}token_version_mismatch"),
        *(f"{_EVM}missing_eip712_domain", "missing_eip712_domain"),
        *(cronos.SettleError.SIGNATURE.value, f"{_EVM}failed_to_parse_signature"),
        *("invalid_permit2_spender", "invalid_permit2_recipient_mismatch"),
        *("permit2_amount_mismatch", "permit2_token_mismatch", "invalid_permit2_signature"),
        *("permit2_invalid_destination", "permit2_invalid_owner", "upto_facilitator_mismatch"),
        *("invalid_upto_evm_payload_settlement_exceeds_amount", "permit2_2612_amount_mismatch"),
        *("invalid_eip2612_extension_format", "eip2612_from_mismatch", "eip2612_asset_mismatch"),
        *("eip2612_spender_not_permit2", "eip2612_deadline_expired"),
        *("invalid_erc20_approval_extension_format", "erc20_approval_from_mismatch"),
        *("erc20_approval_asset_mismatch", "erc20_approval_spender_not_permit2"),
        *("erc20_approval_tx_parse_failed", "erc20_approval_tx_signer_mismatch"),
        *("erc20_approval_tx_wrong_target", "erc20_approval_tx_wrong_selector"),
        *("erc20_approval_tx_wrong_spender", "erc20_approval_tx_invalid_calldata"),
        *("erc20_approval_tx_failed",),
    ),
    Meaning.FUNDS: (
        *(FUNDS, f"{_EVM}insufficient_balance", f"{_EVM}insufficient_funds"),
        *("permit2_insufficient_balance", cronos.SettleError.BALANCE.value),
    ),
    Meaning.ALLOWANCE: ("permit2_allowance_required", "erc20_approval_broadcast_failed"),
    Meaning.LATE: (
        *(VALID_BEFORE, f"{_EVM}authorization_valid_before", "payment_expired"),
        *("permit2_deadline_expired", cronos.SettleError.EXPIRED.value),
    ),
    Meaning.EARLY: (
        *(VALID_AFTER, f"{_EVM}authorization_valid_after", "permit2_not_yet_valid"),
        cronos.SettleError.EARLY.value,
    ),
    Meaning.UNSUPPORTED: (
        *("unsupported_scheme", "invalid_scheme", f"{_EVM}scheme", NETWORK, "network_mismatch"),
        *(f"{_EVM}network_mismatch", "unsupported_network", INVALID_VERSION),
        *("unsupported_payload_type", "unsupported_asset_transfer_method"),
        *("unsupported_payment_flow", f"{_EVM}eip3009_not_supported"),
        "permit2_proxy_not_deployed",
    ),
    Meaning.USED: (NONCE_USED[2], cronos.SettleError.USED.value, "permit2_invalid_nonce"),
    Meaning.UNCLEAR: (
        *(PENDING, STATE, UNEXPECTED_SETTLE, UNEXPECTED_VERIFY, "duplicate_settlement"),
        *("settle_exact_node_failure", "settle_exact_failed_onchain", "settlement_failed"),
        *("settle_exact_evm_transaction_confirmation_timed_out", f"{_EVM}transaction_failed"),
        *("settle_exact_svm_transaction_confirmation_timed_out", "transaction_failed"),
        *("settle_exact_svm_block_height_exceeded", f"{_EVM}failed_to_get_receipt"),
        *(f"{_EVM}failed_to_execute_transfer", "failed_to_execute_transfer"),
        *(f"{_EVM}transaction_simulation_failed", f"{_EVM}verification_failed"),
        *("facilitator_unavailable", "unknown_error", "rate_limited"),
        cronos.SettleError.FAILED.value,
    ),
}
WORDS: Mapping[str, Meaning] = {
    word: meaning for meaning, words in _MEANINGS.items() for word in words
}
"""The known words of the public facilitators and of Cronos', with their meanings.

A word counts as refused only if facilitators answer the word before sending a transaction.
"""
BEGINNINGS: Mapping[str, Meaning] = {
    **{reason.partition("{}")[0]: Meaning.WRONG for reason in cronos.INVALID_REASONS.values()},
    "No facilitator registered for": Meaning.UNSUPPORTED,
}
"""Beginnings of sentences that end with a value: of Cronos' verify, and of the SDK's."""


def meaning_of(reason: str, transaction: object = "") -> Meaning:
    """Return the meaning of a reason; for an unknown reason, or beside a sent transaction, an
    unknown outcome.
    """
    found = WORDS.get(reason)
    if found is None:
        found = next((each for begin, each in BEGINNINGS.items() if reason.startswith(begin)), None)
    if found is None or (transaction and found.fate is PaymentFate.REFUSED):
        return Meaning.UNCLEAR
    return found
