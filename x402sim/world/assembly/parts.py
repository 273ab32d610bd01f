"""Builds every part of a world and connects them.

The parts communicate over HTTP even in one process: a transport of the service's client passes
each request to the right ASGI application, so that any of them can be replaced by a third party's.
"""

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import get_args

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim import web
from x402sim.chain.base import WorldChain
from x402sim.clock import Clock, SkewedClock
from x402sim.events import Part, ServiceEvent, ServiceName
from x402sim.explorer.app import explorer_app
from x402sim.explorer.index import Index
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import Network
from x402sim.rng import Rng, Stream
from x402sim.service.background import Phases
from x402sim.service.entitlements import Entitlements
from x402sim.service.issue import Issuer
from x402sim.service.settings import Settings
from x402sim.service.setup import Setup
from x402sim.service.state import Service, waits
from x402sim.service.store import Store
from x402sim.service.upstream.explorer import ExplorerClient
from x402sim.service.upstream.facilitator import FacilitatorClient
from x402sim.service.upstream.rpc import RpcClient
from x402sim.spec.needs import Need
from x402sim.world.assembly.chain_recorder import Watch
from x402sim.world.assembly.process import Process, paths_of
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.chains.accounts import Accounts
from x402sim.world.chains.backend import ChainRequest, OpenChain
from x402sim.world.transport.faults import Faults, Victim
from x402sim.world.transport.link import Asgi
from x402sim.world.transport.middleware import faulty

