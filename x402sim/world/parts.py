"""Every part of the world, wired together.

The parts meet over HTTP even in one process: the service's client has a transport that
hands each request to the right ASGI application, so that any of them can be replaced
by somebody else's.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.types import ASGIApp

from x402sim import web
from x402sim.chain.ledger import PLENTY_WEI, Ledger
from x402sim.chain.rpc import rpc_app
from x402sim.clock import Clock
from x402sim.explorer.app import explorer_app
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import Network
from x402sim.rng import Rng
from x402sim.service.app import service_app
from x402sim.service.entitlements import Entitlements
from x402sim.service.issue import Issuer
from x402sim.service.settings import Settings
from x402sim.service.state import Service
from x402sim.service.store import Store
from x402sim.service.upstream import Upstream
from x402sim.spec.decisions import Decisions

ACCOUNTS = 10
PAYER_BALANCE_BASE = 1_000_000_000
"""What each account starts with: 1000.00 of the token."""
JOURNAL_LIMIT = 100_000
_FACILITATOR, _EXPLORER, _RPC = (
    f"http://{name}.local" for name in ("facilitator", "explorer", "rpc")
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One world: its state, and the ASGI applications that are its face."""

    clock: Clock
    journal: Journal
    ledger: Ledger
    service: Service
    accounts: tuple[Wallet, ...]
    service_app: ASGIApp
    facilitator_app: ASGIApp
    explorer_app: ASGIApp
    rpc_app: ASGIApp
    http: httpx.AsyncClient


Link = Callable[[str, ASGIApp], httpx.AsyncBaseTransport]
"""Makes the wire to one part ("facilitator", "explorer", "rpc") from its application."""


def plain_link(_: str, app: ASGIApp) -> httpx.AsyncBaseTransport:
    """Return a wire that loses nothing and takes no time."""
    return httpx.ASGITransport(app, raise_app_exceptions=False)


def build(recipe: Recipe, clock: Clock | None = None, link: Link = plain_link) -> Parts:
    """Build a world. With a file, one that was there before goes on where it stopped.

    Raises `sqlite3.Error` or `ChainError` if the file cannot be used.
    """
    clock = clock or Clock()
    journal = Journal(JOURNAL_LIMIT)
    rng = Rng(recipe.seed if recipe.file is None else None)
    keys = Rng(recipe.seed or 0)
    accounts = tuple(Wallet(keys.secret(f"account {n}")) for n in range(ACCOUNTS))
    owner, facilitator = Wallet(keys.secret("token owner")), Wallet(keys.secret("facilitator"))
    store = Store(recipe.file)
    secret = store.secret("ids", rng.secret("ids"))
    try:
        has_payments = store.counts()["payments"] > 0
        ledger = _ledger(recipe, clock, owner, [*accounts, facilitator], secret, has_payments)
    except BaseException:
        store.close()
        raise
    # A world whose clock was advanced goes on at its newest block's time, not before.
    clock.advance(max(0.0, ledger.machine.state.head.timestamp_s - clock.now()))
    outside = _outside_world(recipe, clock, ledger, facilitator, accounts)
    apps = {url: web.recorded(app, _name(url), journal, clock) for url, app in outside.items()}
    wires = {url: link(_name(url), app) for url, app in apps.items()}
    http = httpx.AsyncClient(mounts=wires, trust_env=False)
    settings = Settings(
        private_key=keys.secret("service"),
        secret=secret,
        facilitator_url=_FACILITATOR,
        explorer_url=_EXPLORER,
        rpc_url=_RPC,
        network=recipe.network,
        decisions=recipe.decisions or Decisions(),
    )
    service = Service(
        settings=settings,
        clock=clock,
        store=store,
        issuer=Issuer(settings, rng.stream("payment ids")),
        entitlements=Entitlements(settings.entitlement_lifetime_s),
        upstream=Upstream(http, settings),
        note=lambda event, **data: journal.record(clock.now_ms(), "service", event, **data),
    )
    return Parts(
        clock=clock,
        journal=journal,
        ledger=ledger,
        service=service,
        accounts=accounts,
        service_app=web.recorded(service_app(service), "service", journal, clock),
        facilitator_app=apps[_FACILITATOR],
        explorer_app=apps[_EXPLORER],
        rpc_app=apps[_RPC],
        http=http,
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
    )


def _outside_world(
    recipe: Recipe,
    clock: Clock,
    ledger: Ledger,
    facilitator: Wallet,
    accounts: tuple[Wallet, ...],
) -> dict[str, ASGIApp]:
    """Return the applications the service depends on, by URL."""
    engine = Facilitator(
        chain=ledger,
        clock=clock,
        network=recipe.network,
        account=facilitator.address_bytes,
        started_s=clock.now(),
    )
    addresses = [wallet.address_bytes for wallet in accounts]
    return {
        _FACILITATOR: facilitator_app(engine),
        _EXPLORER: explorer_app(ledger, clock, lag_s=recipe.explorer_lag_s),
        _RPC: rpc_app(ledger, accounts=addresses, unlocked=recipe.unlocked),
    }


def _name(url: str) -> str:
    return url.removeprefix("http://").removesuffix(".local")
