"""Every part of the world, wired together.

The parts meet over HTTP even in one process: the service's client has a transport that
hands each request to the right ASGI application, so that any of them can be replaced
by somebody else's.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from x402sim import web
from x402sim.chain.ledger import PLENTY_WEI, Ledger
from x402sim.chain.rpc import rpc_app
from x402sim.chain.token_rules import CANCEL, RECEIVE, TRANSFER, TokenRules
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
from x402sim.service.upstream import Upstream
from x402sim.spec.decisions import Decisions
from x402sim.world.faults import Faults, Victim, faulty
from x402sim.world.link import Asgi
from x402sim.world.process import Process
from x402sim.world.watch import Watch

ACCOUNTS = 10
PAYER_BALANCE_BASE = 1_000_000_000
"""What each account starts with: 1000.00 of the token."""
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
    the same payment ids. With a file, ids must never come twice, and are drawn anew.
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
    sweep_s: int | None = None
    """Seconds between looks at expired sessions and pending payments, if not as ever."""
    without: tuple[tuple[str, str], ...] = ()
    """Rules to leave out, to see what notices: (name in `TABLES`, clause)."""

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
    ledger: Ledger
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
    has_service: bool = True

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

    Raises `sqlite3.Error` or `ChainError` if the file cannot be used.
    """
    clock = clock or Clock()
    clocks = {actor: SkewedClock(clock) for actor in ACTORS}
    journal = Journal(JOURNAL_LIMIT) if journal is None else journal
    rng = Rng(recipe.seed if recipe.file is None else None)
    keys = Rng(recipe.seed or 0)
    accounts = tuple(Wallet(keys.secret(f"account {n}")) for n in range(ACCOUNTS))
    owner, facilitator = Wallet(keys.secret("token owner")), Wallet(keys.secret("facilitator"))
    store = Store(recipe.file)
    secret = store.secret("ids", rng.secret("ids"))
    try:
        has_payments = store.counts()["payments"] > 0
        funded = [*accounts, facilitator]
        ledger = _ledger(recipe, clocks["chain"], owner, funded, secret, has_payments)
    except BaseException:
        store.close()
        raise
    # A world whose clock was advanced goes on at its newest block's time, not before.
    clock.advance(max(0.0, ledger.machine.state.head.timestamp_s - clock.now()))
    ledger.watchers.append(Watch(ledger, journal, clock))
    index = Index(ledger, clocks["explorer"], recipe.explorer_lag_s)
    faults = Faults(rng.stream("faults"))

    def at_its_door(name: Victim, app: ASGIApp) -> ASGIApp:
        return web.recorded(faulty(app, name, faults, clock), name, journal, clock)

    addresses = [wallet.address_bytes for wallet in accounts]
    outside = {
        "facilitator": at_its_door(
            "facilitator",
            facilitator_app(_facilitator(recipe, clocks["facilitator"], ledger, facilitator)),
        ),
        "explorer": at_its_door("explorer", explorer_app(index)),
        "rpc": at_its_door("rpc", rpc_app(ledger, accounts=addresses, unlocked=recipe.unlocked)),
    }
    http = httpx.AsyncClient(
        mounts={_url(name): link(name, app) for name, app in outside.items()},
        trust_env=False,
        timeout=None,  # noqa: S113 - the service has timeouts of its own
    )
    settings = _settings(recipe, keys.secret("service"), secret)
    process = Process(
        Service(
            settings=settings,
            clock=clocks["service"],
            store=store,
            issuer=Issuer(settings, rng.stream("payment ids")),
            entitlements=Entitlements(settings.entitlement_lifetime_s),
            upstream=Upstream(http, settings),
            note=lambda event, **data: journal.record(clock.now_ms(), "service", event, **data),
            settlement_rules=recipe.rules("settlement"),
            freshness_rules=recipe.rules("freshness"),
        )
    )
    faults.on_crash = process.crash
    return Parts(
        clock=clock,
        journal=journal,
        ledger=ledger,
        process=process,
        clocks=clocks,
        faults=faults,
        index=index,
        accounts=accounts,
        service_app=at_its_door("service", process if recipe.has_service else _nobody),
        facilitator_app=outside["facilitator"],
        explorer_app=outside["explorer"],
        rpc_app=outside["rpc"],
        http=http,
        has_service=recipe.has_service,
    )


def _ledger(
    recipe: Recipe,
    clock: Clock,
    owner: Wallet,
    funded: list[Wallet],
    secret: bytes,
    has_history: bool,
) -> Ledger:
    """Return the chain: tokens for the accounts, gas for them and the facilitator (the last)."""
    return Ledger(
        recipe.network,
        clock,
        owner=owner.address_bytes,
        balances={wallet.address_bytes: PAYER_BALANCE_BASE for wallet in funded[:-1]},
        native={wallet.address_bytes: PLENTY_WEI for wallet in funded},
        has_history=has_history,
        origin=hashlib.sha256(b"origin" + secret).digest(),
        file=recipe.file.with_name(recipe.file.name + ".chain") if recipe.file else None,
        rules=TokenRules(*(recipe.rules(name) for name in ("transfer", "receive", "cancel"))),
    )


def _settings(recipe: Recipe, private_key: bytes, secret: bytes) -> Settings:
    settings = Settings(
        private_key=private_key,
        secret=secret,
        facilitator_url=_url("facilitator"),
        explorer_url=_url("explorer"),
        rpc_url=_url("rpc"),
        network=recipe.network,
        decisions=recipe.decisions or Decisions(),
    )
    if recipe.sweep_s is None:
        return settings
    return replace(settings, session_sweep_s=recipe.sweep_s, reconcile_interval_s=recipe.sweep_s)


def _facilitator(recipe: Recipe, clock: Clock, ledger: Ledger, wallet: Wallet) -> Facilitator:
    return Facilitator(
        chain=ledger,
        clock=clock,
        network=recipe.network,
        account=wallet.address_bytes,
        started_s=clock.now(),
        rules=recipe.rules("verification"),
    )


_nobody = web.error(
    404, "No service here", "this is the world of x402sim serve --no-service; see GET /_sim"
)


def _url(name: str) -> str:
    return f"http://{name}.local"
