"""A running world: builds the parts from the options of a `World`, connects and runs them.

The parts communicate over HTTP even in one process: a service's link to a part passes each request
to the part's ASGI application, so that other software can replace any part.
"""

import asyncio
import hashlib
import itertools
import logging
import sqlite3
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, cast
from weakref import finalize

import httpx
import msgspec
from starlette.applications import Starlette
from starlette.types import ASGIApp

from x402sim import events
from x402sim.chain.base import Block, Chain, ChainClient, ChainError, TxReceipt
from x402sim.chain.ledger.frame import TABLES as TOKEN_TABLES
from x402sim.clock import Clock, SkewedClock, periodic_context
from x402sim.events import MOST_SERVICES, Part, ServiceEvent, ServiceName, service_name
from x402sim.explorer.app import explorer_app
from x402sim.explorer.index import ExplorerSettings, Index
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.discovery import Catalogue
from x402sim.facilitator.engine import Facilitator, FacilitatorSettings
from x402sim.http import web
from x402sim.http.exchange import Request, Response, Transport
from x402sim.http.limits import MAX_EVENTS
from x402sim.journal import Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, PrivateKey, checksum, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2_payments import PROXIES
from x402sim.rng import Rng, Stream, later
from x402sim.service.environment import Environment
from x402sim.service.settings import Settings
from x402sim.service.state import Entitlement, Service, connected
from x402sim.service.store import Store
from x402sim.service.store.file import claimed
from x402sim.spec.needs import Need
from x402sim.spilling import Spilling
from x402sim.tasks import InFlight, cancel_all
from x402sim.text.words import described, unknown
from x402sim.world.cache import cached
from x402sim.world.chains import (
    CHAIN,
    Accounts,
    ChainRequest,
    FacilitatorNode,
    OpenChain,
    dropped,
    gas_price_wei,
)
from x402sim.world.faults import Caller, Faults
from x402sim.world.link import Asgi
from x402sim.world.process import ServiceProcess, paths_of
from x402sim.world.strike import Queue, cannot_crash, faulty
from x402sim.world.world import World

_USES: dict[bytes, Literal["used", "canceled"]] = {
    abi.AUTHORIZATION_USED: "used",
    abi.AUTHORIZATION_CANCELED: "canceled",
}
_Recorded = tuple[bytes, tuple[bytes, ...]]
"""The hash of a block, and the hashes of the transactions in the block."""


class ChainRecorder:
    """Follows a chain's blocks; the chain calls it after every operation."""

    def __init__(
        self, chain: Chain, journal: Journal, clock: Clock, network: str | None = None
    ) -> None:
        """`network` is the name of a further network, which becomes part of the events' actor."""
        self._actor = "chain" if network is None else f"chain {network}"
        self._chain, self._journal, self._clock = chain, journal, clock
        blocks, self.supply_base = chain.at_first
        """`supply_base` is the token's supply at the last call, in base units."""
        self._recorded = Spilling[int, _Recorded](int, _Recorded)
        """The blocks that are recorded, by number, without a gap."""
        self._newest = -1
        for block in blocks:
            self._note(block)
        self._lock = asyncio.Lock()
        chain.watchers.append(self)

    async def __call__(self) -> None:
        """Record what has changed since the last call."""
        # one call at a time: two would record a block twice, as a node's answers are awaited
        async with self._lock:
            height = await self._chain.height()
            while (newest := self._recorded.get(self._newest)) is not None:
                block_hash, tx_hashes = newest
                there = await self._chain.block(self._newest) if self._newest <= height else None
                if there is not None and there.hash == block_hash:
                    break
                del self._recorded[self._newest]
                self._newest -= 1
                for tx_hash in tx_hashes:
                    self._record(
                        events.TransactionUndone(actor=self._actor, tx_hash=to_hex(tx_hash))
                    )
            first = 0 if newest is None else self._newest + 1
            for number in range(first, height + 1):
                block = await self._chain.block(number)
                receipts = (
                    [await self._chain.receipt(tx) for tx in block.tx_hashes] if block else []
                )
                if block is None or None in receipts:
                    break  # a reorg replaced it meanwhile and calls again
                self._note(block)
                for receipt in filter(None, receipts):
                    for event in receipt_events(self._actor, self._chain.token, block, receipt):
                        self._record(event)
            self.supply_base = await self._chain.supply()

    def _note(self, block: Block) -> None:
        self._newest = block.number
        self._recorded[block.number] = block.hash, block.tx_hashes

    def _record(self, event: events.ChainEvent) -> None:
        self._journal.record(self._clock.now_ms(), event)


