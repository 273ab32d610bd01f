"""Actions on time and on the parts: clocks, the explorer's lag, faults, a crash, the indexer."""

import asyncio
from dataclasses import asdict, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from x402sim.events import IndexerRan
from x402sim.http.web import bad_body
from x402sim.service import indexer, sessions
from x402sim.service.reconcile import reconcile
from x402sim.text.suggest import unknown
from x402sim.world.assembly.process import ServiceProcess
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.common import mining, read, require_service
from x402sim.world.transport.faults import read_fault

LATEST_S = 221_845_392_000
"""The year 9000, in Unix seconds; Python's dates end soon after."""
TEN_YEARS_S = 10 * 366 * 86400
Seconds = Annotated[float, Meta(ge=0, le=TEN_YEARS_S)]


async def advance(world: RunningWorld, seconds: Seconds) -> Any:
    """Move the clock forward, then run what is due: {"seconds": 300}.

    With automine, a block is mined at the new time. The answer comes when expired sessions are
    refunded, old entitlements are removed from the cache and pending payments are reconciled, but
    after 2 seconds at the latest. The indexer runs on its own schedule.
    """
    return await pass_time(world, seconds, mines=True)


async def pass_time(world: RunningWorld, seconds: float, *, mines: bool = False) -> Any:
    """Do the same, with a block or without."""
    if world.clock.now() + seconds > LATEST_S:
        raise bad_body("the clock cannot go past the year 9000")
    chains = list(map(mining, world.networks))
    world.clock.advance(seconds)
    for blocks in chains:
        if mines and blocks.automine:
            await blocks.mine()
    world.service.entitlements.sweep(world.clock.now_ms())
    due = asyncio.create_task(_expire_and_reconcile(world))
    world.tasks.add(due)
    due.add_done_callback(world.tasks.discard)
    await asyncio.wait({due}, timeout=2)
    if due.done():
        due.result()  # re-raises the task's exception
    return {"now": world.clock.now_ms()}


async def _expire_and_reconcile(world: RunningWorld) -> None:
    await world.process.do(sessions.expire)
    await world.process.do(reconcile)


async def skew(
    world: RunningWorld,
    actor: str,
    seconds: Annotated[float, Meta(ge=-TEN_YEARS_S, le=TEN_YEARS_S)],
) -> Any:
    """Skew an actor's clock: {"actor": "service", "seconds": -30}."""
    clocks = world.clocks
    if actor not in clocks:
        raise bad_body(unknown("actor", actor, clocks))
    if actor == "service":
        require_service(world, 'a skew of "service"')
    clocks[actor].skew_s = seconds
    return {"now": clocks[actor].now_ms()}


async def set_facilitator(
    world: RunningWorld,
    name: str | None = None,
    receipt_timeout_s: Annotated[float, Meta(gt=0, le=TEN_YEARS_S)] | None = None,
    simulates: bool | None = None,
    simulates_verify: bool | None = None,
) -> Any:
    """Change a facilitator's settings: {"receipt_timeout_s": 0.5}.

    What is left out stays; the answer has all of them. They are those of `FacilitatorSettings`, but
    for the coins that it begins with. Without a name it is the first facilitator's.
    """
    known, wanted = world.facilitators, name or world.options.first_facilitator
    if wanted not in known:
        raise bad_body(unknown("facilitator", wanted, known))
    given: dict[str, Any] = {
        "receipt_timeout_s": receipt_timeout_s,
        "simulates": simulates,
        "simulates_verify": simulates_verify,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    for each in known[wanted]:
        each.settings = replace(each.settings, **changes)
    return {"name": wanted, **asdict(known[wanted][0].settings)}


async def lag(world: RunningWorld, seconds: Seconds) -> Any:
    """Make the explorer lag behind the chain: {"seconds": 600}."""
    world.index.lag_s = seconds
    return {"lagSeconds": seconds}


async def faults(world: RunningWorld) -> Any:
    """List the active faults."""
    return [msgspec.to_builtins(fault) for fault in world.faults.standing()]


async def add_fault(world: RunningWorld, fault: Any) -> Any:
    """Inject a fault: {"victim": "facilitator", "does": "lose answer", "path": "/settle"}."""
    new = read(read_fault, fault)
    if new.victim in world.services or new.does in ("crash before", "crash after"):
        require_service(world, f'"{new.does}" of "{new.victim}"')
    read(world.faults.add, new)
    return {"standing": len(world.faults.standing())}


async def clear(world: RunningWorld, keep: tuple[str, ...] = ()) -> Any:
    """Reset faults, clock skews, the explorer's lag, forced reverts, mining and facilitators.

    Faults whose `contains` is one of the texts to `keep`, and not empty, stay.
    """
    chain = world.chain
    world.faults.clear(set(keep) - {""})
    for clock in world.clocks.values():
        clock.skew_s = 0.0
    world.index.lag_s = world.options.explorer_settings.lag_s
    for name, facilitators in world.facilitators.items():
        for each in facilitators:
            each.settings = world.options.facilitators[name]
    if chain.controls:
        await chain.controls.force_revert(0)
        await chain.controls.set_automine(world.options.block_time_s is None)
    return {"standing": len(world.faults.standing())}


async def crash(world: RunningWorld, service: str = "service") -> Any:
    """Kill the service; answers when it has restarted on its database, 1 second later."""
    process = _process(world, service, "/crash")
    process.crash()
    await process.runs()
    return {"crashes": process.crashes}


async def run_indexer(world: RunningWorld, service: str = "service") -> Any:
    """Run the payment indexer now; return its counts, all 0 if a crash cut it short."""
    process = _process(world, service, "/indexer/run")
    ran, names = await process.do(indexer.run), IndexerRan.__struct_fields__
    return {name: getattr(ran, name, 0) for name in names if name != "actor"}


def _process(world: RunningWorld, service: str, action: str) -> ServiceProcess:
    """Return the process of a service; raises `Refused` for one that is not there."""
    require_service(world, action)
    name = world.options.first if service == "service" else service
    if name not in world.services:
        raise bad_body(unknown("service", name, world.services))
    return world.services[name]
