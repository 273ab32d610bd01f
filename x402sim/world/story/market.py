"""The parts of a world by name, its merchants, and what a story does to one service of several."""

from collections.abc import Collection
from typing import Any, get_args

import msgspec

from x402sim import events
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import Network
from x402sim.service import indexer
from x402sim.text.suggest import unknown
from x402sim.world.assembly.process import Process
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


def require_clock(stage: OpenStage, actor: events.Part) -> None:
    """Raise `ValueError` for an actor without a clock of its own."""
    named = stage.parts.clocks if stage.parts else {}
    known = dict.fromkeys((*get_args(events.Skewable), *named))
    if actor not in known:
        raise ValueError(unknown("actor", actor, known))


async def crash(stage: OpenStage, service: events.ServiceName) -> None:
    """Crash a service but the first; return when it runs again."""
    process = _process_of(stage, service)
    process.crash()
    await process.runs()


def network_of(stage: OpenStage, service: events.ServiceName) -> Network | None:
    """Return the network that a service of this world is on; None in a world that is not ours."""
    deployed = stage.parts.services.get(service) if stage.parts else None
    return deployed.process.service.setup.network if deployed else None


def on(path: str, network: str | None) -> str:
    """Return a path of the control API that acts on a network; None for the first."""
    return path if network is None else f"{path}?network={network}"


async def run_indexer(stage: OpenStage, service: events.ServiceName) -> dict[str, Any]:
    """Run the indexer of a service but the first; return its counts, 0 if a crash cut it short."""
    done = await _process_of(stage, service).do(indexer.run) or indexer.IndexerRun()
    counts: dict[str, Any] = msgspec.to_builtins(done)
    return counts


def _process_of(stage: OpenStage, service: events.ServiceName) -> Process:
    """Return the process of a service in a world of our own; raises `ValueError`."""
    parts = stage.parts
    if parts is None or service not in parts.services:
        known = (stage.first, *stage.others)
        raise ValueError(f"{unknown('service', service, known)}; `another_service` starts one more")
    return parts.services[service].process
