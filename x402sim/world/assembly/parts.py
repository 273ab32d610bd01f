"""Every part of the world, wired together.

The parts meet over HTTP even in one process: the service's client has a transport that
hands each request to the right ASGI application, so that any of them can be replaced
by somebody else's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from x402sim import web
from x402sim.chain.base import Control
from x402sim.chain.ledger.token_rules import CANCEL, RECEIVE, TRANSFER
from x402sim.clock import Clock, SkewedClock
from x402sim.explorer.app import explorer_app
from x402sim.explorer.index import Index
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import FRESHNESS, SETTLEMENT, VERIFICATION, without
from x402sim.rng import Rng
from x402sim.service.entitlements import Entitlements
from x402sim.service.issue import Issuer
from x402sim.service.settings import Settings
from x402sim.service.state import Service
from x402sim.service.store import Store
from x402sim.service.upstream.cronos import CRONOS
from x402sim.service.upstream.explorer import ExplorerClient
from x402sim.service.upstream.facilitator import FacilitatorClient
from x402sim.service.upstream.rpc import RpcClient
from x402sim.spec.decisions import Decisions
from x402sim.world.assembly.chain_recorder import Watch
from x402sim.world.assembly.chains import LEDGER, Ground, People, check_chain, is_url, open_ground
from x402sim.world.assembly.hooks import NO_HOOKS, Hooks
from x402sim.world.assembly.process import Process
from x402sim.world.transport.faults import Faults, Victim, faulty
from x402sim.world.transport.link import Asgi

JOURNAL_LIMIT = 100_000


TABLES: dict[str, Any] = {
    "settlement": SETTLEMENT,
    "freshness": FRESHNESS,
    "verification": VERIFICATION,
    "transfer": TRANSFER,
    "receive": RECEIVE,
    "cancel": CANCEL,
}
"""Every rule table there is; the last three are the token's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a world is made of.

    The same seed gives the same accounts (without one, those of seed 0), and in memory
    the same payment ids. With a file, or on somebody's node, ids must never come twice, and
    are drawn anew.
    """

    network: Network
    seed: int | None = None
    file: Path | None = None
    decisions: Decisions | None = None
    explorer_lag_s: float = 0.0
    unlocked: bool = True
    """Whether the RPC sends transactions for the ten accounts, which it has the keys of."""
    has_service: bool = True
    """Whether the service is there; without it the world waits for somebody else's."""
    chain: str = LEDGER
    """What it stands on: "ledger", "anvil", or the URL of a node."""
    token: str | None = None
    """Where the token is on that node, if not at the network's own address."""
    deploy: bool = False
    """Whether to put a new token on that node first."""
    block_time_s: float | None = None
    """Seconds between blocks; None mines every transaction at once."""
    heartbeat_s: float = 60
    """Seconds between blocks when transactions do not wait for one: time goes on, on any chain."""
    sweep_s: int | None = None
    """Seconds between looks at expired sessions and pending payments, if not as ever."""
    without: tuple[tuple[str, str], ...] = ()
    """Rules to leave out, to see what notices: (name in `TABLES`, clause)."""
    hooks: Hooks = NO_HOOKS
    """Functions that change settings, service, its application, or the facilitator."""

    def __post_init__(self) -> None:
        check_chain(self.chain)
        if (self.token or self.deploy) and not is_url(self.chain):
            raise ValueError(
                f"a token can be named, or put, on somebody's node, not on {self.chain}"
            )
        if self.token and self.deploy:
            raise ValueError("either name a token that is on the node, or have one put there")
        if self.block_time_s is not None and not 0.01 <= self.block_time_s <= 86400:
            raise ValueError(f"the block time is 0.01 to 86400 seconds, not {self.block_time_s}")

    @property
    def remembers(self) -> bool:
        """Whether something outlives the world, in which nothing may come twice."""
        return self.file is not None or is_url(self.chain)

    def rules(self, table: str) -> Any:
        """Return one of `TABLES` without the rules this recipe leaves out; raises `KeyError`."""
        rules = TABLES[table]
        for name, clause in self.without:
            if name == table:
                rules = without(rules, clause)
        return rules


ACTORS = ("service", "facilitator", "explorer", "chain")
"""Whose clocks can go wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One world: its state, and the ASGI applications that are its face."""

    clock: Clock
    journal: Journal
    chain: Control
    watch: Watch
    process: Process
    clocks: dict[str, SkewedClock]
    faults: Faults
    index: Index
    accounts: tuple[Wallet, ...]
    service_app: ASGIApp
    facilitator_app: ASGIApp
    explorer_app: ASGIApp
    rpc_app: ASGIApp
    http: httpx.AsyncClient
    recipe: Recipe

    @property
    def service(self) -> Service:
        """The service as it runs now; after a crash it is another one."""
        return self.process.service


