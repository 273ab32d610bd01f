"""Defects between requests: what is looked at, and what is done about it a moment later."""

from tests.mutants.change import edit, schema, swap
from tests.mutants.mutant import Kind
from x402sim.protocol.cronos import Failed
from x402sim.protocol.messages import Receipt, SettlementRequest
from x402sim.protocol.refusals import SettlementRefused
from x402sim.service import app, payments
from x402sim.service.state import Service
from x402sim.service.upstream.cronos import refusal_of

concurrency = Kind("concurrency")
DEBIT = (
    "    if not gate.spend(service, granted):\n"
    "        return payment_required(service, request, QUOTE, price)\n"
)


async def settle_then_claim(service: Service, request: SettlementRequest) -> Receipt:
    """Settle without a lock, and take the payment id only when the money has moved."""
    terms = payments.validate(service, request)
    await payments.earlier_attempt(service, request)
    await payments.verify(service, request)
    outcome = await service.upstream.settle(request.payment_header, request.payment_requirements)
    if isinstance(outcome, Failed):
        raise SettlementRefused(refusal_of(outcome.error), outcome.error)
    payments.claim(service, request, terms)
    payments._grant_settled(service, request.payment_id, outcome)
    return payments.receipt(service, request.payment_id)


ROWS = (
    concurrency(
        "one-id-settled-side-by-side",
        "7/payment-already-settled",
        "Two authorizations for one payment id, sent at once, are both settled.",
        swap(payments, "pay", settle_then_claim),
        needs="world",
    ),
    concurrency(
        "one-authorization-side-by-side",
        "5/nonce-once",
        "An authorization sent at once for two payment ids pays for both.",
        edit(
            payments.claim,
            "    taken =",
            "    sql = \"SELECT 1 FROM payments WHERE status = 'settled' AND authorization_key = ?\"\n"
            "    if service.store._one(sql, key):\n"
            '        raise SettlementRefused(Refusal.NONCE_USED, "")\n'
            "    taken =",
        ),
        schema(
            "tx_hash TEXT UNIQUE, from_address",
            "tx_hash TEXT, from_address",
            "authorization_key TEXT UNIQUE",
            "authorization_key TEXT",
        ),
    ),
    concurrency(
        "debits-overwrite-each-other",
        "5/session-debit",
        "Released is read, raised and written back: of requests sent at once one is debited.",
        edit(
            app.perp_quote,
            DEBIT,
            "    if granted.session_id is not None:\n"
            "        before = service.store.session(granted.session_id)\n"
            "        await service.clock.sleep(0.01)\n"
            "        sql = 'UPDATE sessions SET released = ? WHERE session_id = ?'\n"
            "        service.store._db.execute(sql, (before.released + price, before.session_id))\n",
        ),
    ),
    concurrency(
        "budget-asked-too-early",
        "5/session-debit",
        "The budget is compared first and debited later: requests sent at once overdraw it.",
        edit(
            app.perp_quote,
            DEBIT,
            "    if granted.session_id is not None:\n"
            "        await service.clock.sleep(0.01)\n"
            "        sql = 'UPDATE sessions SET released = released + ? WHERE session_id = ?'\n"
            "        service.store._db.execute(sql, (price, granted.session_id))\n",
        ),
        schema(" CHECK (released BETWEEN 0 AND deposited)", ""),
    ),
    concurrency(
        "two-sessions-side-by-side",
        "3/deposit-makes-session",
        "A paid request sent several times at once opens a session each time.",
        edit(
            app.create_session,
            "        if session is not None:\n",
            "        if session is not None:\n"
            "            made = service.entitlements.__dict__.setdefault('made', [])\n"
            "            is_first = payment_id not in made\n"
            "            await service.clock.sleep(0.01)\n"
            "            if is_first:\n"
            "                made.append(payment_id)\n"
            "                from tests.mutants.session import one_more\n"
            "                session = one_more(service, payment_id, session.deposited)\n",
        ),
        schema("payment_id TEXT NOT NULL UNIQUE REFERENCES", "payment_id TEXT NOT NULL REFERENCES"),
    ),
    concurrency(
        "receipts-are-mixed-up",
        "4.1/receipt",
        "The payment at work is a global variable: who pays at once gets another's receipt.",
        edit(
            payments.pay,
            "    terms =",
            "    global _at_work\n    _at_work = request.payment_id\n    terms =",
            "return receipt(service, request.payment_id)",
            "return receipt(service, _at_work)",
        ),
    ),
)
