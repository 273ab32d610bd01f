"""Builds every part of a world and connects them.

The parts communicate over HTTP even in one process: the service's link to a part passes each
request to its ASGI application, so that any of them can be replaced by a third party's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim.chain.base import WorldChain
from x402sim.clock import Clock, SkewedClock
from x402sim.events import MOST_SERVICES, ServiceName, service_name
from x402sim.explorer.app import explorer_app
from x402sim.explorer.index import Index
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address
from x402sim.rng import Stream
from x402sim.service.state import Service
from x402sim.service.store import Store
from x402sim.spec.needs import Need
from x402sim.world.assembly.chain_recorder import Watch
from x402sim.world.assembly.deploy import Deploy, Deployed, MakeLink, plain_link
from x402sim.world.assembly.process import Process
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.assembly.site import Site
from x402sim.world.chains.accounts import Accounts
from x402sim.world.chains.backend import ChainRequest, OpenChain
from x402sim.world.transport.faults import Faults, Victim

JOURNAL_LIMIT = 100_000
WORLD_OFFERS = frozenset({Need.FAULTS, Need.WORLD})
SERVICE_OFFERS = frozenset({Need.SESSIONS, Need.AGENTS, Need.LLMS, Need.RECORD, Need.SESSION_VIEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One world: its state and its ASGI applications."""

    clock: Clock
    journal: Journal
    chain: WorldChain
    watch: Watch
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
    def rpc_app(self) -> ASGIApp:
        """The node's JSON-RPC, with faults."""
        return self._first.outside["rpc"]

    @property
    def _first(self) -> Deployed:
        return self.services[self.recipe.first]

    def deploy_another(self, *, shares_database: bool = False) -> ServiceName:
        """Start another service with the first one's merchant and wallet; return its name.

        One that shares the database has its id secret, too: they are one service in two processes.
        Raises `ValueError` if there are too many.
        """
        if len(self.services) >= MOST_SERVICES:
            raise ValueError(f"a world has at most {MOST_SERVICES} services")
        names = (service_name(number) for number in range(2, MOST_SERVICES + 1))
        name = next(each for each in names if each not in self.services)
        self.services[name] = self.deploy.copy(name, self.service, shares_database)
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
        site.keys,
        list(recipe.facilitators),
        mnemonic=recipe.mnemonic,
        count=recipe.account_count,
    )
    store = Store(recipe.file)
    secret = store.secret("ids", site.rng.secret("ids"))
    opened = _open_chain(site, accounts, store, secret)
    watch = Watch(opened.chain, site.journal, site.clock)
    explorer = recipe.explorer
    index = Index(opened.chain, site.clocks["explorer"], explorer.lag_s, explorer.interval_s)
    outside = _outside(site, opened, accounts, index)
    deploy = Deploy(site=site, network=opened.network, parts=outside, link=link)
    services = {recipe.first: deploy.first(store, secret)}
    for name in recipe.services:
        if name not in services:
            services[name] = deploy.named(name)
    return Parts(
        clock=site.clock,
        journal=site.journal,
        chain=opened.chain,
        watch=watch,
        clocks=site.clocks,
        faults=site.faults,
        index=index,
        accounts=accounts.funded,
        offers=opened.offers
        | WORLD_OFFERS
        | (SERVICE_OFFERS if recipe.has_service else frozenset()),
        recipe=recipe,
        blocks=site.rng.stream("blocks"),
        deploy=deploy,
        services=services,
    )


def _open_chain(site: Site, accounts: Accounts, store: Store, secret: bytes) -> OpenChain:
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
                without_token_rules=recipe.without_token_rules,
            )
        )
    except BaseException:
        store.close()
        raise
    if opened.chain.mining:
        blocks, _ = opened.chain.at_first()
        site.clock.advance(max(0.0, blocks[-1].timestamp_s - site.clock.now()))
    return opened


def _outside(
    site: Site, opened: OpenChain, accounts: Accounts, index: Index
) -> dict[Victim, Starlette]:
    """Return the applications that a service calls, without faults."""
    recipe = site.recipe
    apps: dict[Victim, Starlette] = {"explorer": explorer_app(index), "rpc": opened.rpc_app}

    def facilitator(name: str, account: Address) -> Starlette:
        clock = site.clocks[name]
        made = Facilitator(
            chain=opened.chain,
            clock=clock,
            network=opened.network,
            account=account,
            started_s=clock.now(),
            rules=recipe.rules("verification"),
            settings=recipe.facilitators[name],
        )
        return facilitator_app(recipe.hooks.facilitator(made))

    wallets = accounts.facilitators
    own = {
        name: wallets[name].address_bytes if recipe.chain.is_virtual else opened.facilitator
        for name in recipe.facilitators
    }
    own[recipe.facilitator] = opened.facilitator
    return {name: facilitator(name, account) for name, account in own.items()} | apps
