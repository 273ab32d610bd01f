"""Builds one service of a world: its setup, its collaborators, and the process around them."""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim.events import Part, ServiceEvent, ServiceName
from x402sim.explorer.index import Index
from x402sim.http import web
from x402sim.http.exchange import OverClient, Request, Response, Transport
from x402sim.protocol.networks import Network
from x402sim.service.setup import Setup
from x402sim.service.state import Service, connected
from x402sim.service.store import Store
from x402sim.world.assembly.process import Process, paths_of
from x402sim.world.assembly.site import Site
from x402sim.world.transport.cache import cached
from x402sim.world.transport.link import Asgi


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """One service of a world: its process, its application with faults, and its HTTP client.

    The client is for calls that leave the world.
    """

    process: Process
    app: ASGIApp
    http: httpx.AsyncClient
    outside: Mapping[Part, ASGIApp]
    """What it calls, with faults that crash it."""


@dataclass(frozen=True, slots=True)
class _ToParts(Transport):
    """Passes each request to the link of its part; any other leaves the world."""

    links: Mapping[tuple[str, str], Transport]
    outside: Transport

    def send(self, request: Request) -> Awaitable[Response]:
        url = request.url
        return self.links.get((url.scheme, url.host), self.outside).send(request)


MakeLink = Callable[[ServiceName, Part, ASGIApp], Transport]
"""Makes a service's link to one part ("facilitator", "explorer", "rpc") from its application."""


def plain_link(_: str, __: str, app: ASGIApp) -> Transport:
    """Return a link without faults and without latency."""
    return Asgi(app)


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """Builds services on one site; `parts` are what they call, without faults."""

    site: Site
    network: Network
    index: Index
    """That of the network's explorer."""
    parts: Mapping[Part, Starlette]
    link: MakeLink

    def service(
        self, name: ServiceName, store: Store | None = None, secret: bytes | None = None
    ) -> Deployed:
        """Return a service of the recipe, with its own merchant and server wallet.

        The first has the world's database and id secret, any other has its own.
        """
        recipe, site = self.site.recipe, self.site
        settings = recipe.services[name]
        setup = Setup(
            private_key=site.keys.secret("service" if store else f"service {name}"),
            secret=secret or site.rng.secret(f"ids of {name}"),
            facilitator_url=url_of(settings.facilitator or recipe.facilitator),
            explorer_url=url_of("explorer"),
            rpc_url=url_of("rpc"),
            network=self.network,
            settings=settings,
        )
        return self._deployed(name, recipe.hooks.setup(setup), store or Store())

    def copy(
        self, name: ServiceName, of: Service, shares_database: bool, settings: dict[str, Any]
    ) -> Deployed:
        """Return a service with another's setup, and its id secret and database or new ones.

        `settings` replace those of the other.
        """
        changed = replace(of.setup.settings, **settings)
        setup = replace(of.setup, network=self.network, settings=changed)
        if shares_database:
            return self._deployed(name, setup, of.store)
        own = replace(setup, secret=self.site.rng.secret(f"ids of {name}"))
        return self._deployed(name, own, Store())

    def _deployed(self, name: ServiceName, setup: Setup, store: Store) -> Deployed:
        """Return a service; a crash for it leaves the others alone."""
        site, recipe = self.site, self.site.recipe

        def crash() -> None:
            process.crash()

        outside = {
            part: site.with_faults(part, app, paths_of(app), crash)
            for part, app in self.parts.items()
        }
        http = httpx.AsyncClient(
            trust_env=False,
            verify=certificates(),
            timeout=None,  # noqa: S113 - the service has timeouts of its own
        )
        links = {_at(part): self.link(name, part, app) for part, app in outside.items()}
        process = Process(
            _service(site, setup, store, _ToParts(links, OverClient(http)), name),
            recipe.hooks,
            site.phases(name, setup.settings),
        )
        if name == recipe.first and not recipe.has_service:
            app = site.with_faults(name, _no_service, (), crash)
        else:
            app = site.with_faults(name, process, process.paths, crash)
        if recipe.cache is not None:
            app = cached(app, recipe.cache, site.clock)
        return Deployed(process=process, app=app, http=http, outside=outside)


def _service(site: Site, setup: Setup, store: Store, to: Transport, name: ServiceName) -> Service:
    journal, clock, recipe = site.journal, site.clock, site.recipe
    ids = "payment ids" if name == recipe.first else f"payment ids of {name}"

    def record(event: ServiceEvent) -> None:
        if name != "service":
            event = msgspec.structs.replace(event, actor=name)
        journal.record(clock.now_ms(), event)

    own_clock = site.clocks.get(name, site.clocks["service"])
    return replace(
        connected(setup, store, to, own_clock, site.rng.stream(ids)),
        record=record,
        on_bug=site.tell,
        settlement_rules=recipe.rules("settlement"),
        freshness_rules=recipe.rules("freshness"),
        rng=site.rng,
    )


@cache
def certificates() -> ssl.SSLContext:
    """Return the certificates to trust; reading them takes longer than building a world."""
    return httpx.create_ssl_context(trust_env=False)


_no_service = web.error(
    404, "No service here", "this is the world of x402sim serve --no-service; see GET /_sim"
)


def url_of(part: Part) -> str:
    """Return the base URL at which the services of a world call a part."""
    return "{}://{}".format(*_at(part))


def _at(part: Part) -> tuple[str, str]:
    return "http", f"{part}.local"
