"""A world in this process: requests are function calls.

Time is virtual if the chain allows it, else real.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from x402sim.clock import Clock
from x402sim.events import AnswerSent, Event, Part, RequestSent, ServiceName
from x402sim.journal import Journal
from x402sim.rng import Rng
from x402sim.service.settings import Settings
from x402sim.spec.needs import Need
from x402sim.world.assembly.background import running
from x402sim.world.assembly.running_world import build
from x402sim.world.chains.block_times import FixedBlocks
from x402sim.world.control.app import control_app
from x402sim.world.control.client import ControlClient
from x402sim.world.loop import VirtualLoop, most_common
from x402sim.world.stages.stage import START_S, Door, Stage
from x402sim.world.transport.client import PartClient
from x402sim.world.transport.link import Asgi, Link, linking
from x402sim.world.world import World

OpenDoor = Callable[[ASGIApp], Awaitable[Door]]
NEWEST = 1000
"""The number of events of which an error tells the most common."""


async def call(app: ASGIApp) -> Door:
    """Return the door to an application in this process: requests are function calls."""
    return lambda: Asgi(app), "http://service"


@asynccontextmanager
async def in_process(world: World, open_door: OpenDoor = call) -> AsyncIterator[Stage]:
    """Build a world, run it until the story ends, and close it; raises `ChainError`.

    Its clock is the loop's if that is virtual. Payers reach each service through the door to its
    application.
    """
    options = _as_played(world)
    loop = asyncio.get_running_loop()
    rng = Rng(None if options.is_persistent else options.seed)
    with closing(Journal(file=options.journal_file)) as journal:
        clock, turn = Clock(), None
        if isinstance(loop, VirtualLoop):
            clock, turn = Clock(lambda: START_S + loop.now_s), loop.turn
            loop.newest = lambda: _newest(journal)
        link = linking(clock, journal, turn)

        def wire(caller: ServiceName, name: Part, app: ASGIApp) -> Link:
            is_first = caller == options.first
            stream = f"wire to {name}" if is_first else f"wire from {caller} to {name}"
            return link(caller, name, Asgi(app), options.latency_to(name), rng.stream(stream))

        parts = build(options, clock, wire, journal)
        async with running(parts):
            doors: dict[Part, Door] = {
                name: await open_door(each.app) for name, each in parts.services.items()
            }
            facilitator = parts.process.outside[options.first_facilitator]
            doors["facilitator"] = lambda: Asgi(facilitator), "http://facilitator.local"

            async def another_service(
                shares_database: bool, settings: dict[str, Any]
            ) -> ServiceName:
                name = parts.deploy_another(shares_database=shares_database, settings=settings)
                doors[name] = await open_door(parts.services[name].app)
                return name

            # in virtual time a timeout would only cost events
            http = PartClient(Asgi(control_app(parts, None)), "http://control", None)
            virtual = {Need.VIRTUAL_TIME} if options.backend.is_virtual else set()
            yield Stage(
                options=options,
                clock=clock,
                rng=rng,
                journal=journal,
                link=link,
                network=parts.service.env.network,
                doors=doors,
                offers=parts.offers | virtual | {Need.OTHER_SERVICES},
                control=ControlClient(http, most=sys.maxsize),
                advance=clock.sleep,
                parts=parts,
                another_service=another_service,
            )


def _as_played(world: World) -> World:
    """Return a world as scenarios play it: seeded, and with phases drawn from the seed.

    So that nothing in it ticks in step by accident, which a server's user does not expect.
    """
    blocks = world.block_time_s
    return replace(
        world,
        seed=world.seed or 0,
        service=Settings() if world.service is None else world.service,
        block_time_s=FixedBlocks(blocks) if isinstance(blocks, int | float) else blocks,
    )


def _newest(journal: Journal) -> str:
    """Return a sentence about the newest events: who did what, and how often."""
    entries = journal.since(journal.length - NEWEST)
    counts = Counter(_label(entry.event) for entry in entries)
    return f" The last {len(entries)} events: {most_common(counts)}."


def _label(event: Event) -> str:
    if isinstance(event, RequestSent):
        return f"{event.actor} asks {event.to} {event.path}"
    if isinstance(event, AnswerSent):
        return f"{event.actor} answers {event.path} with {event.status}"
    return f"{event.actor} {type(event).__name__}"
