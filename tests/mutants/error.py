"""Defects of errors: the texts of section 7, and how they are sent."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from tests.mutants.change import Change
from tests.mutants.middleware import Answer, Request, answer, replies
from tests.mutants.mutant import Kind
from tests.mutants.paying import ALREADY_SETTLED, INVALID_SIGNATURE, NONCE_USED, PAY
from x402sim.protocol.refusals import Refusal

error = Kind("error")
BALANCE = Refusal.INSUFFICIENT_BALANCE.text
EXPIRED = Refusal.EXPIRED.text
REFUSALS = frozenset(refusal.text for refusal in Refusal)
ALL_TEXTS = (
    "7/insufficient-balance 7/invalid-signature 7/nonce-already-used 7/authorization-expired "
    "7/payment-already-settled"
)


def texts(others: Mapping[str, str]) -> Change:
    """Say something else for some refusals."""

    def change(_: Request, reply: Answer) -> Answer:
        if reply.error not in others:
            return reply
        body = {**reply.json, "error": others[reply.error]}
        return replace(reply, body=msgspec.json.encode(body))

    return replies(PAY, change)


def refused(given: Answer | None) -> Change:
    """Answer every refused settlement alike; None tells its text in a 200."""

    def change(_: Request, reply: Answer) -> Answer:
        if reply.error not in REFUSALS:
            return reply
        if given is None:
            return answer(200, {"success": False, "error": reply.error})
        return replace(given, status=reply.status)

    return replies(PAY, change)


# --- the defects ---

error("balance-in-the-chain's-words", "7/insufficient-balance",
    "A payer with an empty wallet gets the token's own text.",
    texts({BALANCE: "ERC20: transfer amount exceeds balance"}))  # fmt: skip
error("signature-in-lower-case", "7/invalid-signature",
    'The error of a bad signature is "invalid signature".',
    texts({INVALID_SIGNATURE: "invalid signature"}))  # fmt: skip
error("nonce-in-the-facilitator's-words", "7/nonce-already-used",
    'The error of a replay is "Authorization already used".',
    texts({NONCE_USED: "Authorization already used"}))  # fmt: skip
error("expired-in-other-words", "7/authorization-expired",
    'The error of a late authorization is "Authorization has expired".',
    texts({EXPIRED: "Authorization has expired"}))  # fmt: skip
error("settled-in-other-words", "7/payment-already-settled",
    'The error of a used payment id is "Payment already processed".',
    texts({ALREADY_SETTLED: "Payment already processed"}))  # fmt: skip
error("two-texts-exchanged", "7/nonce-already-used 7/payment-already-settled",
    "The texts for a used nonce and a used payment id are exchanged.",
    texts({NONCE_USED: ALREADY_SETTLED, ALREADY_SETTLED: NONCE_USED}))  # fmt: skip
error("late-is-a-bad-signature", "7/authorization-expired",
    'The error of a late authorization is "Invalid signature".',
    texts({EXPIRED: INVALID_SIGNATURE}))  # fmt: skip
error("one-text-for-all", ALL_TEXTS, 'The error of every refusal is "Payment failed".',
    refused(answer(400, {"error": "Payment failed"})))  # fmt: skip
error("refused-with-200", ALL_TEXTS, "A refusal is a 200 with success false.", refused(None),
    broad="every refused settlement looks like an accepted one")  # fmt: skip
