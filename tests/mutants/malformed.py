"""Defects of input: what is refused although it is right, and what crashes over a wrong one.

And of errors: the texts of section 7, and how they are sent. And of reading: a right value that is
refused, because it is written in another way.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal, DecimalException
from typing import Any

import msgspec

from tests.mutants.changes import Change, settlement_rule
from tests.mutants.gate import gate
from tests.mutants.messages import CRASHED, JSON, Answer, Request, Serve, answer
from tests.mutants.middleware import answers, at, instead, middleware, replies, requests
from tests.mutants.mutant import Kind
from tests.mutants.payments import (
    ALREADY_SETTLED,
    INVALID_SIGNATURE,
    NONCE_USED,
    OtherIds,
    authorization,
)
from tests.mutants.required import content
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import Refusal, RequestError
from x402sim.protocol.routes import PAY, QUOTE, SESSIONS
from x402sim.service.state import Service
from x402sim.suite.service.inputs import BODIES

malformed = Kind("input")
BAD_REQUEST = RequestError.INVALID_BODY.text
CONTENT = answer(200, {"quote": {"pair": "BTC-USD"}})
TRACE = 'Traceback (most recent call last):\n  File "app.py", line 60, in pay\nValidationError'


def unreadable_if(prefix: bool) -> Change:
    """Take payment headers with 0x in front, or those without, for unreadable."""

    def change(request: Request) -> Request:
        header = request.field("paymentHeader")
        if not header or header.startswith("0x") != prefix:
            return request
        return request.sending({**request.json, "paymentHeader": "unreadable"})

    return requests(PAY, change)


def crashes_over_its_body(path: str) -> Change:
    """Fail with an internal error where a body is refused."""

    def change(request: Request, reply: Answer) -> Answer:
        is_bad = (reply.status, reply.error) == (400, BAD_REQUEST)
        return CRASHED if request.path == path and is_bad else reply

    return replies(path, change)


def with_trace(body: Any) -> Any:
    """Return a refusal of a body with a stack trace for a reason."""
    return {**body, "reason": TRACE} if body.get("error") == BAD_REQUEST else body


def is_unreadable(request: Request) -> bool:
    header = request.field("paymentHeader")
    return bool(header) and authorization(header) is None


def is_late_for_64_bits(request: Request) -> bool:
    auth = request.authorization
    return auth is not None and auth.valid_before > MAX_STORED


def is_large_for_64_bits(request: Request) -> bool:
    """Tell whether maxSpend, in base units, does not fit into a signed integer of 64 bits."""
    try:
        return Decimal(request.field("maxSpend")) * 10**6 > MAX_STORED
    except DecimalException:
        return False


def in_order(request: Request) -> dict[str, Any]:
    """Return the order in a request; empty if there is none."""
    return request.json if isinstance(request.json, dict) else {}


def is_no_base64(request: Request) -> bool:
    try:
        payment_id = request.payment_id
        base64.b64decode(payment_id.removeprefix("pay_"), b"-_", validate=True)
    except (binascii.Error, ValueError):
        return True
    return False


# --- the defects ---

malformed("base64-only", "2.3/hex-header",
    "A payment header is taken in base64 only, not in 0x-hex.",
    unreadable_if(prefix=True))  # fmt: skip
malformed("description-must-come-back", "2.1/description",
    "Requirements are refused unless the description is sent back.",
    settlement_rule("2.1/description", lambda case:
        case.requirements.description == case.issued.description))  # fmt: skip


@malformed.defect("id-may-be-missing", "4.1/validate", at(PAY, OtherIds))
async def no_id_needed(other: OtherIds, _: Service, request: Request, serve: Serve) -> Answer:
    """A payment without a payment id is settled under a new one."""
    body = request.json
    if not isinstance(body, dict) or body.get("paymentId") is not None:
        return await serve(request)
    return await other.settled_anew(request.sending({**body, "paymentId": ""}), serve)


malformed("a-size-of-zero-is-free", "1/unpaid-402", "Who orders nothing pays nothing.",
    instead(QUOTE, CONTENT, lambda request: in_order(request).get("sizeUsd") == 0))  # fmt: skip
malformed("no-json-is-free", "1/unpaid-402", "A body that is no JSON is answered with the content.",
    instead(QUOTE, CONTENT, lambda request: request.body == BODIES["no JSON"]))  # fmt: skip
malformed("another-type-is-free", "1/unpaid-402", "A body of text is answered with the content.",
    instead(QUOTE, CONTENT, lambda it: it.headers.get("content-type") == "text/plain"))  # fmt: skip
malformed("a-null-id-is-free", "7/payment-required", "The payment id null opens the content.",
    instead(QUOTE, CONTENT, lambda it: it.headers.get("x-payment-id") == "null"))  # fmt: skip
malformed("pay-falls-over-its-body", "kit/7/malformed-body",
    "A settlement whose body is not what it should be is an internal error.",
    crashes_over_its_body(PAY))  # fmt: skip
malformed("trace-in-the-answer", "kit/7/malformed-body", "The reason of a 400 is the stack trace.",
    answers(400, "/", with_trace))  # fmt: skip
malformed("header-falls-over-its-letters", "kit/7/malformed-header",
    "A payment header that is neither hex nor base64 is an internal error.",
    instead(PAY, CRASHED, is_unreadable))  # fmt: skip
malformed("deadline-overflows", "kit/7/malformed-header",
    "A validBefore beyond 64 bits, which the token allows, is an internal error.",
    instead(PAY, CRASHED, is_late_for_64_bits))  # fmt: skip
malformed("budget-overflows", "kit/7/malformed-body",
    "A maxSpend beyond 64 bits is an internal error.",
    instead(SESSIONS, CRASHED, is_large_for_64_bits))  # fmt: skip
malformed("session-falls-over-its-body", "kit/7/malformed-body",
    "A request for a session whose body is not what it should be is an internal error.",
    crashes_over_its_body(SESSIONS))  # fmt: skip
malformed("leverage-of-zero", "kit/7/malformed-paid",
    "A paid request with a leverage of zero is divided by it.",
    replies(QUOTE, lambda request, it:
        CRASHED if it.status == 400 and in_order(request).get("leverage") == 0 else it))  # fmt: skip
malformed("proof-falls-over-its-letters", "kit/7/malformed-proof",
    "A payment id that is not base64 is an internal error.",
    instead(QUOTE, CRASHED, is_no_base64))  # fmt: skip


# --- errors ----------------------------------------------------------------------------------


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
error("one-text-for-all", ALL_TEXTS, 'The error of every refusal is "Payment failed".',
    refused(answer(400, {"error": "Payment failed"})))  # fmt: skip
error("refused-with-200", ALL_TEXTS, "A refusal is a 200 with success false.", refused(None),
    broad="every refused settlement looks like an accepted one")  # fmt: skip


# --- spellings -------------------------------------------------------------------------------


spelling = Kind("spelling")
MARGIN_S = 20
REFUSED = answer(400, {"error": "Invalid payment header"})


def payload(request: Request) -> dict[str, Any]:
    """Return the payload of a settlement's header as it is written; empty if it has none."""
    try:
        header = json.loads(json_of_header(request.field("paymentHeader")))
    except (BadMessage, ValueError, RecursionError):
        return {}
    found = header.get("payload") if isinstance(header, dict) else None
    return found if isinstance(found, dict) else {}


