"""The operations of the API, for the OpenAPI document.

Only the words for each operation are written here, with the sections they describe. The
statuses come from the decisions in force.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from x402sim.protocol.refusals import Refusal, RequestError
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID
from x402sim.service.docs.pages import PAGES, decision_named, in_force
from x402sim.service.docs.responses import (
    PROOFS,
    answer,
    body,
    errors,
    in_path,
    object_of,
    payment_required,
    ref,
)
from x402sim.service.docs.schemas import Json
from x402sim.service.issue import AGENTS, MARKET, PAY, QUOTE, SESSIONS
from x402sim.spec.decisions import Decisions

_PAID, _SESSIONS, _AGENTS = "Paid requests", "Sessions", "Agents"
_DOCUMENTATION = "Documentation and health"
TAGS = {
    _PAID: "The protected endpoints, their settlement, and the stored record.",
    _SESSIONS: "A budget that is deposited once and spent request by request.",
    _AGENTS: "The services for sale.",
    _DOCUMENTATION: "This document, the pages about it, and the health check.",
}
_BAD_BODY = (RequestError.INVALID_BODY, RequestError.BODY_TOO_LARGE)
_BAD_PAYMENT = (
    RequestError.INVALID_PAYMENT,
    Refusal.PENDING,
    RequestError.IDENTIFIER_TAKEN,
    Refusal.UNREACHABLE,
    Refusal.FAILED,
)
"""What answers a payment in the request that cannot be read, or may still be settled."""
_NO_DATABASE = RequestError.STORAGE_UNAVAILABLE
_ONE_STEP = ("5/one-step", "5/authorization-once", "5/offered-id", "5/payment-identifier")


class Told(msgspec.Struct, frozen=True):
    """What the document tells of a service: its decisions, price and network, and examples."""

    decisions: Decisions
    price: str
    network: str
    examples: Json


def paths(told: Told) -> Json:
    """Return the paths of the API and of its documentation."""
    return _paid(told) | _settled(told) | _in_sessions(told) | _listed(told) | _documentation(told)


def _operation(
    tag: str,
    name: str,
    summary: str,
    responses: Json,
    *,
    about: str = "",
    parameters: Sequence[Json] = (),
    takes: Json | None = None,
) -> Json:
    """Return an operation; `takes` is its body."""
    operation = {
        "tags": [tag],
        "operationId": name,
        "summary": summary,
        "description": about,
        "parameters": parameters,
        "requestBody": takes,
        "responses": responses,
    }
    return {key: value for key, value in operation.items() if value}


def _paid(told: Told) -> Json:
    """Return the paths of what is paid for by request."""
    quoted = object_of(quote=ref("Quote")), {"quote": told.examples["Quote"]}
    quote = _operation(
        _PAID,
        "quote",
        "Quote a perpetual position (protected)",
        answer("Proof of payment accepted (4.2).", *quoted)
        | payment_required(told.decisions, told.examples["PaymentRequired"])
        | errors(told.decisions, *_BAD_BODY, *_BAD_PAYMENT, _NO_DATABASE),
        about=f"Requires payment of {told.price} (4.2, 8). Without valid proof of payment the "
        "response is 402, whose resource is the path of this endpoint. Proof is the id of a "
        "settled payment or of a session with enough budget (5), or a payment in the request "
        "itself, as the x402 standard sends it.\n\n"
        + _decided(told, "4.2/gate-before-body", "5/precedence", "5/short-session", *_ONE_STEP),
        parameters=PROOFS,
        takes=body("QuoteRequest", told.examples),
    )
    market = _operation(
        _PAID,
        "market",
        "A snapshot of the market (protected)",
        answer("Proof of payment accepted.", ref("Market"), told.examples["Market"])
        | payment_required(told.decisions, told.examples["MarketRequired"])
        | errors(told.decisions, *_BAD_PAYMENT, _NO_DATABASE),
        about=f"Requires payment of {told.price}, as a quote does. It has no body, so any "
        "client of the x402 standard can ask for it.\n\n" + _decided(told, *_ONE_STEP),
        parameters=PROOFS,
    )
    return {QUOTE: {"post": quote}, MARKET: {"get": market}}


def _settled(told: Told) -> Json:
    """Return the paths of settlement and of its record."""
    pay = _operation(
        _PAID,
        "pay",
        "Settle a payment",
        answer("Settled on-chain (4.1).", ref("Receipt"), told.examples["Receipt"])
        | errors(told.decisions, *Refusal, *_BAD_BODY, _NO_DATABASE),
        about="Send the signed payment header with the requirements of the 402, without "
        "their description (4.1). The service validates the parameters, asks the facilitator to "
        "verify the signature and to settle on-chain, stores the payment record, caches the "
        "entitlement and returns the transaction hash. The amount must match exactly: overpaying "
        "and underpaying are both rejected (2.1).\n\n"
        + _decided(told, "7/final", "4.1/settlement-pending"),
        takes=body("SettlementRequest", told.examples),
    )
    record = _operation(
        _PAID,
        "getPayment",
        "Read a payment record",
        answer("The record (2.4).", ref("PaymentRecord"), told.examples["PaymentRecord"])
        | errors(told.decisions, RequestError.UNKNOWN_PAYMENT, _NO_DATABASE),
        about="The stored record of a payment (2.4). block_number is null at creation; "
        "the indexer fills it in (8).",
        parameters=[in_path("paymentId", "The paymentId of the 402 (2.2).", PAYMENT_ID)],
    )
    return {PAY: {"post": pay}, "/api/payments/{paymentId}": {"get": record}}


def _in_sessions(told: Told) -> Json:
    """Return the paths of sessions."""
    session = ref("SessionView"), told.examples["SessionView"]
    deposit = ref("PaymentRequired"), told.examples["DepositRequired"]
    created = told.decisions.session_created_status
    create = _operation(
        _SESSIONS,
        "createSession",
        "Create a session",
        answer("The session; its deposit has settled.", *session, status=created)
        | answer("Payment of the deposit required (2.2).", *deposit, status=402)
        | errors(told.decisions, *_BAD_BODY, _NO_DATABASE),
        about="The response is 402 for the session deposit. Pay it through "
        "`POST /api/pay`, then repeat the request with X-Payment-Id (4.4).\n\n"
        + _decided(told, "4.4/created", "4.4/bad-session-body", "4.4/max-spend"),
        parameters=PROOFS[:1],
        takes=body("SessionRequest", told.examples),
    )
    unknown = RequestError.UNKNOWN_SESSION, RequestError.METHOD_NOT_ALLOWED
    view = _operation(
        _SESSIONS,
        "getSession",
        "Read a session",
        answer("The session (2.6).", *session) | errors(told.decisions, *unknown, _NO_DATABASE),
        about="Remaining budget = deposited - released (2.6). On expiration the unspent "
        "balance is refunded (3).",
        parameters=[in_path("sessionId", "The id carried in X-Session-Id (2.6).", SESSION_ID)],
    )
    return {SESSIONS: {"post": create}, "/api/sessions/{sessionId}": {"get": view}}


def _listed(told: Told) -> Json:
    """Return the path of the agents."""
    listed = object_of(agents={"type": "array", "items": ref("Agent")})
    responses = answer("The agents (4.3).", listed, {"agents": [told.examples["Agent"]]})
    if told.decisions.agents_free:
        responses |= errors(told.decisions, _NO_DATABASE)
    else:
        responses |= payment_required(told.decisions, told.examples["AgentsRequired"])
        responses |= errors(told.decisions, *_BAD_PAYMENT, _NO_DATABASE)
    agents = _operation(
        _AGENTS,
        "listAgents",
        "List agents",
        responses,
        about="The services for sale, with price and reputation (2.7, 4.3).\n\n"
        + _decided(told, "4.3/agents-free"),
        parameters=() if told.decisions.agents_free else PROOFS,
    )
    return {AGENTS: {"get": agents}}


def _decided(told: Told, *slugs: str) -> str:
    """Return what the service does where the specification is silent, one line a decision."""
    named = (decision_named(slug) for slug in slugs)
    return "\n".join(
        f"- {d.question} {in_force(d, told.decisions)} (decision {d.id})." for d in named
    )


def _documentation(told: Told) -> Json:
    """Return the paths of the documentation and of the health check."""
    name = in_path("page", "The name of a page, as in the index.", f"{next(iter(PAGES))}.md")
    name["schema"]["enum"] = [f"{page}.md" for page in PAGES]
    healthy = {"status": "ok", "network": told.network}
    health = object_of(status={"const": "ok"}, network={"type": "string"})
    page = _reading("docsPage", "A documentation page", "text/markdown", parameters=[name])
    page["get"]["responses"] |= errors(told.decisions, RequestError.NOT_FOUND)
    return {
        "/llms.txt": _reading("llmsTxt", "Index of all documentation pages (4.5)", "text/plain"),
        "/docs/{page}": page,
        "/docs": _reading("docs", "Interactive documentation", "text/html"),
        "/openapi.json": _reading("openapi", "This document", schema={"type": "object"}),
        "/healthz": _reading("healthz", "Health check", schema=health, example=healthy),
    }


def _reading(
    name: str,
    summary: str,
    media: str = "application/json",
    *,
    schema: Json | None = None,
    example: Any = None,
    parameters: Sequence[Json] = (),
) -> Json:
    """Return the path of something that is only read: a text, unless there is another schema."""
    responses = answer(f"{summary}.", schema or {"type": "string"}, example, media=media)
    return {"get": _operation(_DOCUMENTATION, name, summary, responses, parameters=parameters)}
