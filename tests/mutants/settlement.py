"""Defects of settlement: what is asked of the facilitator, and what is made of its word."""

from typing import Any

from tests.mutants.change import answers, edit, swap
from tests.mutants.mutant import Kind
from x402sim.protocol.messages import Wire
from x402sim.service import app, payments, upstream
from x402sim.service.upstream import Upstream

settlement = Kind("settlement")
RECORD = "/api/payments/"


class LooseVerdict(Wire, frozen=True):
    """The facilitator's verdict, read without a look at its type."""

    is_valid: Any = None
    invalid_reason: Any = None


ROWS = (
    settlement(
        "nothing-settles",
        "1/sign-settle-repeat",
        "The facilitator is asked at a path it does not have, so no payment settles.",
        edit(Upstream._post, "/v2/x402/", "/v9/x402/"),
    ),
    settlement(
        "verify-is-left-out",
        "4.1/verify-signature",
        "The facilitator is asked to settle what it was never asked to verify.",
        edit(payments.pay, "await verify(service, request)", "pass"),
        needs="world",
    ),
    settlement(
        "verdict-is-ignored",
        "4.1/verify-signature",
        "The facilitator is asked to verify, and its verdict is not looked at.",
        edit(payments.verify, "if not verdict.is_valid:", "if False:"),
        needs="world",
    ),
    settlement(
        "any-text-is-true",
        "4.1/verify-signature",
        'The verdict "false", in quotation marks, counts as true.',
        swap(upstream, "VerifyAnswer", LooseVerdict),
        needs="world",
    ),
    settlement(
        "outage-is-a-yes",
        "4.1/verify-signature",
        "When verification is out of order, everything counts as valid.",
        edit(
            payments.verify,
            'raise SettlementRefused(Refusal.UNREACHABLE, f"nothing was charged: {error}") from error',
            "return",
        ),
        needs="world",
    ),
    settlement(
        "signed-a-while-ago",
        "2.3/window",
        "An authorization is refused half a minute after it was signed.",
        edit(
            payments.pay,
            "    terms =",
            "    auth, _ = authorization_of(decode_header(request.payment_header))\n"
            "    if service.clock.now_s() - auth.valid_after > 90:\n"
            "        raise SettlementRefused(Refusal.EXPIRED)\n"
            "    terms =",
        ),
    ),
    settlement(
        "every-200-is-settled",
        "4.1/settle-on-chain",
        "The facilitator's answer 200 is taken for success, although it tells of a failure.",
        edit(
            payments.settle,
            "        refused = SettlementRefused(refusal_of(outcome.error), outcome.error)\n",
            "        from hashlib import sha256\n"
            "        made_up = '0x' + sha256(payment_id.encode()).hexdigest()\n"
            "        grant(service, payment_id, made_up, '')\n"
            "        return\n"
            "        refused = SettlementRefused(refusal_of(outcome.error), outcome.error)\n",
        ),
        broad="whatever the chain refuses is settled",
    ),
    settlement(
        "always-the-price-of-a-quote",
        "4.4/deposit-flow",
        "The facilitator is always asked for the price of a quote, so no deposit settles.",
        edit(
            upstream.facilitator_request,
            "    return",
            "    import msgspec\n"
            "    requirements = msgspec.structs.replace(requirements, max_amount_required='10000')\n"
            "    return",
        ),
    ),
    settlement(
        "kept-in-memory-only",
        "4.1/store-settled",
        'The stored record does not become "settled": only the cache knows of the payment.',
        edit(
            app.pay,
            "return web.answer(await payments.pay(service, asked))",
            "receipt = await payments.pay(service, asked)\n"
            "        sql = \"UPDATE payments SET status = 'failed' WHERE payment_id = ?\"\n"
            "        service.store._db.execute(sql, (asked.payment_id,))\n"
            "        return web.answer(receipt)",
        ),
        needs="record",
        broad="no record is ever complete, so nothing that rests on records works",
    ),
    settlement(
        "record-is-completed",
        "4.1/store-settled",
        'The status of a settled payment is "completed".',
        answers(200, RECORD, lambda it: it.update(status="completed")),
        needs="record",
    ),
    settlement(
        "record-in-tokens",
        "2.4/record",
        "The amount of a record is in tokens.",
        answers(200, RECORD, lambda it: it.update(amount=str(int(it["amount"]) / 10**6))),
        needs="record",
    ),
    settlement(
        "record-the-wrong-way-round",
        "2.4/record",
        "The addresses of payer and payee are exchanged in the record.",
        answers(
            200,
            RECORD,
            lambda it: it.update(from_address=it["to_address"], to_address=it["from_address"]),
        ),
        needs="record",
    ),
    settlement(
        "record-in-block-zero",
        "2.4/block-null",
        "A new record is in block 0.",
        answers(200, RECORD, lambda it: it.update(block_number=it["block_number"] or 0)),
        needs="record",
    ),
)
