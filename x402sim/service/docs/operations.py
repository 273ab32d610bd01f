"""The operations of the API, for the OpenAPI document.

Only the words for each operation are written here, with the sections they describe. The
statuses come from the decisions in force.
"""

from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import RequestError
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID
from x402sim.service.docs.pages import decision_named, in_force
from x402sim.service.docs.responses import (
    PROOFS,
    answer,
    bad_body,
    body,
    errors,
    in_path,
    object_of,
    payment_required,
    ref,
    refusals,
    unsettled,
)
from x402sim.service.docs.schemas import Json
from x402sim.spec.decisions import Decisions

TAGS = {
    "Paid requests": "The protected endpoints, their settlement, and the stored record.",
    "Sessions": "A budget that is deposited once and spent request by request.",
    "Agents": "The services for sale.",
    "Documentation and health": "This document, the pages about it, and the health check.",
}


def api_paths(decisions: Decisions, price_base: int, network: Network, examples: Json) -> Json:
    """Return the paths of the API; `price_base` is the quote's price in base units."""
    return {
        "/api/perp/quote": {"post": _quote(decisions, price_base, network, examples)},
        "/api/perp/market": {"get": _market(decisions, price_base, network, examples)},
        "/api/pay": {"post": _pay(decisions, examples)},
        "/api/payments/{paymentId}": {"get": _payment(decisions, examples)},
        "/api/sessions/create": {"post": _create_session(decisions, examples)},
        "/api/sessions/{sessionId}": {"get": _session(decisions, examples)},
        "/api/agents": {"get": _agents(decisions, examples)},
    }


def _quote(decisions: Decisions, price_base: int, network: Network, examples: Json) -> Json:
    price = f"{price_base} base units ({to_decimal(price_base, network.decimals)} token)"
    return {
        "tags": ["Paid requests"],
        "operationId": "quote",
        "summary": "Quote a perpetual position (protected)",
        "description": f"Requires payment of {price} (4.2, 8). Without valid proof of payment the "
        "response is 402, whose resource is the path of this endpoint. Proof is the id of a "
        "settled payment or of a session with enough budget (5), or a payment in the request "
        "itself, as the x402 standard sends it.\n\n"
        + _decided(
            decisions, "4.2/gate-before-body", "5/precedence", "5/short-session", *_ONE_STEP
        ),
        "parameters": PROOFS,
        "requestBody": body("QuoteRequest", examples),
        "responses": {
            "200": answer(
                "Proof of payment accepted (4.2).",
                object_of(quote="Quote"),
                {"quote": examples["Quote"]},
            ),
            **payment_required(decisions, examples["PaymentRequired"]),
            **bad_body(decisions, RequestError.INVALID_PAYMENT),
            **unsettled(decisions),
        },
    }


_ONE_STEP = ("5/one-step", "5/authorization-once", "5/offered-id", "5/payment-identifier")


def _market(decisions: Decisions, price_base: int, network: Network, examples: Json) -> Json:
    price = f"{price_base} base units ({to_decimal(price_base, network.decimals)} token)"
    return {
        "tags": ["Paid requests"],
        "operationId": "market",
        "summary": "A snapshot of the market (protected)",
        "description": f"Requires payment of {price}, as a quote does. It has no body, so any "
        "client of the x402 standard can ask for it.\n\n" + _decided(decisions, *_ONE_STEP),
        "parameters": PROOFS,
        "responses": {
            "200": answer("Proof of payment accepted.", "Market", examples["Market"]),
            **payment_required(decisions, examples["MarketRequired"]),
            **errors(decisions, RequestError.INVALID_PAYMENT),
            **unsettled(decisions),
        },
    }


