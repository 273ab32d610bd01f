"""The OpenAPI document: every route, message and status of the service, for machines.

The statuses come from the decisions in force, the schemas and examples from
`openapi_messages`, the introduction from `texts`; only the words for each operation are
written here. Each operation names the clauses
it describes, and keeps none.
"""

from typing import Any

from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.money import to_decimal
from x402sim.protocol.refusals import Refusal, status_of
from x402sim.service.docs.openapi_messages import (
    PAYMENT_ID,
    SESSION_ID,
    Json,
    examples_of,
    plain,
    schemas,
)
from x402sim.service.docs.pages import PAGES, decision_named, in_force
from x402sim.service.docs.templates import render
from x402sim.spec.decisions import Decisions


def openapi(*, decisions: Decisions, price_base: int, network: str, version: str) -> Json:
    """Return the OpenAPI 3.1 document of a service under these decisions.

    `price_base` is the quote's price in base units. Raises `ValueError` for a network
    that is not known.
    """
    examples = examples_of(decisions, price_base, network)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Pay-per-request API service",
            "version": version,
            "summary": "HTTP 402, paid with the x402 protocol and an EIP-3009 authorization.",
            "description": render("openapi.md", network=network).rstrip(),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": ".", "description": "Where this document was read"}],
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": {
            "/api/perp/quote": {"post": _quote(decisions, price_base, examples)},
            "/api/pay": {"post": _pay(decisions, examples)},
            "/api/payments/{paymentId}": {"get": _payment(examples)},
            "/api/sessions/create": {"post": _create_session(decisions, examples)},
            "/api/sessions/{sessionId}": {"get": _session(examples)},
            "/api/agents": {"get": _agents(decisions, examples)},
            **_documentation_paths(network),
        },
        "components": {
            "schemas": schemas(decisions),
            "parameters": _parameters(decisions),
        },
    }


_TAGS = {
    "Paid requests": "The protected endpoint, its settlement, and the stored record.",
    "Sessions": "A budget that is deposited once and spent request by request.",
    "Agents": "What is for sale here.",
    "Documentation and health": "This document, the pages about it, and a sign of life.",
}

# --- the operations ------------------------------------------------------------------


def _quote(decisions: Decisions, price_base: int, examples: Json) -> Json:
    price = f"{price_base} base units ({to_decimal(price_base, 6)} token)"
    return {
        "tags": ["Paid requests"],
        "operationId": "quote",
        "summary": "Quote a perpetual position (protected)",
        "description": f"Requires payment of {price} (4.2, 8). Without valid proof of payment the "
        "answer is 402, whose resource is the path of this endpoint. Proof is the id of a settled "
        "payment or of a session with enough budget (5).\n\n"
        + _decided(decisions, "4.2/gate-before-body", "5/precedence", "5/short-session"),
        "parameters": _PROOFS,
        "requestBody": _body("QuoteRequest", examples),
        "responses": {
            "200": _answer(
                "Proof of payment accepted (4.2).",
                _object(quote="Quote"),
                {"quote": examples["Quote"]},
            ),
            **_payment_required(decisions, examples["PaymentRequired"]),
            **_BAD_BODY,
        },
    }


def _pay(decisions: Decisions, examples: Json) -> Json:
    return {
        "tags": ["Paid requests"],
        "operationId": "pay",
        "summary": "Settle a payment",
        "description": "Send the signed payment header with the requirements of the 402, its "
        "description left out (4.1). The service validates the parameters, has the facilitator "
        "verify the signature and settle on-chain, stores the payment record, caches the "
        "entitlement and returns the transaction hash. The amount must match exactly: overpaying "
        "and underpaying are both rejected (2.1).",
        "requestBody": _body("SettlementRequest", examples),
        "responses": {
            "200": _answer("Settled on-chain (4.1).", "Receipt", examples["Receipt"]),
            **_merge(_refusals(decisions), _BAD_BODY),
        },
    }


def _payment(examples: Json) -> Json:
    return {
        "tags": ["Paid requests"],
        "operationId": "getPayment",
        "summary": "Read a payment record",
        "description": "The stored record of a payment (2.4). block_number is null at creation "
        "and filled in by the indexer (8).",
        "parameters": [_path("paymentId", "The paymentId of the 402 (2.2).")],
        "responses": {
            "200": _answer("The record (2.4).", "PaymentRecord", examples["PaymentRecord"]),
            **_not_found("Unknown payment", "no settlement of this id is stored"),
        },
    }


