"""Builds one service of a world: its collaborators, and the process around them."""

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim.events import Part, ServiceEvent, ServiceName
from x402sim.http import web
from x402sim.http.exchange import Request, Response, Transport
from x402sim.service.environment import Environment
from x402sim.service.state import connected
from x402sim.service.store import Store
from x402sim.world.assembly.process import Process, paths_of
from x402sim.world.assembly.site import Site
from x402sim.world.transport.cache import cached


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """One service of a world: its process, and its application with faults."""

    process: Process
    app: ASGIApp
    outside: Mapping[Part, ASGIApp]
    """What it calls, with faults that crash it."""


@dataclass(frozen=True, slots=True)
class _ToParts(Transport):
    """Passes each request to the link of its part."""

    links: Mapping[str, Transport]

    def send(self, request: Request) -> Awaitable[Response]:
        link = self.links.get(request.url.host)
        if link is None:
            raise httpx.ConnectError(f"no part of this world is at {request.url.host}")
        return link.send(request)


def deployed(
    site: Site, name: ServiceName, setup: Environment, store: Store, parts: Mapping[Part, Starlette]
) -> Deployed:
    """Return a service that calls `parts`; a crash for it leaves the others alone."""
    recipe, journal, world_clock = site.recipe, site.journal, site.clock
    ids = "payment ids" if name == recipe.first else f"payment ids of {name}"

    def crash() -> None:
        process.crash()

    def record(event: ServiceEvent) -> None:
        if name != "service":
            event = msgspec.structs.replace(event, actor=name)
        journal.record(world_clock.now_ms(), event)

    outside = {
        part: site.with_faults(part, app, paths_of(app), crash) for part, app in parts.items()
    }
    links = {host_of(part): site.link(name, part, app) for part, app in outside.items()}
    clock = site.clocks.get(name, site.clocks["service"])
    service = replace(
        connected(setup, store, _ToParts(links), clock, site.rng.stream(ids)),
        record=record,
        on_bug=site.tell,
        settlement_rules=recipe.rules("settlement"),
        freshness_rules=recipe.rules("freshness"),
        rng=site.rng,
    )
    process = Process(service, recipe.hooks, site.phases(name, setup.settings))
    if name == recipe.first and not recipe.has_service:
        app = site.with_faults(name, _no_service, (), crash)
    else:
        app = site.with_faults(name, process, process.paths, crash)
    if recipe.cache is not None:
        app = cached(app, recipe.cache, site.clock)
    return Deployed(process=process, app=app, outside=outside)


_no_service = web.error(
    404, "No service here", "this is the world of x402sim serve --no-service; see GET /_sim"
)


def host_of(part: Part) -> str:
    """Return the host at which the services of a world call a part, by HTTP."""
    return f"{part}.local"
