"""The OpenAPI document, which GET /openapi.json answers.

The document has every route, message and status of the service. `openapi.toml` has the words for
each field and operation, with the sections of the specification. The schemas are generated from the
wire messages, the error responses from the tables of `protocol.refusals`, and the statuses from the
decisions in force; so the document cannot differ from the service.
"""

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from x402sim.protocol import messages, routes
from x402sim.protocol.messages import ErrorBody
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal, RequestError, is_final, status_of
from x402sim.protocol.x402 import PAYMENT_HEADERS, RESPONSE_HEADERS
from x402sim.service.docs.examples import PAYMENT_ID, SESSION_ID, Json, examples_of
from x402sim.service.docs.pages import PAGES, decision_named, in_force
from x402sim.service.goods import Shop
from x402sim.spec.decisions import Decisions
from x402sim.text.templates import render
from x402sim.version import VERSION


@cache
def _words() -> Json:
    return tomllib.loads((files(__package__) / "openapi.toml").read_text("utf-8"))


def schemas(decisions: Decisions) -> Json:
    """Return the schemas of the wire messages, with the words of section 2 for each field."""
    fields = _words()["fields"]  # in the order of the document
    types = [getattr(messages, name) for name in fields]
    _, named = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    for name, schema in named.items():
        for field, about in fields[name].items():
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


def ref(name: str) -> Json:
    """Return the reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def object_of(**properties: Json) -> Json:
    """Return the schema of an object with these properties, all required."""
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
        """Return a response, by status, with the schema and the example of this name."""
        return answer(description, ref(name), self.examples[example or name], status=status)

    def errors(self, *named: Refusal | RequestError) -> Json:
        """Return one response a status, with the text and an example of each error."""
        found: dict[str, list[Refusal | RequestError]] = {}
        for error in named:
            found.setdefault(str(status_of(error, self.decisions)), []).append(error)
        return {status: _response(group) for status, group in sorted(found.items())}

    def payment_required(self, example: str) -> Json:
        """Return the 402 of section 2.2, and the decided answer to a short session."""
        required = self.answer(_REQUIRED, "PaymentRequired", status=402, example=example)
        if self.decisions.short_session_status == 402:
            return required
        return required | self.errors(RequestError.SESSION_CANNOT_PAY)

    def operation(self, name: str, responses: Json, **more: Any) -> Json:
        """Return the operation of this name in `openapi.toml`, with further fields in `more`.

        A line for each decision states the service's choice where the specification is silent.
        """
        words = _words()["operations"][name]
        about = [words.get("about", "").format(price=self.price)]
        if "decided" in words:
            found = map(decision_named, words["decided"])
            lines = [
                f"- {d.question} {in_force(d, self.decisions)} (decision {d.id})." for d in found
            ]
            about.append("\n".join(lines))
        operation = {
            "tags": [words["tag"]],
            "operationId": name,
            "summary": words["summary"],
            "description": "\n\n".join(about),
            **more,
            "responses": responses,
        }
        return {key: value for key, value in operation.items() if value}


def answer(
    description: str,
    schema: Json,
    example: Any = None,
    *,
    status: int = 200,
    media: str = "application/json",
) -> Json:
    """Return a response, by status."""
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
"""The parameters of an endpoint with a price."""


def parameters(decisions: Decisions) -> Json:
    """Return the header parameters for a proof of payment (5)."""
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


_BAD_BODY = (RequestError.INVALID_BODY, RequestError.BODY_TOO_LARGE)
_BAD_PAYMENT = (
    RequestError.INVALID_PAYMENT,
    Refusal.PENDING,
    RequestError.IDENTIFIER_TAKEN,
    Refusal.UNREACHABLE,
    Refusal.CHAIN_UNREACHABLE,
    Refusal.FAILED,
)
"""The errors for a payment in the request: unreadable, or perhaps settled later."""
_NO_DATABASE = RequestError.STORAGE_UNAVAILABLE


def openapi(
    decisions: Decisions, price_base: int, network: Network, shop: Shop | None = None
) -> Json:
    """Return the OpenAPI 3.1 document of a service under these decisions.

    `price_base` is the quote's price in base units of the network's token. The goods of a user's
    `shop` stand in place of the quote and the market.
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
        "tags": [{"name": name, "description": it} for name, it in _words()["tags"].items()],
        "paths": _goods(facts, shop, network) if shop else dict(_paths(facts)),
        "components": {"schemas": schemas(decisions), "parameters": parameters(decisions)},
    }