def _create_session(decisions: Decisions, examples: Json) -> Json:
    created = str(decisions.session_created_status)
    return {
        "tags": ["Sessions"],
        "operationId": "createSession",
        "summary": "Create a session",
        "description": "Answers 402 for the session deposit; pay it through `POST /api/pay` and "
        "repeat the request with X-Payment-Id (4.4).\n\n"
        + _decided(decisions, "4.4/created", "4.4/bad-session-body", "4.4/max-spend"),
        "parameters": [{"$ref": "#/components/parameters/PaymentId"}],
        "requestBody": _body("SessionRequest", examples),
        "responses": {
            created: _answer(
                "The deposit has settled; this is its session.",
                "SessionView",
                examples["SessionView"],
            ),
            "402": _answer(
                "Payment of the deposit required (2.2).",
                "PaymentRequired",
                examples["DepositRequired"],
            ),
            **_BAD_BODY,
        },
    }


def _session(examples: Json) -> Json:
    return {
        "tags": ["Sessions"],
        "operationId": "getSession",
        "summary": "Read a session",
        "description": "Remaining budget = deposited - released (2.6). On expiration the unspent "
        "balance is refunded (3).",
        "parameters": [_path("sessionId", "The id carried in X-Session-Id (2.6).")],
        "responses": {
            "200": _answer("The session (2.6).", "SessionView", examples["SessionView"]),
            **_not_found("Unknown session"),
        },
    }


def _agents(decisions: Decisions, examples: Json) -> Json:
    schema = {
        "type": "object",
        "properties": {"agents": {"type": "array", "items": _ref("Agent")}},
        "required": ["agents"],
    }
    operation: Json = {
        "tags": ["Agents"],
        "operationId": "listAgents",
        "summary": "List agents",
        "description": "The services for sale, with price and reputation (2.7, 4.3). "
        + _decided(decisions, "4.3/agents-free"),
        "responses": {"200": _answer("The agents (4.3).", schema, {"agents": [examples["Agent"]]})},
    }
    if not decisions.agents_free:
        operation["parameters"] = _PROOFS
        operation["responses"] |= _payment_required(decisions, examples["AgentsRequired"])
    return operation


def _documentation_paths(network: str) -> Json:
    name = {
        "name": "page",
        "in": "path",
        "required": True,
        "description": "The name of a page, as the index lists it.",
        "schema": {"type": "string", "enum": [f"{page}.md" for page in PAGES]},
        "example": f"{PAGES[0]}.md",
    }
    alive = {"status": "ok", "network": network}
    health = {
        "type": "object",
        "properties": {"status": {"const": "ok"}, "network": {"type": "string"}},
        "required": ["status", "network"],
    }
    return {
        "/llms.txt": {
            "get": _text("llmsTxt", "Index of all documentation pages (4.5)", "text/plain")
        },
        "/docs/{page}": {
            "get": {
                **_text("docsPage", "A documentation page", "text/markdown"),
                "parameters": [name],
            }
        },
        "/docs": {"get": _text("docs", "Interactive documentation", "text/html")},
        "/openapi.json": {"get": _json_page("openapi", "This document", {"type": "object"})},
        "/healthz": {"get": _json_page("healthz", "Sign of life", health, alive)},
    }


def _text(operation_id: str, summary: str, media_type: str) -> Json:
    content = {media_type: {"schema": {"type": "string"}}}
    responses: Json = {"200": {"description": f"{summary}.", "content": content}}
    return _documentation(operation_id, summary, responses)


def _json_page(operation_id: str, summary: str, schema: Json, example: Any = None) -> Json:
    responses = {"200": _answer(f"{summary}.", schema, example)}
    return _documentation(operation_id, summary, responses)


def _documentation(operation_id: str, summary: str, responses: Json) -> Json:
    tags = ["Documentation and health"]
    return {"tags": tags, "operationId": operation_id, "summary": summary, "responses": responses}


# --- requests and responses ----------------------------------------------------------


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(**properties: str) -> Json:
    return {
        "type": "object",
        "properties": {name: _ref(schema) for name, schema in properties.items()},
        "required": list(properties),
    }


