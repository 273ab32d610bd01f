"""Defects of the facilitator that the service relies on: rules of verification and transfer.

A deployment that has its payments verified and settled by such a one does not keep
section 5, though its own code may be right.
"""

from tests.mutants.change import edit, leave_out
from tests.mutants.mutant import Kind
from x402sim.facilitator import engine

facilitator = Kind("facilitator")

ROWS = (
    facilitator(
        "payer-sends-it-himself",
        "1/payer-pays-no-gas",
        "The transaction is sent from the payer's account, which pays the gas.",
        edit(
            engine.settle,
            "Call(facilitator.account,",
            "Call(payment.authorization.from_,",
            "        await facilitator.chain.call(call)\n",
            "        await facilitator.chain.set_native_balance(call.sender, 10**24)\n"
            "        await facilitator.chain.call(call)\n",
        ),
    ),
    facilitator(
        "amount-is-not-compared",
        "5/exact-amount",
        "An authorization of another amount than was required is settled.",
        leave_out("verification", "5/exact-amount"),
    ),
    facilitator(
        "recipient-is-not-compared",
        "5/exact-recipient",
        "An authorization that pays somebody else is settled.",
        leave_out("verification", "5/exact-recipient"),
    ),
    facilitator(
        "signature-is-not-recovered",
        "5/signature-proves 4.1/verify-signature 7/invalid-signature",
        "Whoever signed, the authorization is settled.",
        leave_out("verification", "5/signature-proves"),
        leave_out("transfer", "5/signature-proves"),
    ),
    facilitator(
        "window-has-no-beginning",
        "5/window",
        "An authorization is settled before validAfter.",
        leave_out("transfer", "5/window-opens"),
    ),
    facilitator(
        "window-has-no-end",
        "5/window 7/authorization-expired",
        "An authorization is settled after validBefore.",
        leave_out("transfer", "5/window-closes"),
    ),
    facilitator(
        "nonce-is-good-for-ever",
        "5/nonce-once 7/nonce-already-used",
        "A nonce that was cancelled is used all the same.",
        leave_out("transfer", "5/nonce-once"),
        needs="world",
    ),
)
