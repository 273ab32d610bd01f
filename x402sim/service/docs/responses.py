"""Builds the requests and responses of the OpenAPI document.

The error responses are written from the tables of `protocol.refusals`, under the statuses
of the decisions in force.
"""

from typing import Any

import msgspec

from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.refusals import Refusal, RequestError, is_final, status_of
from x402sim.protocol.x402 import PAYMENT_HEADERS, RESPONSE_HEADERS
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID
from x402sim.service.docs.pages import decision_named, in_force
from x402sim.service.docs.schemas import Json
from x402sim.spec.decisions import Decisions


def ref(name: str) -> Json:
    """Return the reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


class Told(msgspec.Struct, frozen=True):
    """What the document tells of a service: its decisions, price and network, and examples."""

    decisions: Decisions
    price: str
    network: str
    examples: Json

    def body(self, name: str) -> Json:
        """Return a request body with the schema and the example of this name."""
        media = {"schema": ref(name), "example": self.examples[name]}
        return {"required": True, "content": {"application/json": media}}

    def answer(
        self, description: str, name: str, *, status: int = 200, example: str | None = None
    ) -> Json:
        """Return a response, by its status, with the schema of this name, and its example."""
        return answer(description, ref(name), self.examples[example or name], status=status)

    def errors(self, *named: Refusal | RequestError) -> Json:
        """Return one response a status, with the text and an example of each error it has."""
        found: dict[str, list[Refusal | RequestError]] = {}
        for error in named:
            found.setdefault(str(status_of(error, self.decisions)), []).append(error)
        return {status: _response(group) for status, group in sorted(found.items())}

    def payment_required(self, example: str) -> Json:
        """Return the 402 of section 2.2, and what answers a short session if that differs."""
        required = self.answer(_REQUIRED, "PaymentRequired", status=402, example=example)
        if self.decisions.short_session_status == 402:
            return required
        return required | self.errors(RequestError.SESSION_CANNOT_PAY)

    def decided(self, *slugs: str) -> str:
        """Return what the service does where the specification is silent, a line a decision."""
        return "\n".join(
            f"- {d.question} {in_force(d, self.decisions)} (decision {d.id})."
            for d in map(decision_named, slugs)
        )


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


_REQUIRED = (
    "No valid proof of payment (2.2). `x402Version` and `accepts` in the body, and the header "
    "PAYMENT-REQUIRED, offer the same payment in one step (versions 1 and 2 of the x402 standard); "
    "`reason` tells what was wrong with the payment in the request, and `error` is the standard's "
    "word for it if that is of version 1. X-PAYMENT-RESPONSE or PAYMENT-RESPONSE tells of a "
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
        examples[name] = {"summary": error.text, "value": msgspec.to_builtins(body)}
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
