"""Actions on time: advance the world's clock, skew an actor's clock, delay the explorer."""

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from x402sim.http.web import bad_body
from x402sim.service import sessions
from x402sim.service.reconcile import reconcile
from x402sim.text.suggest import unknown
from x402sim.world.assembly.parts import Parts
from x402sim.world.assembly.site import ACTORS
from x402sim.world.control.context import Context, mining, require_service

LATEST_S = 221_845_392_000
"""The year 9000, in Unix seconds; Python's dates end soon after."""
TEN_YEARS_S = 10 * 366 * 86400


class Advance(msgspec.Struct, frozen=True):
    """Move the clock forward."""

    seconds: Annotated[float, Meta(ge=0, le=TEN_YEARS_S)]


class Skew(msgspec.Struct, frozen=True):
    """Skew one actor's clock by this many seconds."""

    actor: str
    seconds: Annotated[float, Meta(ge=-TEN_YEARS_S, le=TEN_YEARS_S)]

    def __post_init__(self) -> None:
        if self.actor not in ACTORS:
            raise ValueError(unknown("actor", self.actor, ACTORS))


class Lag(msgspec.Struct, frozen=True):
    """Seconds until the explorer shows a block, after the block's time."""

    seconds: Annotated[float, Meta(ge=0, le=TEN_YEARS_S)]


async def advance(context: Context, asked: Advance) -> Any:
    """Move the clock forward, then run what is due: {"seconds": 300}.

    With automine, a block is mined at the new time. The answer comes when expired sessions are
    refunded, old entitlements are removed from the cache and pending payments are reconciled, but
    after 2 seconds at the latest. The indexer runs on its own schedule.
    """
    return await pass_time(context, asked, mines=True)


async def pass_time(context: Context, asked: Advance, *, mines: bool = False) -> Any:
    """Do the same, with a block or without."""
    parts = context.parts
    if parts.clock.now() + asked.seconds > LATEST_S:
        raise bad_body("the clock cannot go past the year 9000")
    chains = list(map(mining, context.networks))
    parts.clock.advance(asked.seconds)
    for blocks in chains:
        if mines and blocks.automine:
            await blocks.mine()
    parts.service.entitlements.sweep(parts.clock.now_ms())
    due = asyncio.create_task(_expire_and_reconcile(parts))
    context.running.add(due)
    due.add_done_callback(context.running.discard)
    await asyncio.wait({due}, timeout=2)
    if due.done():
        due.result()  # re-raises the task's exception
    return {"now": parts.clock.now_ms()}


async def _expire_and_reconcile(parts: Parts) -> None:
    await parts.process.do(sessions.expire)
    await parts.process.do(reconcile)


async def skew(context: Context, asked: Skew) -> Any:
    """Skew an actor's clock: {"actor": "service", "seconds": -30}."""
    if asked.actor == "service":
        require_service(context.parts, 'a skew of "service"')
    clock = context.parts.clocks[asked.actor]
    clock.skew_s = asked.seconds
    return {"now": clock.now_ms()}


async def lag(context: Context, asked: Lag) -> Any:
    """Make the explorer lag behind the chain: {"seconds": 600}."""
    context.parts.index.lag_s = asked.seconds
    return {"lagSeconds": asked.seconds}