def receipt_events(
    actor: str, token: Address, block: Block, receipt: TxReceipt
) -> Iterator[events.ChainEvent]:
    """Yield the events of a mined transaction: the mining, transfers, used authorizations."""
    yield events.TransactionMined(
        actor=actor,
        tx_hash=to_hex(receipt.tx_hash),
        block=block.number,
        block_time_s=block.timestamp_s,
        sender=checksum(receipt.call.sender),
        call=abi.NAMES.get(receipt.call.data[:4], ""),
        gas=receipt.gas_used,
        gas_price_wei=str(receipt.gas_price),
        revert_reason=receipt.revert_reason,
    )
    for log in receipt.logs:
        if log.address != token or not log.topics:
            continue  # a log of another contract
        account = checksum(Address(log.topics[1][12:])) if len(log.topics) > 1 else ""
        if log.topics[0] == abi.TRANSFER_EVENT:
            yield events.Transfer(
                actor=actor,
                tx_hash=to_hex(log.tx_hash),
                block=log.block_number,
                sender=account,
                to=checksum(Address(log.topics[2][12:])),
                amount_base=str(int.from_bytes(log.data)),
            )
        elif log.topics[0] in _USES:
            yield events.AuthorizationConsumed(
                actor=actor,
                tx_hash=to_hex(log.tx_hash),
                authorizer=account,
                authorization=log.topics[2].hex(),
                use=_USES[log.topics[0]],
            )
    is_by_permit2 = receipt.succeeded and receipt.call.to in PROXIES.values()
    if is_by_permit2 and (used := abi.settled_nonce(receipt.call.data)):  # no log has the nonce
        yield events.AuthorizationConsumed(
            actor=actor,
            tx_hash=to_hex(receipt.tx_hash),
            authorizer=checksum(used[0]),
            authorization=used[1].to_bytes(32).hex(),
            use="used",
        )


WORLD_CAPABILITIES = frozenset({Need.FAULTS, Need.WORLD})
SERVICE_CAPABILITIES = frozenset(
    {Need.SESSIONS, Need.AGENTS, Need.LLMS, Need.RECORD, Need.SESSION_VIEW}
)
ACTORS = ("service", "facilitator", "explorer", "chain")
"""The actors whose clocks can be skewed; further services and facilitators have names."""

MakeLink = Callable[[ServiceName, Part, ASGIApp], Transport]
"""Makes a caller's link to the application of a part: "facilitator", "explorer", "rpc"."""


def plain_link(_: str, __: str, app: ASGIApp) -> Transport:
    """Return a link without faults and without latency."""
    return Asgi(app)


class Snapshot(msgspec.Struct, frozen=True, weakref=True):
    """A snapshot: the database and cache of each service, its number on each network's chain."""

    databases: dict[ServiceName, sqlite3.Connection]
    entitlements: dict[ServiceName, list[Entitlement]]
    chains: list[int]

    def __post_init__(self) -> None:
        finalize(self, _close_all, self.databases)

    def close(self) -> None:
        """Close the copies of the databases."""
        _close_all(self.databases)


def _close_all(databases: dict[ServiceName, sqlite3.Connection]) -> None:
    for each in databases.values():
        each.close()


