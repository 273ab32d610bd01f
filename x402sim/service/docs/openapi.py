"""The OpenAPI document, which GET /openapi.json answers.

It has every route, message and status of the service. The operations of the
API are in `operations`, the schemas in `schemas`, the examples in `examples`.
"""

from typing import Any

from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import RequestError
from x402sim.service.docs.examples import examples_of
from x402sim.service.docs.operations import TAGS, api_paths
from x402sim.service.docs.pages import PAGES
from x402sim.service.docs.responses import answer, by_status, parameters
from x402sim.service.docs.schemas import Json, schemas
from x402sim.service.docs.templates import render
from x402sim.spec.decisions import Decisions


def openapi(*, decisions: Decisions, price_base: int, network: Network, version: str) -> Json:
    """Return the OpenAPI 3.1 document of a service under these decisions.

    `price_base` is the quote's price in base units of the network's token.
    """
    examples = examples_of(decisions, price_base, network)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "Pay-per-request API service",
            "version": version,
            "summary": "HTTP 402, paid with the x402 protocol and an EIP-3009 authorization.",
            "description": render("openapi.md", network=network.name).rstrip(),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": ".", "description": "The address this document was read from"}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": {
            **api_paths(decisions, price_base, network, examples),
            **_documentation_paths(decisions, network.name),
        },
        "components": {
            "schemas": schemas(decisions),
            "parameters": parameters(decisions),
        },
    }


def _documentation_paths(decisions: Decisions, network: str) -> Json:
    name = {
        "name": "page",
        "in": "path",
        "required": True,
        "description": "The name of a page, as in the index.",
        "schema": {"type": "string", "enum": [f"{page}.md" for page in PAGES]},
        "example": f"{PAGES[0]}.md",
    }
    healthy = {"status": "ok", "network": network}
    health = {
        "type": "object",
        "properties": {"status": {"const": "ok"}, "network": {"type": "string"}},
        "required": ["status", "network"],
    }
    page = _text("docsPage", "A documentation page", "text/markdown")
    page["parameters"] = [name]
    page["responses"] |= by_status(decisions, [RequestError.NOT_FOUND])
    return {
        "/llms.txt": {
            "get": _text("llmsTxt", "Index of all documentation pages (4.5)", "text/plain")
        },
        "/docs/{page}": {"get": page},
        "/docs": {"get": _text("docs", "Interactive documentation", "text/html")},
        "/openapi.json": {"get": _json("openapi", "This document", {"type": "object"})},
        "/healthz": {"get": _json("healthz", "Health check", health, healthy)},
    }


def _text(operation_id: str, summary: str, media_type: str) -> Json:
    content = {media_type: {"schema": {"type": "string"}}}
    responses: Json = {"200": {"description": f"{summary}.", "content": content}}
    return _documentation(operation_id, summary, responses)


def _json(operation_id: str, summary: str, schema: Json, example: Any = None) -> Json:
    return _documentation(operation_id, summary, {"200": answer(f"{summary}.", schema, example)})


def _documentation(operation_id: str, summary: str, responses: Json) -> Json:
    tags = ["Documentation and health"]
    return {"tags": tags, "operationId": operation_id, "summary": summary, "responses": responses}
