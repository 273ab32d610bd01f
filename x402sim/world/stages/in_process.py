"""The stage `InProcess`: requests are function calls.

Time is virtual if the chain allows it, else real.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp

from x402sim.clock import Clock
from x402sim.events import AnswerSent, Event, Part, RequestSent, ServiceName
from x402sim.journal import Journal
from x402sim.rng import Rng
from x402sim.spec.needs import Need
from x402sim.world.assembly.parts import Parts, build
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.control.app import control_app
from x402sim.world.control.client import ControlClient
from x402sim.world.control.context import Context
from x402sim.world.loop import VirtualLoop, most_common
from x402sim.world.server.running import running
from x402sim.world.stages.stage import START_S, Door, OpenStage
from x402sim.world.transport.client import PartClient
from x402sim.world.transport.link import Asgi, Link, Links

OpenDoor = Callable[[ASGIApp], Awaitable[Door]]
NEWEST = 1000
"""The number of events of which an error tells the most common."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """Play in this process, in virtual time where the chain allows it."""

    name = "in-process"
    builds_world = True
    needs_virtual_time = False

    def open(self, recipe: Recipe) -> AbstractAsyncContextManager[OpenStage]:
        """Build a world and run it until the story ends; raises `ChainError`."""

        async def door(app: ASGIApp) -> Door:
            return lambda: Asgi(app), "http://service"

        return world_of_our_own(recipe, door)


@asynccontextmanager
async def world_of_our_own(recipe: Recipe, open_door: OpenDoor) -> AsyncIterator[OpenStage]:
    """Build a world, run it, and close it; its clock is the loop's if that is virtual.

    Payers reach each service through the door to its application.
    """
    loop = asyncio.get_running_loop()
    rng = Rng(None if recipe.is_persistent else recipe.seed)
    with closing(Journal(file=recipe.journal)) as journal:
        if isinstance(loop, VirtualLoop):
            clock = Clock(lambda: START_S + loop.now_s)
            links = Links(clock, journal, loop.turn)
            loop.newest = lambda: _newest(journal)
        else:
            clock = Clock()
            links = Links(clock, journal)

        def link(caller: ServiceName, name: Part, app: ASGIApp) -> Link:
            is_first = caller == recipe.first
            wire = f"wire to {name}" if is_first else f"wire from {caller} to {name}"
            return Link(links, caller, name, Asgi(app), recipe.latency_to(name), rng.stream(wire))

        parts = build(recipe, clock, link, journal)
        async with running(parts):
            yield await _stage(recipe, parts, links, rng, open_door)


async def _stage(
    recipe: Recipe, parts: Parts, links: Links, rng: Rng, open_door: OpenDoor
) -> OpenStage:
    # in virtual time a timeout would only cost events
    http = PartClient(Asgi(control_app(Context.of(parts), None)), "http://control", None)
    doors: dict[Part, Door] = {
        name: await open_door(each.app) for name, each in parts.services.items()
    }
    facilitator = parts.first.outside[recipe.facilitator]
    doors["facilitator"] = lambda: Asgi(facilitator), "http://facilitator.local"

    async def another_service(shares_database: bool, settings: dict[str, Any]) -> ServiceName:
        name = parts.deploy_another(shares_database=shares_database, settings=settings)
        doors[name] = await open_door(parts.services[name].app)
        return name

    virtual = {Need.VIRTUAL_TIME} if recipe.chain.is_virtual else set()
    return OpenStage(
        clock=parts.clock,
        rng=rng,
        links=links,
        network=parts.service.env.network,
        doors=doors,
        offers=parts.offers | virtual | {Need.OTHER_SERVICES},
        latency_to=recipe.latency_to,
        control=ControlClient(http, most=sys.maxsize),
        advance=parts.clock.sleep,
        parts=parts,
        another_service=another_service,
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
