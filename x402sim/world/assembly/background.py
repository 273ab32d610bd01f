"""Runs a world's background work: the service's jobs and the blocks."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from x402sim import events
from x402sim.chain.base import ChainError
from x402sim.clock import periodic_context
from x402sim.text.printable import described
from x402sim.world.assembly.process import ServiceProcess
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.chains.block_times import FixedBlocks
from x402sim.world.chains.reorgs import dropped

log = logging.getLogger("x402sim")
LOOK_S = 2
"""Seconds between polls of a node that mines by itself."""


@asynccontextmanager
async def running(world: RunningWorld) -> AsyncIterator[None]:
    """Run the world's background work in a `with` block; close everything at its end."""
    chains = [each.chain for each in world.networks]
    for chain in chains:
        if chain.controls:
            await chain.controls.set_automine(world.options.blocks is None)
    if world.options.has_service:
        for each in world.services.values():
            each.start_background()
    beating = [
        asyncio.create_task(_beat(each), context=periodic_context()) for each in world.networks
    ]
    try:
        yield
    finally:
        for beat in beating:
            beat.cancel()
            with suppress(asyncio.CancelledError):
                await beat
        for each in world.services.values():
            await close(each)
        for chain in chains:
            chain.close()


async def close(process: ServiceProcess) -> None:
    """Stop a service, and close its database."""
    await process.stop()
    process.service.store.close()


async def _beat(world: RunningWorld) -> None:
    """Mine a block at each interval, or poll for the blocks of a node that mines by itself.

    While mining is switched off, only blocks of a block time come: the heartbeat's would mine what
    waits.
    """
    controls = world.chain.controls
    blocks = world.options.blocks or FixedBlocks(world.options.heartbeat_s, phase=0)
    failed: str | None = None
    reorganise = _reorganiser(world)
    try:
        pauses = blocks.intervals(world.blocks) if controls else itertools.repeat(LOOK_S)
        for pause_s in pauses:
            await world.clock.sleep(pause_s)
            try:
                await reorganise()
                if controls is None:
                    await world.watch()
                elif controls.automine or world.options.blocks is not None:
                    await controls.mine()
                failed = None
            except ChainError as error:  # a node may recover, and a disk get space again
                if str(error) != failed:
                    log.warning("the chain: %s", error)
                failed = str(error)
        raise ValueError(f"block_time_s: the intervals of {described(blocks)} have ended")
    except Exception as bug:
        log.exception("no more blocks come")
        world.tell(bug)


def _reorganiser(world: RunningWorld) -> Callable[[], Awaitable[None]]:
    """Return what reorganises the chain before a block, if it does so by itself."""
    reorgs, chain = world.options.reorgs, world.chain
    stream = world.rng.stream("reorgs")
    controls = chain.controls
    depths = reorgs.depths(stream) if reorgs and controls else itertools.repeat(0)

    async def reorganise() -> None:
        depth = min(next(depths), await chain.height())
        if depth > 0 and reorgs and controls:
            lost = await dropped(chain, depth, reorgs.drop, stream)
            world.journal.record(world.clock.now_ms(), events.ChainReorganised(depth=depth))
            await controls.reorg(depth, lost)

    return reorganise
