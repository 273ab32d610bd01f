"""Builds the requests and responses of the OpenAPI document.

The error responses are written from the tables of `protocol.refusals`, under the statuses
of the decisions in force.
"""

from collections.abc import Iterable
from typing import Any

from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.refusals import Refusal, RequestError, is_final, status_of
from x402sim.protocol.x402 import PAYMENT_HEADERS, RESPONSE_HEADERS
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID, plain
from x402sim.service.docs.schemas import Json
from x402sim.spec.decisions import Decisions


def ref(name: str) -> Json:
    """Return the reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**properties: str) -> Json:
    """Return the schema of an object whose properties are all required, each a named schema."""
    return {
        "type": "object",
        "properties": {name: ref(schema) for name, schema in properties.items()},
        "required": list(properties),
    }


def body(schema: str, examples: Json) -> Json:
    """Return a request body with this schema and its example."""
    media = {"schema": ref(schema), "example": examples[schema]}
    return {"required": True, "content": {"application/json": media}}


def answer(description: str, schema: str | Json, example: Any = None) -> Json:
    """Return a JSON response; `schema` is a schema or the name of one."""
    media: Json = {"schema": ref(schema) if isinstance(schema, str) else schema}
    if example is not None:
        media["example"] = example
    return {"description": description, "content": {"application/json": media}}


# --- errors --------------------------------------------------------------------------


def errors(decisions: Decisions, *named: RequestError) -> Json:
    """Return the responses with these errors, by status, and the one without a database."""
    return by_status(decisions, (*named, _NO_DATABASE))


def bad_body(decisions: Decisions, *more: RequestError) -> Json:
    """Return the responses to a body that cannot be read, and the one without a database."""
    return errors(decisions, *_BAD_BODY, *more)


def unsettled(decisions: Decisions) -> Json:
    """Return the responses to a payment in the request that may still be settled."""
    return by_status(decisions, (Refusal.PENDING, _NAME_TAKEN, Refusal.UNREACHABLE, Refusal.FAILED))


def refusals(decisions: Decisions) -> Json:
    """Return the responses of POST /api/pay other than a receipt (7)."""
    return by_status(decisions, (*Refusal, *_BAD_BODY, _NO_DATABASE))


_BAD_BODY = (RequestError.INVALID_BODY, RequestError.BODY_TOO_LARGE)
_NAME_TAKEN = RequestError.IDENTIFIER_TAKEN
_NO_DATABASE = RequestError.STORAGE_UNAVAILABLE


def payment_required(decisions: Decisions, example: Json) -> Json:
    """Return the 402 of section 2.2, and what answers a session that is short if that differs."""
    required = {"402": answer(_REQUIRED, "PaymentRequired", example)}
    if decisions.short_session_status == 402:
        return required
    return required | errors(decisions, RequestError.SESSION_CANNOT_PAY)


_REQUIRED = (
    "No valid proof of payment (2.2). `x402Version` and `accepts` in the body, and the header "
    "PAYMENT-REQUIRED, offer the same payment in one step (versions 1 and 2 of the x402 standard); "
    "`reason` tells what was wrong with the payment in the request. PAYMENT-RESPONSE tells of a "
    "settlement that failed."
)


def by_status(decisions: Decisions, named: Iterable[Refusal | RequestError]) -> Json:
    """Return one response a status, with the text and an example of each error it has."""
    found: dict[str, list[Refusal | RequestError]] = {}
    for error in named:
        found.setdefault(str(status_of(error, decisions)), []).append(error)
    return {status: _response(group) for status, group in sorted(found.items())}


def _response(group: list[Refusal | RequestError]) -> Json:
    examples = {
        error.text.lower().replace(" ", "-"): {"summary": error.text, "value": plain(_body(error))}
        for error in group
    }
    media = {"schema": ref("ErrorBody"), "examples": examples}
    description = " ".join(map(_description, group))
    return {"description": description, "content": {"application/json": media}}


def _description(error: Refusal | RequestError) -> str:
    if isinstance(error, Refusal):
        return f"`{error.text}` (7): {error.row.cause}"
    return f"`{error.text}`: {error.meaning}"


def _body(error: Refusal | RequestError) -> ErrorBody:
    if isinstance(error, Refusal):
        final = is_final(error.text)
        return ErrorBody(error=error.text, reason=error.row.example, final=final)
    return ErrorBody(error=error.text, reason=error.example)


# --- parameters ----------------------------------------------------------------------

PROOFS = [
    {"$ref": f"#/components/parameters/{name}"}
    for name in ("PaymentId", "SessionId", "PaymentV1", "PaymentV2")
]
"""The parameters of an endpoint that asks for proof of payment."""


def parameters(decisions: Decisions) -> Json:
    """Return the header parameters that prove a payment (5)."""
    first = "X-Payment-Id" if decisions.payment_id_first else "X-Session-Id"
    both = f"When a request has both headers, {first} is checked first."
    return {
        "PaymentId": _header(
            "X-Payment-Id",
            f"The paymentId of a settled payment: entitlement check (5). {both}",
            PAYMENT_ID,
        ),
        "SessionId": _header(
            "X-Session-Id", f"The id of a session: budget deduction (5). {both}", SESSION_ID
        ),
        **{
            f"PaymentV{version}": _header(
                name,
                f"A payment in one step, in version {version} of the x402 standard: base64 of its "
                "JSON. It is settled if no other proof is accepted; the answer's headers "
                f"{RESPONSE_HEADERS[version]} and X-Payment-Id tell of the settlement.",
                "eyJ4NDAyVmVyc2lvbiI6...",
            )
            for version, name in PAYMENT_HEADERS.items()
        },
    }


def _header(name: str, description: str, example: str) -> Json:
    return in_path(name, description, example) | {"in": "header", "required": False}


def in_path(name: str, description: str, example: str) -> Json:
    """Return a required parameter of the path."""
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }
