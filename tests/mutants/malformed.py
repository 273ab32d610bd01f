"""Defects of input: what is refused although it is right, and what falls over a wrong one."""

from tests.mutants.change import edit, settlement_rule, swap
from tests.mutants.mutant import Kind
from x402sim import web
from x402sim.protocol.messages import Wire
from x402sim.service import app, gate, payments, sessions

malformed = Kind("input")


class AnyOrder(Wire, frozen=True):
    """The body of a quote, its numbers not looked at."""

    pair: str
    side: str
    leverage: float
    size_usd: float


ROWS = (
    malformed(
        "base64-only",
        "2.3/hex-header",
        "A payment header is taken in base64 only, not in 0x-hex.",
        edit(
            payments.pay,
            "    terms =",
            '    if request.payment_header.startswith("0x"):\n'
            "        raise SettlementRefused(Refusal.INVALID_SIGNATURE)\n"
            "    terms =",
        ),
    ),
    malformed(
        "description-must-come-back",
        "2.1/description",
        "Requirements are refused unless the description is sent back.",
        settlement_rule(
            "2.1/description",
            lambda case: case.requirements.description == case.issued.description,
        ),
    ),
    malformed(
        "requirements-may-be-missing",
        "4.1/validate",
        "A settlement without requirements is filled in and settled.",
        edit(
            app.pay,
            "asked: SettlementRequest = web.parse(await web.read_body(request), SettlementRequest)",
            "import msgspec\n"
            "    body = web.parse(await web.read_body(request), object)\n"
            "    if isinstance(body, dict) and 'paymentRequirements' not in body:\n"
            "        terms = service.issuer.read(str(body.get('paymentId')))\n"
            "        if terms is not None:\n"
            "            body['paymentRequirements'] = service.issuer.requirements(terms)\n"
            "    asked = web.parse(msgspec.json.encode(body), SettlementRequest)",
        ),
    ),
    malformed(
        "pay-falls-over-its-body",
        "kit/7/malformed-body",
        "A settlement whose body is not what it should be is an internal error.",
        edit(
            app.pay,
            "web.parse(await web.read_body(request), SettlementRequest)",
            "__import__('msgspec').json.decode(await web.read_body(request), type=SettlementRequest)",
        ),
    ),
    malformed(
        "trace-in-the-answer",
        "kit/7/malformed-body",
        "The reason of a 400 is the stack trace.",
        edit(web.parse, "str(wrong)", "__import__('traceback').format_exc()"),
    ),
    malformed(
        "header-falls-over-its-letters",
        "kit/7/malformed-header",
        "A payment header that is neither hex nor base64 is an internal error.",
        edit(
            payments.pay,
            "    terms =",
            "    decode_header(request.payment_header)\n    terms =",
        ),
    ),
    malformed(
        "deadline-overflows",
        "kit/7/malformed-header",
        "A validBefore beyond 64 bits, which the token allows, is an internal error.",
        edit(payments._read, "min(auth.valid_before, MAX_STORED)", "auth.valid_before"),
    ),
    malformed(
        "budget-overflows",
        "kit/7/malformed-body",
        "A maxSpend beyond 64 bits is an internal error.",
        edit(sessions.offer, "if not 0 < deposit_base <= MAX_STORED:", "if deposit_base <= 0:"),
    ),
    malformed(
        "session-falls-over-its-body",
        "kit/7/malformed-body",
        "A request for a session whose body is not what it should be is an internal error.",
        edit(
            app.create_session,
            "web.parse(body, SessionRequest)",
            "__import__('msgspec').json.decode(body, type=SessionRequest)",
        ),
    ),
    malformed(
        "leverage-of-zero",
        "kit/7/malformed-paid",
        "A paid request with a leverage of zero is divided by it.",
        swap(app, "QuoteRequest", AnyOrder),
    ),
    malformed(
        "proof-falls-over-its-letters",
        "kit/7/malformed-proof",
        "A payment id that is not base64 is an internal error.",
        edit(
            gate.is_entitled,
            "    now_ms =",
            "    import base64\n"
            "    base64.b64decode(payment_id.removeprefix('pay_'), '-_', validate=True)\n"
            "    now_ms =",
        ),
    ),
)
