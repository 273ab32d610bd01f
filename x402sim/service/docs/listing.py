"""The resources of a service, in the form for indexes of the x402 standard."""

from x402sim.protocol.routes import AGENTS, MARKET, QUOTE
from x402sim.protocol.x402 import (
    MIME_TYPE,
    Item,
    RequirementsV1,
    declaration,
    flow_extra,
    requirements_v1,
    requirements_v2,
)
from x402sim.service.docs.examples import examples_of
from x402sim.service.issue import RESOURCES
from x402sim.service.state import Service


def sold(service: Service) -> list[str]:
    """Return the paths of the resources sold by request."""
    return (
        [QUOTE, MARKET] if service.env.settings.decisions.agents_free else [QUOTE, MARKET, AGENTS]
    )


def accepts(service: Service, base: str) -> list[RequirementsV1]:
    """Return the way to pay for each resource, in version 1; `base` is the service's URL."""
    network, flow = service.env.network, flow_extra(service.env.settings.payment_flow)
    price = service.env.quote_price_base
    return [
        requirements_v1(service.issuer.requirements(path, price), network, url=base + path, **flow)
        for path in sold(service)
    ]


def items(service: Service, base: str) -> list[Item]:
    """Return the entries of an index, in version 2, with examples of request and answer."""
    env, flow = service.env, flow_extra(service.env.settings.payment_flow)
    price = env.quote_price_base
    examples = examples_of(env.settings.decisions, price, env.network)
    declared = {
        QUOTE: declaration("POST", {"quote": examples["Quote"]}, examples["QuoteRequest"]),
        MARKET: declaration("GET", examples["Market"]),
        AGENTS: declaration("GET", {"agents": [examples["Agent"]]}),
    }
    return [
        Item(
            resource=base + path,
            type="http",
            x402_version=2,
            accepts=[
                requirements_v2(service.issuer.requirements(path, price), env.network, **flow)
            ],
            last_updated=service.clock.now_s(),
            description=RESOURCES[path].description,
            mime_type=MIME_TYPE,
            extensions=declared[path],
        )
        for path in sold(service)
    ]
