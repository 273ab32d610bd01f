"""Builds every part of a world and connects them.

The parts communicate over HTTP even in one process: the service's link to a part passes each
request to its ASGI application, so that any of them can be replaced by a third party's.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim.chain.base import Chain
from x402sim.clock import Clock, SkewedClock
from x402sim.events import MOST_SERVICES, Part, ServiceName, service_name
from x402sim.explorer.app import explorer_app
from x402sim.explorer.index import Index
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.discovery import Catalogue
from x402sim.facilitator.engine import Facilitator
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import Network
from x402sim.rng import Stream
from x402sim.service.state import Service
from x402sim.service.store import Store
from x402sim.spec.needs import Need
from x402sim.text.suggest import unknown
from x402sim.world.assembly.chain_recorder import ChainRecorder
from x402sim.world.assembly.deploy import Deploy, Deployed, MakeLink, plain_link
from x402sim.world.assembly.process import Process, paths_of
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.assembly.site import Site
from x402sim.world.chains.accounts import Accounts
from x402sim.world.chains.backend import ChainRequest, OpenChain
from x402sim.world.chains.gas_prices import gas_price_wei
from x402sim.world.transport.faults import Faults

JOURNAL_LIMIT = 100_000
WORLD_OFFERS = frozenset({Need.FAULTS, Need.WORLD})
SERVICE_OFFERS = frozenset({Need.SESSIONS, Need.AGENTS, Need.LLMS, Need.RECORD, Need.SESSION_VIEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One world: its state and its ASGI applications."""

    clock: Clock
    journal: Journal
    network: Network
    chain: Chain
    watch: ChainRecorder
    clocks: Mapping[str, SkewedClock]
    faults: Faults
    index: Index
    accounts: tuple[Wallet, ...]
    offers: frozenset[Need]
    """The needs that this world meets, in real or virtual time."""
    recipe: Recipe
    blocks: Stream
    """Draws when blocks come."""
    deploy: Deploy
    services: dict[ServiceName, Deployed]
    """The services by name; the first is the one that payers use unless they are sent away."""

    catalogue: Catalogue
    """What the first facilitator lists."""
    rpc_app: ASGIApp
    """The node's JSON-RPC, with faults."""
    also: "tuple[Parts, ...]" = ()
    """The same world with another network's chain, for each further network."""

    @property
    def process(self) -> Process:
        """The first service's process."""
        return self._first.process

    @property
    def service(self) -> Service:
        """The first service as it runs; each crash replaces it."""
        return self._first.process.service

    @property
    def http(self) -> httpx.AsyncClient:
        """The first service's HTTP client."""
        return self._first.http

    @property
    def service_app(self) -> ASGIApp:
        """The first service's application, with faults."""
        return self._first.app

    @property
    def facilitator_app(self) -> ASGIApp:
        """The first facilitator's application, with faults."""
        return self._first.outside[self.recipe.facilitator]

    @property
    def explorer_app(self) -> ASGIApp:
        """The explorer's application, with faults."""
        return self._first.outside["explorer"]

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The chain of every network, this one's first."""
        return (self.chain, *(each.chain for each in self.also))

    @property
    def _first(self) -> Deployed:
        return self.services[self.recipe.first]

    def deploy_another(self, *, shares_database: bool = False, **settings: Any) -> ServiceName:
        """Start another service with the first one's merchant and wallet; return its name.

        `settings` differ from the first one's. One that shares the database has its id secret,
        too: they are one service in two processes. Raises `ValueError` if there are too many.
        """
        if len(self.services) >= MOST_SERVICES:
            raise ValueError(f"a world has at most {MOST_SERVICES} services")
        names = (service_name(number) for number in range(2, MOST_SERVICES + 1))
        name = next(each for each in names if each not in self.services)
        network = settings.get("network") or self.network.name
        on = {each.network.name: each.deploy for each in (self, *self.also)}
        if network not in on:
            raise ValueError(unknown("network", network, on))
        self.services[name] = on[network].copy(name, self.service, shares_database, settings)
        self.services[name].process.start_background()
        return name


