"""Actions on the chain: mine, pause mining, reorganise, force reverts; snapshots of the world."""

from typing import Annotated, Any

from msgspec import Meta

from x402sim.http.web import Refused
from x402sim.protocol.crypto import Hash, from_hex
from x402sim.world.assembly.running_world import RunningWorld, Snapshot
from x402sim.world.control.common import mining, read, rewinding


async def mine(world: RunningWorld, blocks: Annotated[int, Meta(ge=1, le=1000)] = 1) -> Any:
    """Mine blocks: {"blocks": 1}. The first includes every waiting transaction."""
    return {"height": await mining(world).mine(blocks)}


async def set_mining(world: RunningWorld, automine: bool) -> Any:
    """Mine each transaction immediately, or only on demand: {"automine": false}.

    Blocks of a block time go on.
    """
    await mining(world).set_automine(automine)
    return {"automine": automine}


async def reorg(
    world: RunningWorld, depth: Annotated[int, Meta(ge=1)] = 1, drop: tuple[str, ...] = ()
) -> Any:
    """Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}.

    Their transactions are mined again, except those in "drop".
    """
    lost = [Hash(read(from_hex, text, 32)) for text in drop]
    await rewinding(world).reorg(depth, lost)
    return {"height": await world.chain.height()}


async def drop(world: RunningWorld) -> Any:
    """Drop every transaction from the mempool."""
    await rewinding(world).drop()
    return {"waiting": 0}


async def force_revert(world: RunningWorld, calls: Annotated[int, Meta(ge=0, le=1000)] = 1) -> Any:
    """Make the next calls of the token revert when mined: {"calls": 1}."""
    await rewinding(world).force_revert(calls)
    return {"calls": calls}


async def snapshot(world: RunningWorld) -> Any:
    """Take a snapshot of chain, database and cache; answers {"snapshot": id}."""
    service = world.service
    chains = [await rewinding(each).snapshot() for each in world.networks]
    number = chains[0]
    world.snapshots[number] = Snapshot(service.store.copy(), service.entitlements.all(), chains)
    return {"snapshot": number}


async def revert(world: RunningWorld, snapshot: int) -> Any:
    """Revert to a snapshot: {"snapshot": id}. It and all later ones are deleted.

    The clock is kept, as by `reset`; `clockAdvancedSeconds` is how far it is ahead.
    """
    saved = world.snapshots.get(snapshot)
    if saved is None:
        known = ", ".join(map(str, sorted(world.snapshots))) or "none"
        raise Refused(404, "Unknown snapshot", f"got {snapshot}, there are: {known}")
    chains, service = list(map(rewinding, world.networks)), world.service
    service.store.restore(saved.database)  # the part that may fail comes first
    for chain, number in zip(chains, saved.chains, strict=True):
        await chain.revert(number)
    service.entitlements.clear()
    for entitlement in saved.entitlements:
        service.entitlements.add(entitlement)
    for number in [n for n in world.snapshots if n >= snapshot]:
        world.snapshots.pop(number).database.close()
    return {"reverted": snapshot, "clockAdvancedSeconds": world.clock.offset_s}


async def reset(world: RunningWorld, clock: bool = False) -> Any:
    """Reset to block 0, an empty database and the initial balances.

    {"clock": true} also gives the clock back, which no other action does: the journal and clients
    have seen its time. Else `clockAdvancedSeconds` is how far it is ahead of real time, and a payer
    with a right clock is refused.
    """
    chains = list(map(rewinding, world.networks))
    if clock:
        world.clock.give_back()
    world.service.store.clear()  # if the chain then fails, reset again
    for chain in chains:
        await chain.reset()
    world.service.entitlements.clear()
    for saved in world.snapshots.values():
        saved.database.close()
    world.snapshots.clear()
    return {"reset": True, "clockAdvancedSeconds": world.clock.offset_s}