@dataclass(slots=True, kw_only=True, eq=False)
class RunningWorld:
    """A running world on one network.

    Each network has an object: `networks` has all objects, the first network's first. Objects
    share all fields but the fields "per network" below; `build` makes the objects.
    """

    options: World
    clock: Clock
    clocks: Mapping[str, SkewedClock]
    """The clocks of services, facilitators, explorers and chains, by name."""
    journal: Journal
    faults: Faults
    rng: Rng
    """Draws values that must never repeat: unseeded if the database or the chain is kept."""
    keys: Rng
    """Draws the keys, which depend on the seed in every world."""
    blocks: Stream
    """Draws when blocks come, on every network."""
    accounts: Accounts
    """The funded accounts, the token's owner and the facilitators'."""
    catalogue: Catalogue
    """The resources that the first facilitator lists."""
    link: MakeLink
    networks: list["RunningWorld"] = field(default_factory=list)
    services: dict[ServiceName, ServiceProcess] = field(default_factory=dict)
    """The services by name; payers use the first unless they are sent to another."""
    facilitators: dict[str, list[Facilitator]] = field(default_factory=dict)
    """The facilitators by name: each is one on every network, for the services of every network."""
    queues: dict[Part, Queue | None] = field(default_factory=dict)
    """The queue of each facilitator and of the explorer, the same on all networks; None without
    `servers`. The queues of services are in their processes."""
    queued: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Numbers the requests to parts with `servers`."""
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    """The snapshots that the control API has taken, by number."""
    tasks: InFlight = field(default_factory=InFlight)
    """The tasks that an action of the control API has left running."""
    first_bug: list[Exception] = field(default_factory=list)
    """The first unexpected exception of a part, such as from a user's policy."""
    on_bug: list[Callable[[Exception], None]] = field(default_factory=list)

    # per network

    network: Network = field(init=False)
    chain: Chain = field(init=False)
    chain_recorder: ChainRecorder = field(init=False)
    index: Index = field(init=False)
    """The index of the network's explorer."""
    capabilities: frozenset[Need] = field(init=False)
    """The needs met by the world, in real or virtual time."""
    outside: Mapping[Part, Starlette] = field(init=False)
    """The parts called by a service on this network, without faults."""

    @property
    def process(self) -> ServiceProcess:
        """The first service's process, with the called parts: the first facilitator and so on."""
        return self.services[self.options.first]

    @property
    def service(self) -> Service:
        """The first service as it runs; each crash replaces it."""
        return self.process.service

    @property
    def rpc_app(self) -> ASGIApp:
        """The JSON-RPC of this network's node, with faults."""
        if self.network == self.service.env.network:
            return self.process.outside["rpc"]
        app = self.outside["rpc"]
        return self.with_faults("rpc", app, paths_of(app), self.process.crash)

    def on_network(self, network: str) -> "RunningWorld":
        """Return the same world on another network; raises `ValueError` for an unknown network."""
        by_name = {each.network.name: each for each in self.networks}
        if network not in by_name:
            raise ValueError(unknown("network", network, by_name))
        return by_name[network]

    # --- what goes wrong -------------------------------------------------------------------

    def report_bug(self, bug: Exception) -> None:
        """Report an unexpected exception to every listener."""
        self.first_bug[:] = self.first_bug or [bug]
        for listener in self.on_bug:
            listener(bug)

    def add_bug_listener(self, listener: Callable[[Exception], None]) -> None:
        """Call a function with each unexpected exception, also with an earlier first exception."""
        self.on_bug.append(listener)
        for bug in self.first_bug:
            listener(bug)

    def with_faults(
        self,
        name: Part,
        app: ASGIApp,
        paths: Sequence[str],
        crash: Callable[[], None] = cannot_crash,
        caller: Caller = "service",
    ) -> ASGIApp:
        """Return a part's application with fault injection and recording around it.

        A fault for a path outside `paths` is an error. `crash` kills the service
        that receives or sends a request. A facilitator, the other `caller`, never crashes.
        """
        self.faults.paths[name] = paths
        return faulty(
            app, name, self.faults, self.journal, self.clock, crash, self.report_bug, caller
        )

    # --- services --------------------------------------------------------------------------

    def deploy(self, name: ServiceName, store: Store, secret: bytes | None = None) -> None:
        """Add a service of the options on this network, with a new merchant and server wallet.

        The first has the world's id `secret`, any other has its own.
        """
        options, settings = self.options, self.options.services[name]
        facilitator = settings.facilitator or options.first_facilitator
        setup = Environment(
            private_key=self.keys.secret("service" if secret else f"service {name}"),
            secret=secret or self.rng.secret(f"ids of {name}"),
            facilitator_url=f"http://{host_of(facilitator)}",
            explorer_url=f"http://{host_of('explorer')}",
            rpc_url=f"http://{host_of('rpc')}",
            network=self.network,
            settings=settings,
        )
        self._start(name, options.hooks.setup(setup), store)

    def deploy_another(self, *, shares_database: bool, settings: dict[str, Any]) -> ServiceName:
        """Start another service with the first one's merchant and wallet; return its name.

        `settings` differ from the first one's; `sells` may be goods by name, as `LocalServer` takes
        them. A service on the same database has the same id
        secret: two replicas of one service. Raises `ValueError` for too many services.
        """
        if len(self.services) >= MOST_SERVICES:
            raise ValueError(f"a world has at most {MOST_SERVICES} services")
        names = (service_name(number) for number in range(2, MOST_SERVICES + 1))
        name = next(each for each in names if each not in self.services)
        on, first = self.on_network(settings.get("network") or self.network.name), self.service
        sells = settings.pop("sells", ())
        changed = replace(first.env.settings, **settings)
        if sells:
            from x402sim.service.sources import goods_of, selling  # few worlds sell such goods

            changed = selling(changed, goods_of(sells))
        setup = replace(first.env, network=on.network, settings=changed)
        if (facilitator := settings.get("facilitator")) is not None:
            if facilitator not in self.options.facilitators:
                raise ValueError(unknown("facilitator", facilitator, self.options.facilitators))
            setup = replace(setup, facilitator_url=f"http://{host_of(facilitator)}")
        if not shares_database:
            setup = replace(setup, secret=self.rng.secret(f"ids of {name}"))
        on._start(name, setup, first.store if shares_database else Store())
        self.services[name].start_background()
        return name

    def _start(self, name: ServiceName, setup: Environment, store: Store) -> None:
        """Add a service, with faults on separate links: a crash spares the other services."""
        options, is_first = self.options, name == self.options.first

        def crash() -> None:
            process.crash()

        def record(event: ServiceEvent) -> None:
            if name != "service":
                event = msgspec.structs.replace(event, actor=name)
            self.journal.record(self.clock.now_ms(), event)

        def phase(work: str, interval_s: float) -> float:
            """Return when periodic work begins: at the settings' phase, or drawn."""
            if setup.settings.phase is not None:
                return setup.settings.phase
            return self.rng.stream(f"phase of {work} of {name}").uniform(0, interval_s)

        outside: dict[Part, ASGIApp] = {}
        links: dict[str, Transport] = {}
        for part, app in self.outside.items():
            line = self.queues.get(part)  # the node has none
            queued = line.before(app) if line else app
            outside[part] = self.with_faults(part, queued, paths_of(app), crash)
            links[host_of(part)] = self.link(name, part, outside[part])
        ids = self.rng.stream("payment ids" if is_first else f"payment ids of {name}")
        clock = self.clocks.get(name, self.clocks["service"])
        service = replace(
            connected(setup, store, _PartTransport(links), clock, ids),
            record=record,
            on_bug=self.report_bug,
            settlement_rules=options.rules("settlement"),
            freshness_rules=options.rules("freshness"),
            rng=self.rng,
        )
        queue = partial(self._queue, name, setup.settings, self._service_times(name))
        process = ServiceProcess(service, options.hooks, phase, outside, queue)
        served: ASGIApp = process if options.has_service or not is_first else _no_service
        process.app = self.with_faults(
            name, served, process.paths if served is process else (), crash
        )
        if options.cache is not None:
            process.app = cached(process.app, options.cache, self.clock)
        self.services[name] = process

    # --- networks --------------------------------------------------------------------------

    def _open_chain(self, store: Store, secret: bytes, network: Network) -> OpenChain:
        """Open a network's chain, and advance the world's clock to its newest block.

        The file of a further network's is FILE.NAME.chain.
        """
        options, file = self.options, self.options.database
        is_first = network == options.networks[0]
        if not is_first:
            secret = hashlib.sha256(network.name.encode() + secret).digest()
            file = file and file.with_name(f"{file.name}.{network.name}")
        left_out = tuple(rule for rule in options.without if rule[0] in TOKEN_TABLES)
        draws, chain_clock = self.rng.stream("gas price"), self.clocks["chain"]
        opened = options.backend.open(
            ChainRequest(
                network=network,
                clock=chain_clock,
                accounts=self.accounts,
                secret=secret,
                has_payments=is_first and store.payments.has_any(),
                file=file,
                has_block_time=options.blocks is not None,
                unlocked=options.unlocked,
                gas_price=gas_price_wei(options.gas_price_gwei, draws, chain_clock.now),
                calls_at_block_time=options.calls_at_block_time,
                without_token_rules=left_out,
            )
        )
        if opened.chain.controls:
            blocks, _ = opened.chain.at_first
            if (ahead_s := blocks[-1].timestamp_s - self.clock.now()) > 0:
                self.clock.advance(ahead_s)
        return opened

    def _add_network(self, on: OpenChain, opened: Sequence[OpenChain]) -> None:
        """Add the separate parts of a network; the services are still to be added."""
        # a shallow copy: the fields that all networks share are the same objects
        other, explorer = copy(self), self.options.explorer_settings
        name = None if on is opened[0] else on.network.name
        other.network, other.chain = on.network, on.chain
        other.index = Index(on.chain, self.clocks["explorer"], explorer.lag_s, explorer.interval_s)
        other.chain_recorder = ChainRecorder(on.chain, self.journal, self.clock, name)
        capabilities = WORLD_CAPABILITIES | (
            SERVICE_CAPABILITIES if self.options.has_service else frozenset()
        )
        other.capabilities = on.capabilities | capabilities
        outside: dict[Part, Starlette] = {"explorer": explorer_app(other.index), "rpc": on.rpc_app}
        chains = [on, *(each for each in opened if each is not on)]
        for facilitator in self.options.facilitators:
            listed = self.catalogue if facilitator == self.options.first_facilitator else None
            on_each = [self._facilitator(facilitator, each) for each in chains]
            self.facilitators.setdefault(facilitator, []).extend(on_each)
            outside[facilitator] = facilitator_app(*on_each, catalogue=listed)
        limited: dict[Part, FacilitatorSettings | ExplorerSettings] = {"explorer": explorer}
        for part, settings in (limited | self.options.facilitators).items():
            if part not in self.queues:
                paths, times = paths_of(outside[part]), self._service_times(part)
                self.queues[part] = self._queue(part, settings, times, paths)
        other.outside = outside
        self.networks.append(other)

    def _queue(
        self,
        part: Part,
        settings: FacilitatorSettings | ExplorerSettings | Settings,
        times: Stream,
        paths: Sequence[str],
    ) -> Queue | None:
        if settings.servers is None:
            return None
        return Queue(part, settings, paths, self.clock, self.journal, times, self.queued)

    def _service_times(self, part: Part) -> Stream:
        """Return the stream of a part's service times, the same one after a restart."""
        return later(partial(self.rng.stream, f"service times of {part}"))

    def _facilitator(self, name: str, on: OpenChain) -> Facilitator:
        """Return a facilitator on one network, with a separate node to reach the chain."""
        clock, account = self.clocks[name], self.accounts.facilitators[name]
        key = on.facilitator or PrivateKey(account.private_key)
        faulty_rpc = self.with_faults("rpc", on.rpc_app, paths_of(on.rpc_app), caller="facilitator")
        link, url = partial(self.link, name, "rpc", faulty_rpc), f"http://{host_of('rpc')}"
        node = FacilitatorNode(on.chain, self.faults, link, url, on.network, clock, key)
        facilitator = Facilitator(
            chain=cast(ChainClient, node),
            clock=clock,
            network=on.network,
            account=key.address,
            started_s=clock.now(),
            rules=self.options.rules("verification"),
            settings=self.options.facilitators[name],
        )
        return self.options.hooks.facilitator(facilitator)


