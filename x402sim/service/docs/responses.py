"""Builds the requests and responses of the OpenAPI document.

The error responses are written from the tables of `protocol.refusals`, under the statuses
of the decisions in force.
"""

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


def object_of(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def body(schema: str, examples: Json) -> Json:
    """Return a request body with this schema and its example."""
    media = {"schema": ref(schema), "example": examples[schema]}
    return {"required": True, "content": {"application/json": media}}


def answer(
    description: str,
    schema: Json,
    example: Any = None,
    *,
    status: int = 200,
    media: str = "application/json",
) -> Json:
    """Return a response, by its status."""
    content = {"schema": schema} | ({} if example is None else {"example": example})
    return {str(status): {"description": description, "content": {media: content}}}


# --- errors --------------------------------------------------------------------------


def errors(decisions: Decisions, *named: Refusal | RequestError) -> Json:
    """Return one response a status, with the text and an example of each error it has."""
    found: dict[str, list[Refusal | RequestError]] = {}
    for error in named:
        found.setdefault(str(status_of(error, decisions)), []).append(error)
    return {status: _response(group) for status, group in sorted(found.items())}


def payment_required(decisions: Decisions, example: Json) -> Json:
    """Return the 402 of section 2.2, and what answers a session that is short if that differs."""
    required = answer(_REQUIRED, ref("PaymentRequired"), example, status=402)
    if decisions.short_session_status == 402:
        return required
    return required | errors(decisions, RequestError.SESSION_CANNOT_PAY)


_REQUIRED = (
    "No valid proof of payment (2.2). `x402Version` and `accepts` in the body, and the header "
    "PAYMENT-REQUIRED, offer the same payment in one step (versions 1 and 2 of the x402 standard); "
    "`reason` tells what was wrong with the payment in the request. PAYMENT-RESPONSE tells of a "
    "settlement that failed."
)


def _response(group: list[Refusal | RequestError]) -> Json:
    told, examples = [], {}
    for error in group:
        if isinstance(error, Refusal):
            section, about, final = " (7)", error.row.cause, is_final(error.text)
            body = ErrorBody(error=error.text, reason=error.row.example, final=final)
        else:
            section, about = "", error.meaning
            body = ErrorBody(error=error.text, reason=error.example)
        told.append(f"`{error.text}`{section}: {about}")
        name = error.text.lower().replace(" ", "-")
        examples[name] = {"summary": error.text, "value": plain(body)}
    media = {"schema": ref("ErrorBody"), "examples": examples}
    return {"description": " ".join(told), "content": {"application/json": media}}


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
