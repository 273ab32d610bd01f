"""The OpenAPI document, which GET /openapi.json answers.

It has every route, message and status of the service. Only the words for each field and operation
are written here, with the sections they describe: the schemas are generated from the wire messages,
so they cannot differ from what the service reads and sends, the error responses from the tables of
`protocol.refusals`, and the statuses are those of the decisions in force.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from x402sim.protocol import messages, routes
from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal, RequestError, is_final, status_of
from x402sim.protocol.routes import AGENTS, MARKET, PAY, QUOTE, SESSIONS
from x402sim.protocol.x402 import PAYMENT_HEADERS, RESPONSE_HEADERS
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID, Json, examples_of
from x402sim.service.docs.pages import PAGES, decision_named, in_force
from x402sim.spec.decisions import Decisions
from x402sim.text.templates import render
from x402sim.version import VERSION


def schemas(decisions: Decisions) -> Json:
    """Return the schemas of the wire messages, with the words of section 2 for each field."""
    kinds = [getattr(messages, name) for name in _FIELDS]
    _, named = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for name, schema in named.items():
        for field, about in _FIELDS[name].items():
            schema["properties"][field]["description"] = about
    quote = named["QuoteRequest"]["properties"]
    quote["pair"]["pattern"] = quote["pair"]["pattern"].replace("\\Z", "$")  # ECMA has no \Z
    quote["side"]["enum"] = list(decisions.sides)
    session = named["SessionRequest"]["properties"]
    session["maxSpend"]["pattern"] = r"^(0|[1-9][0-9]*)\.[0-9]{2}$"
    session["duration"]["description"] = (
        f"Session length, in units of {decisions.duration_unit_s} s (4.4)."
    )
    return named


_FIELDS: Mapping[str, Mapping[str, str]] = {  # in the order of the document
    "PaymentRequired": {
        "error": 'Fixed text "Payment Required".',
        "paymentId": "Identifier of the payment: pay_ and an opaque part.",
        "message": "Text stating the amount in base units required.",
        "network": "Same network value as in paymentRequirements.",
    },
    "PaymentRequirements": {
        "scheme": 'Payment scheme; the only value is "exact".',
        "network": "Network selector.",
        "payTo": "Merchant wallet address: the service provider receives the payment.",
        "asset": "Address of the stablecoin token contract on the selected network.",
        "maxAmountRequired": "Amount in base units of the token. It must match exactly.",
        "maxTimeoutSeconds": "Validity timeout of the requirement in seconds.",
        "resource": "Path of the protected endpoint the payment is for.",
        "description": "Optional text, present in the 402 and absent from the settlement request.",
    },
    "SettlementRequest": {
        "paymentId": "Id received in the 402 body.",
        "paymentHeader": "Payment header (2.3): 0x and the hex of its UTF-8 JSON.",
    },
    "Receipt": {
        "success": "Always true.",
        "paymentId": "The payment that was settled.",
        "txHash": "Hex transaction hash.",
        "timestamp": "Epoch milliseconds.",
    },
    "ErrorBody": {
        "error": "What happened, as one of the known texts.",
        "reason": "Details, where there are any.",
        "final": "In settlement errors (7). True: this attempt is over; it charged nothing, and "
        "it never will. False: it may still be paid; send the same payment header again, and "
        "sign no other before the first has expired.",
    },
    "QuoteRequest": {
        "pair": "Trading pair, <BASE>-<QUOTE>.",
        "side": "Direction of the position.",
        "leverage": "Leverage multiple.",
        "sizeUsd": "Position size in US dollars.",
    },
    "Quote": {
        "pair": "The trading pair of the request.",
        "entryPrice": "US dollars.",
        "liquidationPrice": "US dollars.",
        "fundingRate": "Per 8 hours.",
        "bestVenue": "Name of the venue with the best price.",
    },
    "Market": {"market": "The pairs, each with its price now."},
    "MarketPair": {
        "pair": "Trading pair, <BASE>-<QUOTE>.",
        "price": "US dollars, at the best venue for a buyer.",
        "fundingRate": "Per 8 hours.",
        "bestVenue": "Name of the venue with the best price.",
    },
    "SessionRequest": {
        "maxSpend": "The session budget: a decimal amount with two fraction digits.",
    },
    "SessionView": {
        "sessionId": "The id to carry in X-Session-Id.",
        "deposited": "Base units deposited.",
        "released": "Base units spent so far.",
        "remaining": "deposited - released.",
        "expiresAt": "Epoch milliseconds; the unspent balance is refunded afterwards.",
        "status": "Whether it can be spent, has expired, or has been refunded.",
        "refundTxHash": "The refund's transaction hash, once there is one.",
    },
    "PaymentRecord": {
        "payment_id": "The paymentId.",
        "tx_hash": "On-chain transaction hash returned by settlement.",
        "from_address": "Payer address.",
        "to_address": "Equals payTo.",
        "amount": "Equals maxAmountRequired, in base units.",
        "resource_url": "Equals resource.",
        "status": 'pending, settled or failed; only "settled" grants access.',
        "block_number": "Null at creation; filled in by the indexer.",
        "timestamp": "Creation time, epoch milliseconds.",
    },
    "Agent": {
        "id": "Identifier of the agent.",
        "name": "What it is called.",
        "description": "What it sells.",
        "resource": "The protected path it answers on.",
        "price": "Base units for one request.",
        "payTo": "The address that is paid.",
        "reputation": "Settled payments for its resource that the indexer has found in a block.",
    },
}


def ref(name: str) -> Json:
    """Return the reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all of them required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


