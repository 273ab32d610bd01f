"""The OpenAPI document, which GET /openapi.json answers.

It has every route, message and status of the service. Only the words for each operation are written
here, with the sections they describe; the statuses come from the decisions in force.
"""

from collections.abc import Sequence
from typing import Any

from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal, RequestError
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID, examples_of
from x402sim.service.docs.pages import PAGES
from x402sim.service.docs.responses import PROOFS, Told, answer, in_path, object_of, parameters, ref
from x402sim.service.docs.schemas import Json, schemas
from x402sim.service.issue import AGENTS, MARKET, PAY, QUOTE, SESSIONS
from x402sim.spec.decisions import Decisions
from x402sim.text.templates import render
from x402sim.version import VERSION

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


def openapi(decisions: Decisions, price_base: int, network: Network) -> Json:
    """Return the OpenAPI 3.1 document of a service under these decisions.

    `price_base` is the quote's price in base units of the network's token.
    """
    price = f"{price_base} base units ({to_decimal(price_base, network.decimals)} token)"
    examples = examples_of(decisions, price_base, network)
    told = Told(decisions, price, network.name, examples)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Pay-per-request API service",
            "version": VERSION,
            "summary": "HTTP 402, paid with the x402 protocol and an EIP-3009 authorization.",
            "description": render(__package__, "openapi.md", network=network.name).rstrip(),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": ".", "description": "The address this document was read from"}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": _paid(told)
        | _settled(told)
        | _in_sessions(told)
        | _listed(told)
        | _documentation(told),
        "components": {"schemas": schemas(decisions), "parameters": parameters(decisions)},
    }


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
        | told.payment_required("PaymentRequired")
        | told.errors(*_BAD_BODY, *_BAD_PAYMENT, _NO_DATABASE),
        about=f"Requires payment of {told.price} (4.2, 8). Without valid proof of payment the "
        "response is 402, whose resource is the path of this endpoint. Proof is the id of a "
        "settled payment or of a session with enough budget (5), or a payment in the request "
        "itself, as the x402 standard sends it.\n\n"
        + told.decided("4.2/gate-before-body", "5/precedence", "5/short-session", *_ONE_STEP),
        parameters=PROOFS,
        takes=told.body("QuoteRequest"),
    )
    market = _operation(
        _PAID,
        "market",
        "A snapshot of the market (protected)",
        told.answer("Proof of payment accepted.", "Market")
        | told.payment_required("MarketRequired")
        | told.errors(*_BAD_PAYMENT, _NO_DATABASE),
        about=f"Requires payment of {told.price}, as a quote does. It has no body, so any "
        "client of the x402 standard can ask for it.\n\n" + told.decided(*_ONE_STEP),
        parameters=PROOFS,
    )
    return {QUOTE: {"post": quote}, MARKET: {"get": market}}


def _settled(told: Told) -> Json:
    """Return the paths of settlement and of its record."""
    pay = _operation(
        _PAID,
        "pay",
        "Settle a payment",
        told.answer("Settled on-chain (4.1).", "Receipt")
        | told.errors(*Refusal, *_BAD_BODY, _NO_DATABASE),
        about="Send the signed payment header with the requirements of the 402, without "
        "their description (4.1). The service validates the parameters, asks the facilitator to "
        "verify the signature and to settle on-chain, stores the payment record, caches the "
        "entitlement and returns the transaction hash. The amount must match exactly: overpaying "
        "and underpaying are both rejected (2.1).\n\n"
        + told.decided("7/final", "4.1/settlement-pending"),
        takes=told.body("SettlementRequest"),
    )
    record = _operation(
        _PAID,
        "getPayment",
        "Read a payment record",
        told.answer("The record (2.4).", "PaymentRecord")
        | told.errors(RequestError.UNKNOWN_PAYMENT, _NO_DATABASE),
        about="The stored record of a payment (2.4). block_number is null at creation; "
        "the indexer fills it in (8).",
        parameters=[in_path("paymentId", "The paymentId of the 402 (2.2).", PAYMENT_ID)],
    )
    return {PAY: {"post": pay}, "/api/payments/{paymentId}": {"get": record}}


def _in_sessions(told: Told) -> Json:
    """Return the paths of sessions."""
    created = told.decisions.session_created_status
    create = _operation(
        _SESSIONS,
        "createSession",
        "Create a session",
        told.answer("The session; its deposit has settled.", "SessionView", status=created)
        | told.answer(
            "Payment of the deposit required (2.2).",
            "PaymentRequired",
            status=402,
            example="DepositRequired",
        )
        | told.errors(*_BAD_BODY, _NO_DATABASE),
        about="The response is 402 for the session deposit. Pay it through "
        "`POST /api/pay`, then repeat the request with X-Payment-Id (4.4).\n\n"
        + told.decided("4.4/created", "4.4/bad-session-body", "4.4/max-spend"),
        parameters=PROOFS[:1],
        takes=told.body("SessionRequest"),
    )
    unknown = RequestError.UNKNOWN_SESSION, RequestError.METHOD_NOT_ALLOWED
    view = _operation(
        _SESSIONS,
        "getSession",
        "Read a session",
        told.answer("The session (2.6).", "SessionView") | told.errors(*unknown, _NO_DATABASE),
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
        responses |= told.errors(_NO_DATABASE)
    else:
        responses |= told.payment_required("AgentsRequired")
        responses |= told.errors(*_BAD_PAYMENT, _NO_DATABASE)
    agents = _operation(
        _AGENTS,
        "listAgents",
        "List agents",
        responses,
        about="The services for sale, with price and reputation (2.7, 4.3).\n\n"
        + told.decided("4.3/agents-free"),
        parameters=() if told.decisions.agents_free else PROOFS,
    )
    return {AGENTS: {"get": agents}}


def _documentation(told: Told) -> Json:
    """Return the paths of the documentation and of the health check."""
    name = in_path("page", "The name of a page, as in the index.", f"{next(iter(PAGES))}.md")
    name["schema"]["enum"] = [f"{page}.md" for page in PAGES]
    healthy = {"status": "ok", "network": told.network}
    health = object_of(status={"const": "ok"}, network={"type": "string"})
    page = _reading("docsPage", "A documentation page", "text/markdown", parameters=[name])
    page["get"]["responses"] |= told.errors(RequestError.NOT_FOUND)
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
