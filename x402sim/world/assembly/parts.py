"""Builds every part of a world and connects them.

The parts communicate over HTTP even in one process: the service's link to a part passes each
request to its ASGI application, so that any of them can be replaced by a third party's.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim.chain.base import Chain
from x402sim.clock import Clock
from x402sim.events import MOST_SERVICES, Part, ServiceName, service_name
from x402sim.explorer.app import explorer_app
from x402sim.explorer.index import Index
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import PrivateKey, from_hex
from x402sim.protocol.networks import Network
from x402sim.service.environment import Environment
from x402sim.service.state import Service
from x402sim.service.store import Store
from x402sim.service.store.file import claimed
from x402sim.spec.needs import Need
from x402sim.text.suggest import unknown
from x402sim.world.assembly.chain_recorder import ChainRecorder
from x402sim.world.assembly.deploy import Deployed, deployed, host_of
from x402sim.world.assembly.facilitator_node import FacilitatorNode
from x402sim.world.assembly.process import Process, paths_of
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.assembly.site import MakeLink, Site, plain_link
from x402sim.world.chains.backend import ChainRequest, OpenChain
from x402sim.world.chains.gas_prices import gas_price_wei
from x402sim.world.chains.ledger import CHAIN
from x402sim.world.transport.faults import Faults

JOURNAL_LIMIT = 100_000
WORLD_OFFERS = frozenset({Need.FAULTS, Need.WORLD})
SERVICE_OFFERS = frozenset({Need.SESSIONS, Need.AGENTS, Need.LLMS, Need.RECORD, Need.SESSION_VIEW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One world: its state and its ASGI applications."""

    site: Site
    clock: Clock
    journal: Journal
    network: Network
    chain: Chain
    watch: ChainRecorder
    faults: Faults
    index: Index
    """That of the network's explorer."""
    accounts: tuple[Wallet, ...]
    offers: frozenset[Need]
    """The needs that this world meets, in real or virtual time."""
    recipe: Recipe
    services: dict[ServiceName, Deployed]
    """The services by name; the first is the one that payers use unless they are sent away."""
    outside: Mapping[Part, Starlette]
    """What a service on this network calls, without faults."""
    also: "tuple[Parts, ...]" = ()
    """The same world with another network's chain, for each further network."""

    @property
    def first(self) -> Deployed:
        """The first service, with what it calls: the first facilitator, explorer and node."""
        return self.services[self.recipe.first]

    @property
    def process(self) -> Process:
        """The first service's process."""
        return self.first.process

    @property
    def service(self) -> Service:
        """The first service as it runs; each crash replaces it."""
        return self.first.process.service

    @property
    def rpc_app(self) -> ASGIApp:
        """The JSON-RPC of this network's node, with faults."""
        if self.network == self.service.env.network:
            return self.first.outside["rpc"]
        app = self.outside["rpc"]
        return self.site.with_faults("rpc", app, paths_of(app), self.process.crash)

    @property
    def chains(self) -> tuple[Chain, ...]:
        """The chain of every network, this one's first."""
        return (self.chain, *(each.chain for each in self.also))

    def deploy(
        self, name: ServiceName, store: Store | None = None, secret: bytes | None = None
    ) -> None:
        """Add a service of the recipe, with its own merchant and server wallet.

        The first has the world's database and id secret, any other has its own.
        """
        recipe, site = self.recipe, self.site
        settings = recipe.services[name]
        setup = Environment(
            private_key=site.keys.secret("service" if store else f"service {name}"),
            secret=secret or site.rng.secret(f"ids of {name}"),
            facilitator_url=f"http://{host_of(settings.facilitator or recipe.facilitator)}",
            explorer_url=f"http://{host_of('explorer')}",
            rpc_url=f"http://{host_of('rpc')}",
            network=self.network,
            settings=settings,
        )
        self._add(name, recipe.hooks.setup(setup), store or Store())

    def _add(self, name: ServiceName, setup: Environment, store: Store) -> None:
        self.services[name] = deployed(self.site, name, setup, store, self.outside)

    def deploy_another(self, *, shares_database: bool, settings: dict[str, Any]) -> ServiceName:
        """Start another service with the first one's merchant and wallet; return its name.

        `settings` differ from the first one's. One that shares the database has its id secret,
        too: they are one service in two processes. Raises `ValueError` if there are too many.
        """
        if len(self.services) >= MOST_SERVICES:
            raise ValueError(f"a world has at most {MOST_SERVICES} services")
        names = (service_name(number) for number in range(2, MOST_SERVICES + 1))
        name = next(each for each in names if each not in self.services)
        network = settings.get("network") or self.network.name
        on = {each.network.name: each for each in (self, *self.also)}
        if network not in on:
            raise ValueError(unknown("network", network, on))
        there, first = on[network], self.service
        changed = replace(first.env.settings, **settings)
        setup = replace(first.env, network=there.network, settings=changed)
        if not shares_database:
            setup = replace(setup, secret=self.site.rng.secret(f"ids of {name}"))
        there._add(name, setup, first.store if shares_database else Store())
        self.services[name].process.start_background()
        return name


