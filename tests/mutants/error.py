"""Defects of errors: the texts of section 7, and how they are sent."""

from tests.mutants.change import Change, edit, swap
from tests.mutants.mutant import Kind
from x402sim.protocol.refusals import Refusal
from x402sim.service import app

error = Kind("error")
ALL_TEXTS = (
    "7/insufficient-balance 7/invalid-signature 7/nonce-already-used 7/authorization-expired "
    "7/payment-already-settled"
)


def text(refusal: Refusal, said: str) -> Change:
    """Say something else for a refusal."""
    return swap(refusal, "_value_", said)


ROWS = (
    error(
        "balance-in-the-chain's-words",
        "7/insufficient-balance",
        "An empty wallet is told what the token said.",
        text(Refusal.INSUFFICIENT_BALANCE, "ERC20: transfer amount exceeds balance"),
    ),
    error(
        "signature-in-lower-case",
        "7/invalid-signature",
        'A bad signature is told "invalid signature".',
        text(Refusal.INVALID_SIGNATURE, "invalid signature"),
    ),
    error(
        "nonce-in-the-facilitator's-words",
        "7/nonce-already-used",
        'A replay is told "Authorization already used".',
        text(Refusal.NONCE_USED, "Authorization already used"),
    ),
    error(
        "expired-in-other-words",
        "7/authorization-expired",
        'A late authorization is told "Authorization has expired".',
        text(Refusal.EXPIRED, "Authorization has expired"),
    ),
    error(
        "settled-in-other-words",
        "7/payment-already-settled",
        'A used payment id is told "Payment already processed".',
        text(Refusal.ALREADY_SETTLED, "Payment already processed"),
    ),
    error(
        "two-texts-exchanged",
        "7/nonce-already-used 7/payment-already-settled",
        "The texts for a used nonce and a used payment id are exchanged.",
        text(Refusal.NONCE_USED, Refusal.ALREADY_SETTLED.value),
        text(Refusal.ALREADY_SETTLED, Refusal.NONCE_USED.value),
    ),
    error(
        "late-is-a-bad-signature",
        "7/authorization-expired",
        'A late authorization is told "Invalid signature".',
        text(Refusal.EXPIRED, Refusal.INVALID_SIGNATURE.value),
    ),
    error(
        "one-text-for-all",
        ALL_TEXTS,
        'Every refusal is told "Payment failed".',
        edit(app.pay, "refused.refusal.value, refused.reason", '"Payment failed"'),
    ),
    error(
        "refused-with-200",
        ALL_TEXTS,
        "A refusal is a 200 with success false.",
        edit(
            app.pay,
            "web.error(status, refused.refusal.value, refused.reason, final=refused.final)",
            'web.answer({"success": False, "error": refused.refusal.value})',
        ),
        broad="every refused settlement looks like an accepted one",
    ),
)
