"""Defects of reading: a right value that is refused, because it is written in another way."""

import json
from collections.abc import Callable
from typing import Any

from tests.mutants.change import Service, settlement_rule
from tests.mutants.content import content
from tests.mutants.gate import gate
from tests.mutants.middleware import Answer, Request, Serve, answer, middleware
from tests.mutants.mutant import Kind, at
from tests.mutants.paying import INVALID_SIGNATURE, PAY, QUOTE
from x402sim.protocol.header import json_of_header
from x402sim.protocol.messages import BadMessage

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


def is_lower(text: Any) -> bool:
    """Tell whether a text has no letter in upper case."""
    return str(text) == str(text).lower()


def begins_with_zeros(text: Any) -> bool:
    """Tell whether hex digits begin with a byte of zero."""
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


@content.defect("whole-numbers-only", "4.2/quote", at(QUOTE))
async def whole_numbers_only(_: Service, request: Request, serve: Serve) -> Answer:
    """An order with a number such as 1000.0 is refused."""
    reply = await serve(request)
    return answer(400, {"error": "Bad order"}) if is_paid(reply, b".0", request) else reply


@content.defect("no-white-space", "4.2/quote", at(QUOTE))
async def no_white_space(_: Service, request: Request, serve: Serve) -> Answer:
    """An order whose JSON is written over several lines is refused."""
    reply = await serve(request)
    return answer(400, {"error": "Bad order"}) if is_paid(reply, b"\n", request) else reply


def is_paid(reply: Answer, part: bytes, request: Request) -> bool:
    """Tell whether a request that is served has this part in its body."""
    return reply.status == 200 and part in request.body


@content.defect("no-charset", "4.2/quote", at(QUOTE))
async def no_charset(_: Service, request: Request, serve: Serve) -> Answer:
    """The content type of an order must be application/json to the letter."""
    reply, kind = await serve(request), request.headers.get("content-type", "")
    if reply.status == 200 and kind != "application/json":
        return answer(415, {"error": "Unsupported media type"})
    return reply


@gate.defect("query-is-part-of-the-path", "5/cache-first", at(QUOTE))
async def query_is_part_of_the_path(_: Service, request: Request, serve: Serve) -> Answer:
    """A payment for a path does not open it with a query."""
    return await serve(request.having(x_payment_id=None) if request.query else request)