def build(
    recipe: Recipe,
    clock: Clock | None = None,
    link: MakeLink = plain_link,
    journal: Journal | None = None,
) -> Parts:
    """Build a world. An existing database file is continued.

    Raises `ValueError`, `sqlite3.Error` or `ChainError` if the file or the chain cannot be used.
    """
    journal = Journal(JOURNAL_LIMIT) if journal is None else journal
    site = Site.of(recipe, clock or Clock(), link, journal)
    chains = ["", *(f".{network.name}" for network in recipe.also)]
    with claimed(recipe.file, [name + CHAIN for name in chains]):
        store = Store(recipe.file)
        secret = store.secret("ids", site.rng.secret("ids"))
        opened = _open_chains(site, store, secret)
    services: dict[ServiceName, Deployed] = {}
    on = {each.network.name: _parts(site, each, opened, services) for each in opened}
    first, *further = on.values()
    first.deploy(recipe.first, store, secret)
    for name, settings in recipe.services.items():
        if name != recipe.first:
            on[settings.network or first.network.name].deploy(name)
    return replace(first, also=tuple(further))


def _parts(
    site: Site, on: OpenChain, opened: Sequence[OpenChain], services: dict[ServiceName, Deployed]
) -> Parts:
    """Return the parts as they are on one network; the services are still to be added."""
    recipe, explorer = site.recipe, site.recipe.explorer
    index = Index(on.chain, site.clocks["explorer"], explorer.lag_s, explorer.interval_s)
    name = None if on is opened[0] else on.network.name
    offers = WORLD_OFFERS | (SERVICE_OFFERS if recipe.has_service else frozenset())
    return Parts(
        site=site,
        clock=site.clock,
        journal=site.journal,
        network=on.network,
        chain=on.chain,
        watch=ChainRecorder(on.chain, site.journal, site.clock, name),
        faults=site.faults,
        index=index,
        accounts=site.accounts.funded,
        offers=on.offers | offers,
        recipe=recipe,
        services=services,
        outside=_outside(site, [on, *(each for each in opened if each is not on)], index),
    )


def _open_chains(site: Site, store: Store, secret: bytes) -> list[OpenChain]:
    """Open the chain of every network; if one cannot be opened, nothing stays open."""
    opened: list[OpenChain] = []
    try:
        for network in (site.recipe.network, *site.recipe.also):
            opened.append(_open_chain(site, store, secret, network))
    except BaseException:
        store.close()
        for each in opened:
            each.chain.close()
        raise
    return opened


def _open_chain(site: Site, store: Store, secret: bytes, network: Network) -> OpenChain:
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
            accounts=site.accounts,
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


def _node_of(site: Site, name: str, on: OpenChain, key: PrivateKey) -> FacilitatorNode:
    """Return the node that a facilitator asks, on one network."""
    struck = site.with_faults("rpc", on.rpc_app, paths_of(on.rpc_app), caller="facilitator")
    link, url = partial(site.link, name, "rpc", struck), f"http://{host_of('rpc')}"
    return FacilitatorNode(on.chain, site.faults, link, url, on.network, site.clocks[name], key)


def _outside(site: Site, opened: Sequence[OpenChain], index: Index) -> dict[Part, Starlette]:
    """Return the applications that a service calls, without faults; on the first of the chains."""
    recipe = site.recipe
    apps: dict[Part, Starlette] = {"explorer": explorer_app(index), "rpc": opened[0].rpc_app}

    def facilitator(name: str, on: OpenChain) -> Facilitator:
        clock, own = site.clocks[name], site.accounts.facilitators[name].private_key
        key = on.facilitator or PrivateKey(from_hex(own, 32))
        made = Facilitator(
            chain=_node_of(site, name, on, key),
            clock=clock,
            network=on.network,
            account=key.address,
            started_s=clock.now(),
            rules=recipe.rules("verification"),
            settings=recipe.facilitators[name],
        )
        return recipe.hooks.facilitator(made)

    for name in recipe.facilitators:
        listed = site.catalogue if name == recipe.facilitator else None
        each_chain = [facilitator(name, each) for each in opened]
        site.facilitators.setdefault(name, []).extend(each_chain)
        apps[name] = facilitator_app(*each_chain, catalogue=listed)
    return apps
