"""The parts of a world by name, and the merchants and networks of its services."""

from collections.abc import Collection

from x402sim import events
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import Network
from x402sim.text.suggest import unknown
from x402sim.world.stages.stage import OpenStage


def parts_of(stage: OpenStage) -> frozenset[events.Part]:
    """Return the names of all that acts without the story: services, facilitators, and so on."""
    parts = stage.parts
    named = (*parts.services, *parts.recipe.facilitators) if parts else ()
    return frozenset((*named, stage.first, *stage.others, *events.OUTSIDE, "service", "chain"))


def require_new(stage: OpenStage, payers: Collection[str], name: str) -> None:
    """Raise `ValueError` for the name of a payer or a part that is there already."""
    if name in payers:
        raise ValueError(f"there is a payer named {name!r} already; names are unique")
    if name in parts_of(stage):
        raise ValueError(f"there is a part named {name!r}: give the payer another name")


def other_merchants(stage: OpenStage) -> dict[events.ServiceName, str]:
    """Return the merchant's address of each service but the first."""
    services = stage.parts.services if stage.parts else {}
    return {name: checksum(services[name].process.service.setup.pay_to) for name in stage.others}


def merchants(stage: OpenStage, first: str) -> dict[events.ServiceName, str]:
    """Return the merchant's address of each service, given that of the first."""
    return {stage.first: first} | other_merchants(stage)


def accounts(stage: OpenStage, first: str, service: str | None) -> frozenset[str]:
    """Return the addresses of all merchants, or of one service's; raises `ValueError`."""
    found = merchants(stage, first)
    name = stage.first if service == "service" else service
    if name is not None and name not in found:
        raise ValueError(unknown("service", name, found))
    return frozenset(found.values() if name is None else [found[name]])


def network_of(stage: OpenStage, service: events.ServiceName) -> Network | None:
    """Return the network that a service of this world is on; None in a world that is not ours."""
    deployed = stage.parts.services.get(service) if stage.parts else None
    return deployed.process.service.setup.network if deployed else None