def build(
    world: World,
    clock: Clock | None = None,
    link: MakeLink = plain_link,
    journal: Journal | None = None,
) -> RunningWorld:
    """Build a world; return the first network's. An existing database file is continued.

    Raises `ValueError`, `sqlite3.Error` or `ChainError` if the file or the chain cannot be used.
    """
    clock = clock or Clock()
    rng = Rng(None if world.is_persistent else world.seed)
    keys = Rng(world.seed or 0)
    clocks = {actor: SkewedClock(clock) for actor in ACTORS}
    clocks[world.first] = clocks["service"]
    clocks[world.first_facilitator] = clocks["facilitator"]
    for name in (*world.services, *world.facilitators):
        clocks.setdefault(name, SkewedClock(clock))
    running = RunningWorld(
        options=world,
        clock=clock,
        clocks=clocks,
        journal=Journal(MAX_EVENTS) if journal is None else journal,
        faults=Faults(rng, clock.now),
        rng=rng,
        keys=keys,
        blocks=rng.stream("blocks"),
        accounts=Accounts.drawn(
            keys, world.facilitators, mnemonic=world.phrase, count=world.accounts
        ),
        catalogue=Catalogue(clocks["facilitator"]),
        link=link,
    )
    running.faults.on_period.append(lambda period: running.journal.record(clock.now_ms(), period))
    chain_files = [CHAIN, *(f".{network.name}{CHAIN}" for network in world.networks[1:])]
    with claimed(world.database, chain_files):
        store = Store(world.database)
        secret = store.secret("ids", rng.secret("ids"))
        opened: list[OpenChain] = []
        try:
            for network in world.networks:
                opened.append(running._open_chain(store, secret, network))
            for each in opened:
                running._add_network(each, opened)
            first = running.networks[0]
            first.deploy(world.first, store, secret)
            for name, settings in world.services.items():
                if name != world.first:
                    first.on_network(settings.network or first.network.name).deploy(name, Store())
        except BaseException:  # of a chain, or of a user's hook: nothing stays open
            store.close()
            for each in opened:
                each.chain.close()
            raise
    return first


