"""What is decided about the words of the systems that the kit stands in for.

Their documentation is silent there, or their sources differ.
"""

from x402sim.spec.decision import Decision

DIALECTS: tuple[Decision, ...] = (
    Decision(
        "2.3/version-header",
        "What does the Cronos facilitator answer without `X402-Version: 1`?",
        "Without the header, what the body's `x402Version` says counts; with another value 400 "
        "`Unsupported X402-Version`",
        "400 without the header, too",
        "Its documentation lists the header and no answer to a request without it, and the body "
        "says the same",
    ),
    Decision(
        "2.3/other-version",
        "What does the Cronos facilitator answer to a payment header with another `x402Version`?",
        "`Invalid Base64 paymentHeader`, as to any header that it cannot read",
        "Ignore the number",
        "What another version says, this one cannot know; the documentation has no other word",
    ),
    Decision(
        "4.1/standard-reasons",
        "Which words does the facilitator of the x402 standard refuse with?",
        "Those of section 9 of the standard's specification. Where it has none (a used nonce, "
        "another token name or version), version 2 says the word that the public libraries share "
        "(`invalid_exact_evm_nonce_already_used`), and version 1, whose words are a closed list, "
        "`invalid_transaction_state` and `invalid_payment_requirements`",
        "The words of one library",
        "The libraries differ for the same case; the specification is what they have in common",
    ),
    Decision(
        "4.1/standard-pending",
        "What does settle of the x402 standard answer if the transaction is not mined in time?",
        "`settlement_pending` with its hash. The same payment again waits for the same "
        "transaction; nothing is sent twice",
        "An error, and another transaction",
        "The standard says that it is not final, and servers ask once more",
    ),
)
