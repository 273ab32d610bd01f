"""Defects of input: what is refused although it is right, and what crashes over a wrong one."""

import base64
import binascii
from decimal import Decimal, DecimalException
from typing import Any

from tests.mutants.change import Change, Service, settlement_rule
from tests.mutants.middleware import (
    CRASHED,
    Answer,
    Request,
    Serve,
    answer,
    answers,
    instead,
    replies,
    requests,
)
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import PAY, QUOTE, SESSIONS, OtherIds, authorization
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.refusals import RequestError
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
    """Tell whether a settlement's payment header cannot be read."""
    header = request.field("paymentHeader")
    return bool(header) and authorization(header) is None


def is_late_for_64_bits(request: Request) -> bool:
    """Tell whether validBefore does not fit into a signed integer of 64 bits."""
    auth = authorization(request.field("paymentHeader"))
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
    """Tell whether a payment id in the headers is not base64."""
    try:
        payment_id = request.headers.get("x-payment-id", "")
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


@malformed.defect("leverage-of-zero", "kit/7/malformed-paid", at(QUOTE))
async def divided_by_leverage(_: Service, request: Request, serve: Serve) -> Answer:
    """A paid request with a leverage of zero is divided by it."""
    reply = await serve(request)
    return CRASHED if reply.status == 400 and in_order(request).get("leverage") == 0 else reply


malformed("proof-falls-over-its-letters", "kit/7/malformed-proof",
    "A payment id that is not base64 is an internal error.",
    instead(QUOTE, CRASHED, is_no_base64))  # fmt: skip