@dataclass(frozen=True, slots=True)
class _PartTransport(Transport):
    """Passes each request to the link of its part."""

    links: Mapping[str, Transport]

    def send(self, request: Request) -> Awaitable[Response]:
        link = self.links.get(request.url.host)
        if link is None:
            raise httpx.ConnectError(f"no part of this world is at {request.url.host}")
        return link.send(request)


def host_of(part: Part) -> str:
    """Return the host at which the services of a world call a part, by HTTP."""
    return f"{part}.local"


_no_service = web.error(
    404, "No service here", "this is the world of x402sim serve --no-service; see GET /_sim"
)


log = logging.getLogger("x402sim")
LOOK_S = 2
"""Seconds between polls of a node that mines by itself."""


@asynccontextmanager
async def running(world: RunningWorld) -> AsyncIterator[None]:
    """Run the world's background work in a `with` block; close everything at its end."""
    automine, miners = world.options.blocks is None, list[asyncio.Task[None]]()
    try:
        for controls in (network.chain.controls for network in world.networks):
            if controls and controls.automine is not automine:  # a chain file keeps its setting
                await controls.set_automine(automine)
        if world.options.has_service:
            for each in world.services.values():
                each.start_background()
        miners += [
            asyncio.create_task(_mine_blocks(each), context=periodic_context())
            for each in world.networks
        ]
        yield
    finally:
        await cancel_all([*miners, *world.tasks])
        for each in world.services.values():
            await each.stop()
        for each in world.services.values():  # only now, as several may share a database
            await each.close()
        for network in world.networks:
            network.chain.close()