Link = Callable[[str, ASGIApp], httpx.AsyncBaseTransport]
"""Makes the wire to one part ("facilitator", "explorer", "rpc") from its application."""


def plain_link(_: str, app: ASGIApp) -> httpx.AsyncBaseTransport:
    """Return a wire that loses nothing and takes no time."""
    return Asgi(app)


def build(
    recipe: Recipe,
    clock: Clock | None = None,
    link: Link = plain_link,
    journal: Journal | None = None,
) -> Parts:
    """Build a world. With a file, one that was there before goes on where it stopped.

    Raises `sqlite3.Error` or `ChainError` if file or chain cannot be had.
    """
    clock = clock or Clock()
    clocks = {actor: SkewedClock(clock) for actor in ACTORS}
    journal = Journal(JOURNAL_LIMIT) if journal is None else journal
    rng = Rng(None if recipe.remembers else recipe.seed)
    keys = Rng(recipe.seed or 0)
    people = People.drawn(keys)
    store = Store(recipe.file)
    secret = store.secret("ids", rng.secret("ids"))
    try:
        has_payments = store.counts()["payments"] > 0
        ground = open_ground(recipe, clocks["chain"], people, secret, has_payments=has_payments)
    except BaseException:
        store.close()
        raise
    chain = ground.chain
    blocks, _ = chain.at_first()
    if chain.is_ours:  # a clock that was advanced goes on at the newest block's time
        clock.advance(max(0.0, blocks[-1].timestamp_s - clock.now()))
    watch = Watch(chain, journal, clock)
    index = Index(chain, clocks["explorer"], recipe.explorer_lag_s)
    faults = Faults(rng.stream("faults"))

    def at_its_door(name: Victim, app: ASGIApp) -> ASGIApp:
        return web.recorded(faulty(app, name, faults, clock), name, journal, clock)

    outside = {
        "facilitator": at_its_door(
            "facilitator",
            facilitator_app(_facilitator(recipe, clocks["facilitator"], ground)),
        ),
        "explorer": at_its_door("explorer", explorer_app(index)),
        "rpc": at_its_door("rpc", ground.rpc_app),
    }
    http = httpx.AsyncClient(
        mounts={_url(name): link(name, app) for name, app in outside.items()},
        trust_env=False,
        timeout=None,  # noqa: S113 - the service has timeouts of its own
    )
    settings = _settings(recipe, ground.network, keys.secret("service"), secret)
    process = Process(
        Service(
            settings=settings,
            clock=clocks["service"],
            store=store,
            issuer=Issuer(settings, rng.stream("payment ids")),
            entitlements=Entitlements(settings.entitlement_lifetime_s),
            facilitator=FacilitatorClient(http, settings, CRONOS),
            explorer=ExplorerClient(http, settings),
            rpc=RpcClient(http, settings),
            note=lambda event, **data: journal.record(clock.now_ms(), "service", event, **data),
            settlement_rules=recipe.rules("settlement"),
            freshness_rules=recipe.rules("freshness"),
        ),
        recipe.hooks,
    )
    faults.on_crash = process.crash
    return Parts(
        clock=clock,
        journal=journal,
        chain=chain,
        watch=watch,
        process=process,
        clocks=clocks,
        faults=faults,
        index=index,
        accounts=people.accounts,
        service_app=at_its_door("service", process if recipe.has_service else _nobody),
        facilitator_app=outside["facilitator"],
        explorer_app=outside["explorer"],
        rpc_app=outside["rpc"],
        http=http,
        recipe=recipe,
    )


def _settings(recipe: Recipe, network: Network, private_key: bytes, secret: bytes) -> Settings:
    settings = Settings(
        private_key=private_key,
        secret=secret,
        facilitator_url=_url("facilitator"),
        explorer_url=_url("explorer"),
        rpc_url=_url("rpc"),
        network=network,
        decisions=recipe.decisions or Decisions(),
    )
    if recipe.sweep_s is not None:
        settings = replace(
            settings, session_sweep_s=recipe.sweep_s, reconcile_interval_s=recipe.sweep_s
        )
    return recipe.hooks.settings(settings)


def _facilitator(recipe: Recipe, clock: Clock, ground: Ground) -> Facilitator:
    return recipe.hooks.facilitator(
        Facilitator(
            chain=ground.chain,
            clock=clock,
            network=ground.network,
            account=ground.facilitator,
            started_s=clock.now(),
            rules=recipe.rules("verification"),
        )
    )


_nobody = web.error(
    404, "No service here", "this is the world of x402sim serve --no-service; see GET /_sim"
)


def _url(name: str) -> str:
    return f"http://{name}.local"
