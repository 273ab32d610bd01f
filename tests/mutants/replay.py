"""Defects against replay: what was used once, and is taken again."""

from tests.mutants.change import edit, schema
from tests.mutants.mutant import Kind
from x402sim.service import payments, reconcile
from x402sim.service.store import Store

replay = Kind("replay")


transactions_may_pay_often = schema(
    "tx_hash TEXT UNIQUE, from_address", "tx_hash TEXT, from_address"
)
ids_may_be_claimed_again = edit(
    Store.claim,
    "AND status = 'failed' \"\n            \"AND tx_hash IS NULL",
    "",
)

ROWS = (
    replay(
        "authorization-pays-for-many",
        "7/nonce-already-used",
        "An authorization that has paid for one id is found on the chain, and pays for another.",
        edit(
            payments.claim,
            "authorization_key=key,",
            "authorization_key=(key or '') + request.payment_id.encode().hex(),",
        ),
        edit(reconcile._from_key, "Address(raw[:20]), raw[20:]", "Address(raw[:20]), raw[20:52]"),
        transactions_may_pay_often,
    ),
    replay(
        "authorization-by-its-text",
        "5/nonce-once",
        "Used authorizations are known by their header's text: another spelling passes.",
        edit(
            payments.claim,
            "authorization_key=key,",
            "authorization_key=(key or '') + request.payment_header.encode().hex(),",
        ),
        edit(reconcile._from_key, "Address(raw[:20]), raw[20:]", "Address(raw[:20]), raw[20:52]"),
        transactions_may_pay_often,
    ),
    replay(
        "paid-id-is-paid-again",
        "7/payment-already-settled",
        "A second authorization for a paid id is settled too: the payer is charged twice.",
        edit(
            payments.earlier_attempt,
            "if stored is None or (",
            'if stored is None or stored.record.status == "settled" or (',
        ),
        ids_may_be_claimed_again,
    ),
    replay(
        "paid-id-gets-its-receipt",
        "7/payment-already-settled",
        "Settling a paid id once more is answered with its receipt.",
        edit(
            payments.earlier_attempt,
            '    if stored.record.status != "pending":',
            '    if stored.record.status == "settled":\n'
            '        return "settled"\n'
            '    if stored.record.status != "pending":',
        ),
    ),
)