def _goods(facts: Facts, shop: Shop, network: Network) -> Json:
    """Return the paths of a user's goods, and then of the service but for the quote and the
    market; a good for every method is listed as GET.
    """
    paths: Json = {}
    asks = answer(_REQUIRED, ref("PaymentRequired"), status=402)
    for name, (good, price_base) in shop.tools.items():
        path, holes = good.named
        if price_base is None and path == "/{rest}":  # what a paywall passes on is not known
            continue
        price = f"{to_decimal(price_base or 0, network.decimals)} {network.token_symbol}"
        price = f"what is used, at most {price}" if good.upto else price
        about = [good.description, price if price_base else "free"]
        proofs = PROOFS if price_base and not good.upto else []
        responses: Json = {"2XX": {"description": "The goods."}}
        if good.upto:
            responses |= {"402": {"description": "The header PAYMENT-REQUIRED offers `upto`."}}
        elif price_base is not None:
            responses |= asks | facts.errors(*_BAD_PAYMENT, _NO_DATABASE)
        operation = {
            "tags": ["Goods and payments"],
            "operationId": name,
            "summary": ", ".join(filter(None, about)),
            "parameters": [in_path(each, "Any text.", "1") for each in holes] + proofs,
            "responses": responses,
        }
        paths.setdefault(path, {}).setdefault((good.method or "GET").lower(), operation)
    ours = dict(_paths(facts))
    return paths | {path: ours[path] for path in ours if path not in (routes.QUOTE, routes.MARKET)}


def _paths(facts: Facts) -> Iterator[tuple[str, Json]]:
    errors, required, taken = facts.errors, facts.payment_required, facts.body

    quoted = object_of(quote=ref("Quote")), {"quote": facts.examples["Quote"]}
    responses = answer("Proof of payment accepted (4.2).", *quoted) | required("PaymentRequired")
    responses |= errors(*_BAD_BODY, *_BAD_PAYMENT, _NO_DATABASE)
    body = taken("QuoteRequest")
    quote = facts.operation("quote", responses, parameters=PROOFS, requestBody=body)
    yield routes.QUOTE, {"post": quote}

    responses = facts.answer("Proof of payment accepted.", "Market") | required("MarketRequired")
    responses |= errors(*_BAD_PAYMENT, _NO_DATABASE)
    yield routes.MARKET, {"get": facts.operation("market", responses, parameters=PROOFS)}

    responses = facts.answer("Settled on-chain (4.1).", "Receipt")
    responses |= errors(*Refusal, *_BAD_BODY, _NO_DATABASE)
    pay = facts.operation("pay", responses, requestBody=taken("SettlementRequest"))
    yield routes.PAY, {"post": pay}

    responses = facts.answer("The record (2.4).", "PaymentRecord")
    responses |= errors(RequestError.UNKNOWN_PAYMENT, _NO_DATABASE)
    of = [in_path("paymentId", "The paymentId of the 402 (2.2).", PAYMENT_ID)]
    record = facts.operation("getPayment", responses, parameters=of)
    yield routes.PAYMENTS + "{paymentId}", {"get": record}

    status, settled = (
        facts.decisions.session_created_status,
        "The session; its deposit has settled.",
    )
    deposit = "Payment of the deposit required (2.2)."
    responses = facts.answer(settled, "SessionView", status=status)
    responses |= facts.answer(deposit, "PaymentRequired", status=402, example="DepositRequired")
    responses |= errors(*_BAD_BODY, _NO_DATABASE)
    body, shown = taken("SessionRequest"), PROOFS[:1]
    create = facts.operation("createSession", responses, parameters=shown, requestBody=body)
    yield routes.SESSIONS, {"post": create}

    responses = facts.answer("The session (2.6).", "SessionView")
    unknown = RequestError.UNKNOWN_SESSION, RequestError.METHOD_NOT_ALLOWED
    responses |= errors(*unknown, _NO_DATABASE)
    of = [in_path("sessionId", "The id carried in X-Session-Id (2.6).", SESSION_ID)]
    session = facts.operation("getSession", responses, parameters=of)
    yield routes.SESSION + "{sessionId}", {"get": session}

    listed = object_of(agents={"type": "array", "items": ref("Agent")})
    responses = answer("The agents (4.3).", listed, {"agents": [facts.examples["Agent"]]})
    is_free = facts.decisions.agents_free
    if not is_free:
        responses |= required("AgentsRequired")
    responses |= errors(*(() if is_free else _BAD_PAYMENT), _NO_DATABASE)
    agents = facts.operation("listAgents", responses, parameters=() if is_free else PROOFS)
    yield routes.AGENTS, {"get": agents}

    text, page = {"type": "string"}, in_path("page", "The name of a page, as in the index.", "")
    page |= {"example": f"{next(iter(PAGES))}.md"}
    page["schema"]["enum"] = [f"{page}.md" for page in PAGES]
    index = "Index of all documentation pages (4.5)."
    indexed = answer(index, text, media="text/plain")
    yield "/llms.txt", {"get": facts.operation("llmsTxt", indexed)}
    responses = answer("A documentation page.", text, media="text/markdown")
    responses |= errors(RequestError.NOT_FOUND)
    yield "/docs/{page}", {"get": facts.operation("docsPage", responses, parameters=[page])}
    interactive = answer("Interactive documentation.", text, media="text/html")
    yield "/docs", {"get": facts.operation("docs", interactive)}
    document = answer("This document.", {"type": "object"})
    yield "/openapi.json", {"get": facts.operation("openapi", document)}
    health = object_of(status={"const": "ok"}, network=text)
    healthy = answer("Health check.", health, {"status": "ok", "network": facts.network})
    yield "/healthz", {"get": facts.operation("healthz", healthy)}