class Facts(msgspec.Struct, frozen=True):
    """The facts of a service in the document: its decisions, price and network, and examples."""

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
    facts, examples = [], {}
    for error in group:
        if isinstance(error, Refusal):
            section, about, final = " (7)", error.row.cause, is_final(error.text)
            body = ErrorBody(error=error.text, reason=error.row.example, final=final)
        else:
            section, about = "", error.meaning
            body = ErrorBody(error=error.text, reason=error.example)
        facts.append(f"`{error.text}`{section}: {about}")
        name = error.text.lower().replace(" ", "-")
        examples[name] = {"summary": error.text, "value": msgspec.to_builtins(body)}
    media = {"schema": ref("ErrorBody"), "examples": examples}
    return {"description": " ".join(facts), "content": {"application/json": media}}


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
    Refusal.CHAIN_UNREACHABLE,
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
    facts = Facts(decisions, price, network.name, examples)
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
        "paths": _paid(facts)
        | _settled(facts)
        | _in_sessions(facts)
        | _listed(facts)
        | _documentation(facts),
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


def _paid(facts: Facts) -> Json:
    """Return the paths of what is paid for by request."""
    quoted = object_of(quote=ref("Quote")), {"quote": facts.examples["Quote"]}
    quote = _operation(
        _PAID,
        "quote",
        "Quote a perpetual position (protected)",
        answer("Proof of payment accepted (4.2).", *quoted)
        | facts.payment_required("PaymentRequired")
        | facts.errors(*_BAD_BODY, *_BAD_PAYMENT, _NO_DATABASE),
        about=f"Requires payment of {facts.price} (4.2, 8). Without valid proof of payment the "
        "response is 402, whose resource is the path of this endpoint. Proof is the id of a "
        "settled payment or of a session with enough budget (5), or a payment in the request "
        "itself, as the x402 standard sends it.\n\n"
        + facts.decided("4.2/gate-before-body", "5/precedence", "5/short-session", *_ONE_STEP),
        parameters=PROOFS,
        takes=facts.body("QuoteRequest"),
    )
    market = _operation(
        _PAID,
        "market",
        "A snapshot of the market (protected)",
        facts.answer("Proof of payment accepted.", "Market")
        | facts.payment_required("MarketRequired")
        | facts.errors(*_BAD_PAYMENT, _NO_DATABASE),
        about=f"Requires payment of {facts.price}, as a quote does. It has no body, so any "
        "client of the x402 standard can ask for it.\n\n" + facts.decided(*_ONE_STEP),
        parameters=PROOFS,
    )
    return {QUOTE: {"post": quote}, MARKET: {"get": market}}