def refusing(
    when: Callable[[Service, Request, dict[str, Any]], bool], given: Answer = REFUSED
) -> Any:
    """Refuse some settlements that would be accepted; `when` gets the header's payload, too."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        said = payload(request)
        is_whole = all(isinstance(said.get(name), str) for name in ("from", "to", "nonce"))
        return given if is_whole and when(service, request, said) else await serve(request)

    return middleware(handler, PAY)


def some_refused(when: Callable[[Request], bool], given: Answer) -> Change:
    """Refuse some of the orders that would be served."""
    return replies(QUOTE, lambda request, it: given if it.status == 200 and when(request) else it)


def is_lower(text: Any) -> bool:
    return str(text) == str(text).lower()


def begins_with_zeros(text: Any) -> bool:
    return str(text).startswith("0x00")


# --- the defects ---

spelling("hex-in-lower-case-only", "2.3/hex-header",
    "A payment header with hex digits in upper case is refused.",
    refusing(lambda _, request, __: not is_lower(request.field("paymentHeader"))))  # fmt: skip
spelling("payee-of-the-header-by-its-letters", "2.3/contents",
    "The payee of the header is compared with that of the requirements letter by letter.",
    refusing(lambda _, request, said:
        said["to"].lower() == str(request.json["paymentRequirements"].get("payTo")).lower()
        and said["to"] != request.json["paymentRequirements"]["payTo"]))  # fmt: skip
spelling("nonce-in-lower-case-only", "2.3/contents",
    "A header whose nonce has letters in upper case is refused.",
    refusing(lambda _, __, said: not is_lower(said["nonce"])))  # fmt: skip
spelling("signature-in-lower-case-only", "2.3/contents",
    "A header whose signature has letters in upper case is refused.",
    refusing(lambda _, __, said: not is_lower(said["signature"])))  # fmt: skip
for name in ("from", "nonce", "signature"):
    spelling(f"zeros-of-the-{name}-are-lost", "2.3/contents",
        f"The {name} of a header is read as a number, and written without its zeros in front.",
        refusing(lambda _, __, said, name=name: begins_with_zeros(said[name])
            and said["nonce"].startswith("0x00000000"),
            answer(400, {"error": INVALID_SIGNATURE})))  # fmt: skip
spelling("payee-by-its-letters", "2.1/pay-to",
    "The payee that is sent back is compared letter by letter, so it cannot be in lower case.",
    settlement_rule("2.1/pay-to", lambda case:
        case.requirements.pay_to == case.issued.pay_to))  # fmt: skip
spelling("token-by-its-letters", "2.1/asset",
    "The token that is sent back is compared letter by letter, so it cannot be in lower case.",
    settlement_rule("2.1/asset", lambda case:
        case.requirements.asset == case.issued.asset))  # fmt: skip
spelling("just-begun-is-too-early", "5/window",
    "An authorization that began less than 20 s ago is refused.",
    refusing(lambda service, _, said:
        0 <= service.clock.now_s() - int(said["validAfter"]) < MARGIN_S))  # fmt: skip
spelling("nearly-over-is-too-late", "5/window",
    "An authorization that ends in less than 20 s is refused.",
    refusing(lambda service, _, said:
        0 < int(said["validBefore"]) - service.clock.now_s() < MARGIN_S))  # fmt: skip
spelling("short-windows-are-refused", "5/window",
    "An authorization that is valid for less than a minute in all is refused.",
    refusing(lambda service, _, said:
        int(said["validAfter"]) < service.clock.now_s() < int(said["validBefore"])
        and int(said["validBefore"]) - int(said["validAfter"]) < 60))  # fmt: skip
content("whole-numbers-only", "4.2/quote", "An order with a number such as 1000.0 is refused.",
    some_refused(lambda request: b".0" in request.body, answer(400, {"error": "Bad order"})))  # fmt: skip
content("no-white-space", "4.2/quote",
    "An order whose JSON is written over several lines is refused.",
    some_refused(lambda request: b"\n" in request.body, answer(400, {"error": "Bad order"})))  # fmt: skip
content("no-charset", "4.2/quote",
    "The content type of an order must be application/json to the letter.",
    some_refused(lambda request: request.headers.get("content-type", "") != JSON,
        answer(415, {"error": "Unsupported media type"})))  # fmt: skip
gate("query-is-part-of-the-path", "5/cache-first",
    "A payment for a path does not open it with a query.",
    requests(QUOTE, lambda it: it.having(x_payment_id=None) if it.query else it))  # fmt: skip