def _body(schema: str, examples: Json) -> Json:
    media = {"schema": _ref(schema), "example": examples[schema]}
    return {"required": True, "content": {"application/json": media}}


def _answer(description: str, schema: str | Json, example: Any = None) -> Json:
    media: Json = {"schema": _ref(schema) if isinstance(schema, str) else schema}
    if example is not None:
        media["example"] = example
    return {"description": description, "content": {"application/json": media}}


def _errors(description: str, *examples: tuple[str, str | None]) -> Json:
    """Return a response of `{"error", "reason"}` bodies, with one named example each."""
    named = {
        _slug(error): {"summary": error, "value": plain(ErrorBody(error=error, reason=reason))}
        for error, reason in examples
    }
    media = {"schema": _ref("ErrorBody"), "examples": named}
    return {"description": description, "content": {"application/json": media}}


def _slug(text: str) -> str:
    return text.lower().replace(" ", "-")


def _not_found(text: str, reason: str | None = None) -> Json:
    return {"404": _errors(f"{text}.", (text, reason))}


def _payment_required(decisions: Decisions, example: Json) -> Json:
    """Return the 402 of section 2.2, and what answers a session that is short if that differs."""
    required = _answer("No valid proof of payment (2.2).", "PaymentRequired", example)
    responses = {"402": required}
    if decisions.short_session_status != 402:
        short = _errors(
            "The session is unknown, expired or short of budget.",
            ("Session cannot pay", "unknown, expired, or short of budget"),
        )
        responses[str(decisions.short_session_status)] = short
    return responses


def _refusals(decisions: Decisions) -> Json:
    """Return the settlement errors of section 7 and our own, under the statuses we decided."""
    by_status: dict[str, list[Refusal]] = {}
    for refusal in Refusal:
        by_status.setdefault(str(status_of(refusal, decisions)), []).append(refusal)
    return {
        status: _errors(
            "; ".join(refusal.value for refusal in group) + " (7).",
            *((refusal.value, _REASONS.get(refusal)) for refusal in group),
        )
        for status, group in sorted(by_status.items())
    }


_REASONS = {
    Refusal.MISMATCH: "maxAmountRequired: issued 10000, got 1",
    Refusal.UNREACHABLE: "nothing was charged: connection refused",
}


def _merge(first: Json, second: Json) -> Json:
    """Return the responses of both; under one status their texts and examples are joined."""
    merged = dict(first)
    for status, response in second.items():
        if status in first:
            a, b = (each["content"]["application/json"] for each in (first[status], response))
            texts = f"{first[status]['description']} {response['description']}"
            media = {"schema": a["schema"], "examples": a["examples"] | b["examples"]}
            merged[status] = {"description": texts, "content": {"application/json": media}}
        else:
            merged[status] = response
    return merged


_BAD_BODY = {
    "400": _errors(
        "The body is not what it should be; `reason` says what is wrong, and where.",
        ("Invalid request body", "Object missing required field `pair`"),
    ),
    "413": _errors(
        "The body has more than 1 MiB.",
        ("Request body too large", "at most 1048576 bytes are read"),
    ),
}


def _decided(decisions: Decisions, *slugs: str) -> str:
    """Return what is done where the specification is silent, as the decisions in force say."""
    named = (decision_named(slug) for slug in slugs)
    return "\n".join(f"- {d.question} {in_force(d, decisions)} (decision {d.id})." for d in named)


# --- parameters ----------------------------------------------------------------------

_PROOFS = [
    {"$ref": "#/components/parameters/PaymentId"},
    {"$ref": "#/components/parameters/SessionId"},
]


def _parameters(decisions: Decisions) -> Json:
    first = "X-Payment-Id" if decisions.payment_id_first else "X-Session-Id"
    both = f"When both headers are sent, {first} is looked at first."
    return {
        "PaymentId": _header(
            "X-Payment-Id",
            f"The paymentId of a settled payment: entitlement check (5). {both}",
            PAYMENT_ID,
        ),
        "SessionId": _header(
            "X-Session-Id", f"The id of a session: budget deduction (5). {both}", SESSION_ID
        ),
    }


def _header(name: str, description: str, example: str) -> Json:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string"},
        "example": example,
    }


def _path(name: str, description: str) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string"},
        "example": {"paymentId": PAYMENT_ID, "sessionId": SESSION_ID}[name],
    }