JOURNAL_LIMIT = 100_000
ACTORS = ("service", "facilitator", "explorer", "chain")
"""The actors whose clocks can be skewed."""
WORLD_OFFERS = frozenset({Need.FAULTS, Need.WORLD})
SERVICE_OFFERS = frozenset({Need.SESSIONS, Need.AGENTS, Need.LLMS, Need.RECORD, Need.SESSION_VIEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """One service of a world: its process, its application with faults, and its HTTP client."""

    process: Process
    app: ASGIApp
    http: httpx.AsyncClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One world: its state and its ASGI applications."""

    clock: Clock
    journal: Journal
    chain: WorldChain
    watch: Watch
    process: Process
    clocks: Mapping[str, SkewedClock]
    faults: Faults
    index: Index
    accounts: tuple[Wallet, ...]
    offers: frozenset[Need]
    """The needs that this world meets, in real or virtual time."""
    service_app: ASGIApp
    facilitator_app: ASGIApp
    explorer_app: ASGIApp
    rpc_app: ASGIApp
    http: httpx.AsyncClient
    recipe: Recipe
    blocks: Stream
    """Draws when blocks come."""
    deploy: Callable[[ServiceName], Deployed]
    """Builds another service, which is not started: same merchant and wallet, own database."""
    services: dict[ServiceName, Deployed] = field(default_factory=dict)
    """The services by name; `deploy_another` adds one."""

    @property
    def service(self) -> Service:
        """The running service; each crash replaces it."""
        return self.process.service

    def deploy_another(self) -> ServiceName:
        """Start another service; return its name. Raises `ValueError` if there are three."""
        name: ServiceName
        for name in get_args(ServiceName):
            if name not in self.services:
                self.services[name] = self.deploy(name)
                self.services[name].process.start_background()
                return name
        raise ValueError(f"a world has at most {len(self.services)} services")


MakeLink = Callable[[ServiceName, Part, ASGIApp], httpx.AsyncBaseTransport]
"""Makes a service's link to one part ("facilitator", "explorer", "rpc") from its application."""


def plain_link(_: str, __: str, app: ASGIApp) -> httpx.AsyncBaseTransport:
    """Return a link without faults and without latency."""
    return Asgi(app)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """What all parts of one world share during the build."""

    recipe: Recipe
    clock: Clock
    clocks: Mapping[str, SkewedClock]
    journal: Journal
    faults: Faults
    rng: Rng
    """Draws values that must never repeat, so it is unseeded if something outlives the world."""
    keys: Rng
    """Draws the keys, which depend on the seed in every world."""

    def phases(self, name: ServiceName, settings: Settings) -> Phases:
        """Return when a service's periodic work begins: at the settings' phase, or drawn."""

        def phase(work: str, interval_s: float) -> float:
            if settings.phase is not None:
                return settings.phase
            return self.rng.stream(f"phase of {work} of {name}").uniform(0, interval_s)

        return phase

    def with_faults(
        self,
        name: Victim,
        app: ASGIApp,
        paths: Sequence[str],
        crash: Callable[[], None] | None = None,
    ) -> ASGIApp:
        """Return a part's application with fault injection and recording around it.

        `paths` are those it serves; a fault for any other is an error. `crash` kills the service
        that is asked or asks, by default the first.
        """
        self.faults.routed(name, paths)
        return web.recorded(
            faulty(app, name, self.faults, self.clock, crash), name, self.journal, self.clock
        )


def build(
    recipe: Recipe,
    clock: Clock | None = None,
    link: MakeLink = plain_link,
    journal: Journal | None = None,
) -> Parts:
    """Build a world. An existing database file is continued.

    Raises `sqlite3.Error` or `ChainError` if the file or the chain cannot be used.
    """
    site = _site(recipe, clock or Clock(), Journal(JOURNAL_LIMIT) if journal is None else journal)
    accounts = Accounts.drawn(site.keys)
    store = Store(recipe.file, spill=recipe.spill)
    secret = store.secret("ids", site.rng.secret("ids"))
    opened = _open_chain(site, accounts, store, secret)
    watch = Watch(opened.chain, site.journal, site.clock)
    index = Index(opened.chain, site.clocks["explorer"], recipe.explorer_lag_s)
    parts = _outside(site, opened, index)
    outside = {name: site.with_faults(name, app, paths_of(app)) for name, app in parts.items()}
    http = _client("service", outside, link)
    setup = _setup(recipe, opened.network, site.keys.secret("service"), secret)
    process = Process(
        _service(site, setup, store, http), recipe.hooks, site.phases("service", setup.settings)
    )
    site.faults.on_crash = process.crash
    service_app = _service_with_faults(site, process)

    def deploy(name: ServiceName) -> Deployed:
        own = replace(setup, secret=site.rng.secret(f"ids of {name}"))
        return _another(site, name, own, parts, link)

    return Parts(
        clock=site.clock,
        journal=site.journal,
        chain=opened.chain,
        watch=watch,
        process=process,
        clocks=site.clocks,
        faults=site.faults,
        index=index,
        accounts=accounts.funded,
        offers=opened.offers
        | WORLD_OFFERS
        | (SERVICE_OFFERS if recipe.has_service else frozenset()),
        service_app=service_app,
        facilitator_app=outside["facilitator"],
        explorer_app=outside["explorer"],
        rpc_app=outside["rpc"],
        http=http,
        recipe=recipe,
        blocks=site.rng.stream("blocks"),
        deploy=deploy,
        services={"service": Deployed(process=process, app=service_app, http=http)},
    )


def _another(
    site: _Site,
    name: ServiceName,
    setup: Setup,
    parts: Mapping[Victim, Starlette],
    link: MakeLink,
) -> Deployed:
    """Return another service with a database of its own; a crash for it leaves the others alone."""

    def crash() -> None:
        process.crash()

    outside = {
        part: site.with_faults(part, app, paths_of(app), crash) for part, app in parts.items()
    }
    http = _client(name, outside, link)
    process = Process(
        _service(site, setup, Store(spill=site.recipe.spill), http, name),
        site.recipe.hooks,
        site.phases(name, setup.settings),
    )
    app = site.with_faults(name, process, process.paths, crash)
    return Deployed(process=process, app=app, http=http)


def _site(recipe: Recipe, clock: Clock, journal: Journal) -> _Site:
    rng = Rng(None if recipe.is_persistent else recipe.seed)
    return _Site(
        recipe=recipe,
        clock=clock,
        clocks={actor: SkewedClock(clock) for actor in ACTORS},
        journal=journal,
        faults=Faults(rng.stream("faults"), clock.now),
        rng=rng,
        keys=Rng(recipe.seed or 0),
    )


def _open_chain(site: _Site, accounts: Accounts, store: Store, secret: bytes) -> OpenChain:
    """Open the chain, and advance the world's clock to its newest block."""
    recipe = site.recipe
    try:
        opened = recipe.chain.open(
            ChainRequest(
                network=recipe.network,
                clock=site.clocks["chain"],
                accounts=accounts,
                secret=secret,
                has_payments=store.counts()["payments"] > 0,
                file=recipe.file,
                has_block_time=recipe.blocks is not None,
                unlocked=recipe.unlocked,
                token_rules=recipe.token_rules,
                without_token_rules=recipe.without_token_rules,
                spill=recipe.spill,
            )
        )
    except BaseException:
        store.close()
        raise
    if opened.chain.mining:
        blocks, _ = opened.chain.at_first()
        site.clock.advance(max(0.0, blocks[-1].timestamp_s - site.clock.now()))
    return opened


def _outside(site: _Site, opened: OpenChain, index: Index) -> dict[Victim, Starlette]:
    """Return the applications that a service calls, without faults."""
    recipe, clock = site.recipe, site.clocks["facilitator"]
    facilitator = recipe.hooks.facilitator(
        Facilitator(
            chain=opened.chain,
            clock=clock,
            network=opened.network,
            account=opened.facilitator,
            started_s=clock.now(),
            rules=recipe.rules("verification"),
        )
    )
    return {
        "facilitator": facilitator_app(facilitator),
        "explorer": explorer_app(index),
        "rpc": opened.rpc_app,
    }


def _service_with_faults(site: _Site, process: Process) -> ASGIApp:
    if site.recipe.has_service:
        return site.with_faults("service", process, process.paths)
    return site.with_faults("service", _no_service, ())


def _client(
    service: ServiceName, outside: Mapping[Victim, ASGIApp], link: MakeLink
) -> httpx.AsyncClient:
    """Return the HTTP client with which a service calls the other parts."""
    return httpx.AsyncClient(
        mounts={_url(name): link(service, name, app) for name, app in outside.items()},
        trust_env=False,
        verify=_certificates(),
        timeout=None,  # noqa: S113 - the service has timeouts of its own
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates to trust; reading them takes longer than building a world."""
    return httpx.create_ssl_context(trust_env=False)


def _service(
    site: _Site,
    setup: Setup,
    store: Store,
    http: httpx.AsyncClient,
    name: ServiceName = "service",
) -> Service:
    journal, clock = site.journal, site.clock
    ids = "payment ids" if name == "service" else f"payment ids of {name}"

    def record(event: ServiceEvent) -> None:
        if name != "service":
            event = msgspec.structs.replace(event, actor=name)
        journal.record(clock.now_ms(), event)

    return Service(
        setup=setup,
        clock=site.clocks["service"],
        store=store,
        issuer=Issuer(setup, site.rng.stream(ids)),
        entitlements=Entitlements(setup.settings.entitlement_lifetime_s),
        facilitator=FacilitatorClient(http, setup),
        explorer=ExplorerClient(http, setup),
        rpc=RpcClient(http, setup),
        pending_waits=waits(*setup.settings.pending_wait_s),
        refund_waits=waits(*setup.settings.refund_wait_s),
        record=record,
        settlement_rules=site.recipe.rules("settlement"),
        freshness_rules=site.recipe.rules("freshness"),
        rng=site.rng,
    )


def _setup(recipe: Recipe, network: Network, private_key: bytes, secret: bytes) -> Setup:
    setup = Setup(
        private_key=private_key,
        secret=secret,
        facilitator_url=_url("facilitator"),
        explorer_url=_url("explorer"),
        rpc_url=_url("rpc"),
        network=network,
        settings=recipe.settings_of("service"),
    )
    return recipe.hooks.setup(setup)


_no_service = web.error(
    404, "No service here", "this is the world of x402sim serve --no-service; see GET /_sim"
)


def _url(name: str) -> str:
    return f"http://{name}.local"
