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
from x402sim.world.assembly.parts import Parts
from x402sim.world.assembly.process import Process
from x402sim.world.chains.block_times import FixedBlocks
from x402sim.world.chains.reorgs import dropped

log = logging.getLogger("x402sim")
LOOK_S = 2
"""Seconds between polls of a node that mines by itself."""


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[None]:
    """Run the world's background work in a `with` block; close everything at its end."""
    for chain in parts.chains:
        if chain.controls:
            await chain.controls.set_automine(parts.recipe.blocks is None)
    if parts.recipe.has_service:
        for each in parts.services.values():
            each.process.start_background()
    beating = [
        asyncio.create_task(_beat(world), context=periodic_context())
        for world in (parts, *parts.also)
    ]
    try:
        yield
    finally:
        for beat in beating:
            beat.cancel()
            with suppress(asyncio.CancelledError):
                await beat
        for each in parts.services.values():
            await close(each.process)
        for chain in parts.chains:
            chain.close()


async def close(process: Process) -> None:
    """Stop a service, and close its database."""
    await process.stop()
    process.service.store.close()


async def _beat(parts: Parts) -> None:
    """Mine a block at each interval, or poll for the blocks of a node that mines by itself.

    While mining is switched off, only blocks of a block time come: the heartbeat's would mine what
    waits.
    """
    controls = parts.chain.controls
    blocks = parts.recipe.blocks or FixedBlocks(parts.recipe.heartbeat_s, phase=0)
    failed: str | None = None
    reorganise = _reorganiser(parts)
    try:
        pauses = blocks.intervals(parts.site.blocks) if controls else itertools.repeat(LOOK_S)
        for pause_s in pauses:
            await parts.clock.sleep(pause_s)
            try:
                await reorganise()
                if controls is None:
                    await parts.watch()
                elif controls.automine or parts.recipe.blocks is not None:
                    await controls.mine()
                failed = None
            except ChainError as error:  # a node may recover, and a disk get space again
                if str(error) != failed:
                    log.warning("the chain: %s", error)
                failed = str(error)
        raise ValueError(f"block_time_s: the intervals of {described(blocks)} have ended")
    except Exception as bug:
        log.exception("no more blocks come")
        parts.site.tell(bug)


def _reorganiser(parts: Parts) -> Callable[[], Awaitable[None]]:
    """Return what reorganises the chain before a block, if it does so by itself."""
    reorgs, chain = parts.recipe.reorgs, parts.chain
    stream = parts.site.rng.stream("reorgs")
    controls = chain.controls
    depths = reorgs.depths(stream) if reorgs and controls else itertools.repeat(0)

    async def reorganise() -> None:
        depth = min(next(depths), await chain.height())
        if depth > 0 and reorgs and controls:
            lost = await dropped(chain, depth, reorgs.drop, stream)
            parts.journal.record(parts.clock.now_ms(), events.ChainReorganised(depth=depth))
            await controls.reorg(depth, lost)

    return reorganise