def _settled(facts: Facts) -> Json:
    """Return the paths of settlement and of its record."""
    pay = _operation(
        _PAID,
        "pay",
        "Settle a payment",
        facts.answer("Settled on-chain (4.1).", "Receipt")
        | facts.errors(*Refusal, *_BAD_BODY, _NO_DATABASE),
        about="Send the signed payment header with the requirements of the 402, without "
        "their description (4.1). The service validates the parameters, asks the facilitator to "
        "verify the signature and to settle on-chain, stores the payment record, caches the "
        "entitlement and returns the transaction hash. The amount must match exactly: overpaying "
        "and underpaying are both rejected (2.1).\n\n"
        + facts.decided("7/final", "4.1/settlement-pending"),
        takes=facts.body("SettlementRequest"),
    )
    record = _operation(
        _PAID,
        "getPayment",
        "Read a payment record",
        facts.answer("The record (2.4).", "PaymentRecord")
        | facts.errors(RequestError.UNKNOWN_PAYMENT, _NO_DATABASE),
        about="The stored record of a payment (2.4). block_number is null at creation; "
        "the indexer fills it in (8).",
        parameters=[in_path("paymentId", "The paymentId of the 402 (2.2).", PAYMENT_ID)],
    )
    return {PAY: {"post": pay}, routes.PAYMENTS + "{paymentId}": {"get": record}}


def _in_sessions(facts: Facts) -> Json:
    """Return the paths of sessions."""
    created = facts.decisions.session_created_status
    create = _operation(
        _SESSIONS,
        "createSession",
        "Create a session",
        facts.answer("The session; its deposit has settled.", "SessionView", status=created)
        | facts.answer(
            "Payment of the deposit required (2.2).",
            "PaymentRequired",
            status=402,
            example="DepositRequired",
        )
        | facts.errors(*_BAD_BODY, _NO_DATABASE),
        about="The response is 402 for the session deposit. Pay it through "
        "`POST /api/pay`, then repeat the request with X-Payment-Id (4.4).\n\n"
        + facts.decided("4.4/created", "4.4/bad-session-body", "4.4/max-spend"),
        parameters=PROOFS[:1],
        takes=facts.body("SessionRequest"),
    )
    unknown = RequestError.UNKNOWN_SESSION, RequestError.METHOD_NOT_ALLOWED
    view = _operation(
        _SESSIONS,
        "getSession",
        "Read a session",
        facts.answer("The session (2.6).", "SessionView") | facts.errors(*unknown, _NO_DATABASE),
        about="Remaining budget = deposited - released (2.6). On expiration the unspent "
        "balance is refunded (3).",
        parameters=[in_path("sessionId", "The id carried in X-Session-Id (2.6).", SESSION_ID)],
    )
    return {SESSIONS: {"post": create}, routes.SESSION + "{sessionId}": {"get": view}}


def _listed(facts: Facts) -> Json:
    """Return the path of the agents."""
    listed = object_of(agents={"type": "array", "items": ref("Agent")})
    responses = answer("The agents (4.3).", listed, {"agents": [facts.examples["Agent"]]})
    if facts.decisions.agents_free:
        responses |= facts.errors(_NO_DATABASE)
    else:
        responses |= facts.payment_required("AgentsRequired")
        responses |= facts.errors(*_BAD_PAYMENT, _NO_DATABASE)
    agents = _operation(
        _AGENTS,
        "listAgents",
        "List agents",
        responses,
        about="The services for sale, with price and reputation (2.7, 4.3).\n\n"
        + facts.decided("4.3/agents-free"),
        parameters=() if facts.decisions.agents_free else PROOFS,
    )
    return {AGENTS: {"get": agents}}


def _documentation(facts: Facts) -> Json:
    """Return the paths of the documentation and of the health check."""
    name = in_path("page", "The name of a page, as in the index.", f"{next(iter(PAGES))}.md")
    name["schema"]["enum"] = [f"{page}.md" for page in PAGES]
    healthy = {"status": "ok", "network": facts.network}
    health = object_of(status={"const": "ok"}, network={"type": "string"})
    page = _reading("docsPage", "A documentation page", "text/markdown", parameters=[name])
    page["get"]["responses"] |= facts.errors(RequestError.NOT_FOUND)
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
