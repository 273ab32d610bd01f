"""The OpenAPI document, which GET /openapi.json answers.

It has every route, message and status of the service. The operations of the
API are in `operations`, the schemas in `schemas`, the examples in `examples`.
"""

from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network
from x402sim.service.docs.examples import examples_of
from x402sim.service.docs.operations import TAGS, Told, paths
from x402sim.service.docs.responses import parameters
from x402sim.service.docs.schemas import Json, schemas
from x402sim.spec.decisions import Decisions
from x402sim.text.templates import render
from x402sim.version import VERSION


def openapi(decisions: Decisions, price_base: int, network: Network) -> Json:
    """Return the OpenAPI 3.1 document of a service under these decisions.

    `price_base` is the quote's price in base units of the network's token.
    """
    price = f"{price_base} base units ({to_decimal(price_base, network.decimals)} token)"
    examples = examples_of(decisions, price_base, network)
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
        "paths": paths(Told(decisions, price, network.name, examples)),
        "components": {"schemas": schemas(decisions), "parameters": parameters(decisions)},
    }