def build(
    recipe: Recipe,
    clock: Clock | None = None,
    link: MakeLink = plain_link,
    journal: Journal | None = None,
) -> Parts:
    """Build a world. An existing database file is continued.

    Raises `sqlite3.Error` or `ChainError` if the file or the chain cannot be used.
    """
    journal = Journal(JOURNAL_LIMIT) if journal is None else journal
    site = Site.of(recipe, clock or Clock(), journal)
    accounts = Accounts.drawn(
        site.keys, recipe.facilitators, mnemonic=recipe.mnemonic, count=recipe.account_count
    )
    store = Store(recipe.file)
    secret = store.secret("ids", site.rng.secret("ids"))
    opened, *further = _open_chains(site, accounts, store, secret)
    catalogue = Catalogue(site.clocks["facilitator"])
    around = _around(site, [opened, *further], accounts, catalogue, link)
    services = {recipe.first: around[opened.network.name].service(recipe.first, store, secret)}
    for name, settings in recipe.services.items():
        if name not in services:
            services[name] = around[settings.network or opened.network.name].service(name)
    blocks = site.rng.stream("blocks")
    offers = WORLD_OFFERS | (SERVICE_OFFERS if recipe.has_service else frozenset())

    def on(chain: OpenChain) -> Parts:
        """Return the parts as they are on one network."""
        deploy = around[chain.network.name]
        first, named = services[recipe.first], None
        rpc_app = first.outside["rpc"]
        if chain is not opened:
            named, paths = chain.network.name, paths_of(chain.rpc_app)
            rpc_app = site.with_faults("rpc", chain.rpc_app, paths, first.process.crash)
        return Parts(
            clock=site.clock,
            journal=journal,
            network=chain.network,
            chain=chain.chain,
            watch=ChainRecorder(chain.chain, journal, site.clock, named),
            clocks=site.clocks,
            faults=site.faults,
            index=deploy.index,
            accounts=accounts.funded,
            offers=chain.offers | offers,
            recipe=recipe,
            blocks=blocks,
            deploy=deploy,
            services=services,
            catalogue=catalogue,
            rpc_app=rpc_app,
        )

    return replace(on(opened), also=tuple(map(on, further)))


def _around(
    site: Site,
    opened: Sequence[OpenChain],
    accounts: Accounts,
    catalogue: Catalogue,
    link: MakeLink,
) -> dict[str, Deploy]:
    """Return for each network what deploys services on it."""
    found, explorer = {}, site.recipe.explorer
    for on in opened:
        index = Index(on.chain, site.clocks["explorer"], explorer.lag_s, explorer.interval_s)
        in_order = [on, *(each for each in opened if each is not on)]
        outside = _outside(site, in_order, accounts, index, catalogue)
        found[on.network.name] = Deploy(
            site=site, network=on.network, index=index, parts=outside, link=link
        )
    return found


def _open_chains(site: Site, accounts: Accounts, store: Store, secret: bytes) -> list[OpenChain]:
    """Open the chain of every network; if one cannot be opened, nothing stays open."""
    opened: list[OpenChain] = []
    try:
        for network in (site.recipe.network, *site.recipe.also):
            opened.append(_open_chain(site, accounts, store, secret, network))
    except BaseException:
        store.close()
        for each in opened:
            each.chain.close()
        raise
    return opened


def _open_chain(
    site: Site, accounts: Accounts, store: Store, secret: bytes, network: Network
) -> OpenChain:
    """Open a network's chain, and advance the world's clock to its newest block.

    The file of a further network's is FILE.NAME.chain.
    """
    recipe, file = site.recipe, site.recipe.file
    is_first = network == recipe.network
    if not is_first:
        secret = hashlib.sha256(network.name.encode() + secret).digest()
        file = file and file.with_name(f"{file.name}.{network.name}")
    draws, chain_clock = site.rng.stream("gas price"), site.clocks["chain"]
    opened = recipe.chain.open(
        ChainRequest(
            network=network,
            clock=chain_clock,
            accounts=accounts,
            secret=secret,
            has_payments=is_first and store.counts()["payments"] > 0,
            file=file,
            has_block_time=recipe.blocks is not None,
            unlocked=recipe.unlocked,
            gas_price=gas_price_wei(recipe.gas_price_gwei, draws, chain_clock.now),
            without_token_rules=recipe.without_token_rules,
        )
    )
    if opened.chain.controls:
        blocks, _ = opened.chain.at_first
        site.clock.advance(max(0.0, blocks[-1].timestamp_s - site.clock.now()))
    return opened


def _outside(
    site: Site,
    opened: Sequence[OpenChain],
    accounts: Accounts,
    index: Index,
    catalogue: Catalogue,
) -> dict[Part, Starlette]:
    """Return the applications that a service calls, without faults."""
    recipe = site.recipe
    apps: dict[Part, Starlette] = {"explorer": explorer_app(index), "rpc": opened[0].rpc_app}

    def facilitator(name: str, on: OpenChain) -> Facilitator:
        clock, own = site.clocks[name], on.facilitator
        if name != recipe.facilitator and recipe.chain.is_virtual:
            own = accounts.facilitators[name].address_bytes
        made = Facilitator(
            chain=on.chain,
            clock=clock,
            network=on.network,
            account=own,
            started_s=clock.now(),
            rules=recipe.rules("verification"),
            settings=recipe.facilitators[name],
        )
        return recipe.hooks.facilitator(made)

    for name in recipe.facilitators:
        listed = catalogue if name == recipe.facilitator else None
        each_chain = (facilitator(name, each) for each in opened)
        apps[name] = facilitator_app(*each_chain, catalogue=listed)
    return apps