async def _mine_blocks(world: RunningWorld) -> None:
    """Mine a block at each interval, or poll for the blocks of a node that mines by itself.

    While a scenario has switched mining off, the heartbeat mines no block: waiting transactions
    would be mined. Blocks of a block time go on.
    """
    controls, blocks = world.chain.controls, world.options.blocks
    reorgs, draws = world.options.reorgs if controls else None, world.rng.stream("reorgs")
    failed: str | None = None
    try:
        depths = None if reorgs is None else reorgs.depths(draws)
        pauses: Iterable[float] = itertools.repeat(
            world.options.heartbeat_s if controls else LOOK_S
        )
        if controls and blocks is not None:
            pauses = blocks.intervals(world.blocks)
        for pause_s in pauses:
            await world.clock.sleep(pause_s)
            try:
                if reorgs and depths:
                    depth = next(depths, None)
                    if depth is None:
                        raise ValueError(f"reorgs: the depths of {described(reorgs)} have ended")
                    await _reorganise(world, depth, reorgs.drop, draws)
                if controls is None:
                    await world.chain_recorder()
                elif controls.automine or blocks is not None:
                    await controls.mine()
                failed = None
            except ChainError as error:  # a node may recover, and a disk get space again
                if str(error) != failed:  # a warning each minute would hide all else
                    log.warning("the chain: %s", error)
                failed = str(error)
        raise ValueError(f"block_time_s: the intervals of {described(blocks)} have ended")
    except Exception as bug:
        log.exception("no more blocks come")
        world.report_bug(bug)


async def _reorganise(world: RunningWorld, depth: int, drop: float, draws: Stream) -> None:
    chain = world.chain
    if chain.controls and (depth := min(depth, await chain.controls.deepest_reorg())) > 0:
        lost = await dropped(chain, depth, drop, draws)
        world.journal.record(world.clock.now_ms(), events.ChainReorganised(depth=depth))
        await chain.controls.reorg(depth, lost)
