"""The resources of a service, in the form for indexes of the x402 standard."""

from x402sim.protocol.bazaar import Item, declaration
from x402sim.protocol.routes import AGENTS, MARKET, QUOTE
from x402sim.protocol.x402 import (
    MIME_TYPE,
    RequirementsV1,
    flow_extra,
    requirements_v1,
    requirements_v2,
)
from x402sim.service.docs.examples import examples_of
from x402sim.service.state import Service


def sold(service: Service) -> dict[str, int]:
    """Return the paths of the resources sold by request, and their prices in base units.

    A user's own goods stand in place of the service's. Paths with holes are no resources.
    """
    env, own = service.env, service.env.shop.priced
    if own:
        return {good.path: price_base for good, price_base in own if good.is_exact}
    paths = [QUOTE, MARKET] if env.settings.decisions.agents_free else [QUOTE, MARKET, AGENTS]
    return dict.fromkeys(paths, env.quote_price_base)


def accepts(service: Service, base: str) -> list[RequirementsV1]:
    """Return the way to pay for each resource, in version 1; `base` is the service's URL."""
    network, flow = service.env.network, flow_extra(service.env.settings.payment_flow)
    return [
        requirements_v1(service.issuer.requirements(path, price), network, url=base + path, **flow)
        for path, price in sold(service).items()
    ]


def items(service: Service, base: str) -> list[Item]:
    """Return the entries of an index, in version 2, with examples of request and answer."""
    env, flow = service.env, flow_extra(service.env.settings.payment_flow)
    examples = examples_of(env.settings.decisions, env.quote_price_base, env.network)
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
            description=service.issuer.description(path),
            mime_type=None if env.shop else MIME_TYPE,  # what the user's are is not known
            extensions=None if env.shop else declared[path],
        )
        for path, price in sold(service).items()
    ]