def _pay(decisions: Decisions, examples: Json) -> Json:
    return {
        "tags": ["Paid requests"],
        "operationId": "pay",
        "summary": "Settle a payment",
        "description": "Send the signed payment header with the requirements of the 402, without "
        "their description (4.1). The service validates the parameters, asks the facilitator to "
        "verify the signature and to settle on-chain, stores the payment record, caches the "
        "entitlement and returns the transaction hash. The amount must match exactly: overpaying "
        "and underpaying are both rejected (2.1).\n\n"
        + _decided(decisions, "7/final", "4.1/settlement-pending"),
        "requestBody": body("SettlementRequest", examples),
        "responses": {
            "200": answer("Settled on-chain (4.1).", "Receipt", examples["Receipt"]),
            **refusals(decisions),
        },
    }


def _payment(decisions: Decisions, examples: Json) -> Json:
    return {
        "tags": ["Paid requests"],
        "operationId": "getPayment",
        "summary": "Read a payment record",
        "description": "The stored record of a payment (2.4). block_number is null at creation; "
        "the indexer fills it in (8).",
        "parameters": [in_path("paymentId", "The paymentId of the 402 (2.2).", PAYMENT_ID)],
        "responses": {
            "200": answer("The record (2.4).", "PaymentRecord", examples["PaymentRecord"]),
            **errors(decisions, RequestError.UNKNOWN_PAYMENT),
        },
    }


def _create_session(decisions: Decisions, examples: Json) -> Json:
    created = str(decisions.session_created_status)
    return {
        "tags": ["Sessions"],
        "operationId": "createSession",
        "summary": "Create a session",
        "description": "The response is 402 for the session deposit. Pay it through "
        "`POST /api/pay`, then repeat the request with X-Payment-Id (4.4).\n\n"
        + _decided(decisions, "4.4/created", "4.4/bad-session-body", "4.4/max-spend"),
        "parameters": [{"$ref": "#/components/parameters/PaymentId"}],
        "requestBody": body("SessionRequest", examples),
        "responses": {
            created: answer(
                "The session; its deposit has settled.", "SessionView", examples["SessionView"]
            ),
            "402": answer(
                "Payment of the deposit required (2.2).",
                "PaymentRequired",
                examples["DepositRequired"],
            ),
            **bad_body(decisions),
        },
    }


def _session(decisions: Decisions, examples: Json) -> Json:
    return {
        "tags": ["Sessions"],
        "operationId": "getSession",
        "summary": "Read a session",
        "description": "Remaining budget = deposited - released (2.6). On expiration the unspent "
        "balance is refunded (3).",
        "parameters": [in_path("sessionId", "The id carried in X-Session-Id (2.6).", SESSION_ID)],
        "responses": {
            "200": answer("The session (2.6).", "SessionView", examples["SessionView"]),
            **errors(decisions, RequestError.UNKNOWN_SESSION, RequestError.METHOD_NOT_ALLOWED),
        },
    }


def _agents(decisions: Decisions, examples: Json) -> Json:
    schema = {
        "type": "object",
        "properties": {"agents": {"type": "array", "items": ref("Agent")}},
        "required": ["agents"],
    }
    operation: Json = {
        "tags": ["Agents"],
        "operationId": "listAgents",
        "summary": "List agents",
        "description": "The services for sale, with price and reputation (2.7, 4.3).\n\n"
        + _decided(decisions, "4.3/agents-free"),
        "responses": {
            "200": answer("The agents (4.3).", schema, {"agents": [examples["Agent"]]}),
            **errors(decisions),
        },
    }
    if not decisions.agents_free:
        operation["parameters"] = PROOFS
        operation["responses"] |= {
            **payment_required(decisions, examples["AgentsRequired"]),
            **errors(decisions, RequestError.INVALID_PAYMENT),
            **unsettled(decisions),
        }
    return operation


def _decided(decisions: Decisions, *slugs: str) -> str:
    """Return what the service does where the specification is silent, one line a decision."""
    named = (decision_named(slug) for slug in slugs)
    return "\n".join(f"- {d.question} {in_force(d, decisions)} (decision {d.id})." for d in named)
