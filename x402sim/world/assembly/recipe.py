"""The configuration of a world, as data; `parts` builds it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from starlette.types import ASGIApp

from x402sim.chain.ledger.token_rules import TABLES as TOKEN_TABLES
from x402sim.events import OUTSIDE, Part, ServiceName
from x402sim.explorer.settings import ExplorerSettings
from x402sim.facilitator.engine import Facilitator
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.protocol.networks import Network
from x402sim.protocol.rules import FRESHNESS, SETTLEMENT, VERIFICATION, without
from x402sim.service.environment import Environment
from x402sim.service.settings import Settings
from x402sim.service.state import Service
from x402sim.text.arguments import require_kind
from x402sim.text.suggest import unknown
from x402sim.world.chains.accounts import ACCOUNTS, MOST_ACCOUNTS
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.block_times import BlockTimes, FixedBlocks
from x402sim.world.chains.gas_prices import GasPrice, Gwei
from x402sim.world.chains.parse import DEFAULT_CHAIN
from x402sim.world.chains.reorgs import Reorganises
from x402sim.world.transport.cache import SharedCache
from x402sim.world.transport.latency import Latency, constant

Changed = TypeVar("Changed")
TABLES: dict[str, Any] = {
    "settlement": SETTLEMENT,
    "freshness": FRESHNESS,
    "verification": VERIFICATION,
    **TOKEN_TABLES,
}
"""The rule tables from which a rule can be left out."""


def _unchanged(part: Changed) -> Changed:
    return part


def _no_middleware(_: Service, app: ASGIApp) -> ASGIApp:
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """A function for each part of a world that can be changed: it gets the part, and returns one.

    `service` and `app` run at each start of the service, also after a crash, and lose what they
    hold in memory. `app` wraps the ASGI application of the service.
    """

    setup: Callable[[Environment], Environment] = _unchanged
    service: Callable[[Service], Service] = _unchanged
    app: Callable[[Service, ASGIApp], ASGIApp] = _no_middleware
    facilitator: Callable[[Facilitator], Facilitator] = _unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The configuration of a world; raises `ValueError` for an impossible one.

    The same seed gives the same accounts (without a seed, those of seed 0), and in memory the same
    payment ids. With a file, or on a chain that outlives the world, ids must never repeat, so they
    are drawn without the seed.
    """

    network: Network
    also: tuple[Network, ...] = ()
    """Further networks: each has a chain, a token and a JSON-RPC of its own, and the facilitators
    settle there, too. A service is on the one that its settings name, with an explorer of it."""
    seed: int | None = None
    file: Path | None = None
    """The service's SQLite database; None keeps it in memory."""
    services: Mapping[str, Settings] = field(default_factory=lambda: {"service": Settings(phase=0)})
    """The settings of each service, by name. By default one, whose intervals start at once."""
    facilitators: Mapping[str, FacilitatorSettings] = field(
        default_factory=lambda: {"facilitator": FacilitatorSettings()}
    )
    """The settings of each facilitator, by name."""
    explorer: ExplorerSettings = field(default_factory=ExplorerSettings)
    mnemonic: str | None = None
    """The phrase of the funded accounts; None draws them from the seed."""
    account_count: int = ACCOUNTS
    """How many accounts are funded, 1 to 100."""
    unlocked: bool = True
    """Whether the RPC signs for the funded accounts."""
    has_service: bool = True
    """Whether the world has its own service; if not, it is for an external one."""
    chain: ChainBackend = DEFAULT_CHAIN
    block_time_s: float | BlockTimes | None = None
    """Seconds between blocks, the first after as many, or when blocks come; None mines each
    transaction immediately."""
    reorgs: Reorganises | None = None
    """When the chain reorganises by itself; needs a block time."""
    gas_price_gwei: GasPrice | None = None
    """What a unit of gas costs; None is the chain's own price."""
    cache: SharedCache | None = None
    """What stands between the payers and each service."""
    heartbeat_s: float = 60
    """Seconds between empty blocks, so that the chain's time advances."""
    without: tuple[tuple[str, str], ...] = ()
    """Rules to leave out, to test which check notices: (name in `TABLES`, clause)."""
    latency: Mapping[str, Latency] = field(default_factory=dict)
    """The latency of messages, by who receives them: a part, or its kind; by default none."""
    journal: Path | None = None
    """The file of the journal of stories; None keeps it in memory."""
    hooks: Hooks = Hooks()

    def __post_init__(self) -> None:
        _ = self.blocks  # an impossible block time is refused here
        self._require_own_chains()
        price = self.gas_price_gwei
        if price is not None and not callable(price) and not hasattr(price, "prices"):
            require_kind("gas_price_gwei", price, Gwei)
        if self.reorgs is not None and self.blocks is None:
            raise ValueError("reorgs: a chain that reorganises has blocks: give it a block_time_s")
        if not 1 <= self.account_count <= MOST_ACCOUNTS:
            raise ValueError(f"fund 1 to {MOST_ACCOUNTS} accounts, not {self.account_count}")
        for each in self.without:
            if not isinstance(each, tuple) or len(each) != 2:
                raise ValueError(f"without: expected pairs of a table and a clause, got {each!r}")
            table, clause = each
            if table not in TABLES:
                raise ValueError(f"without: {unknown('rule table', table, TABLES)}")
            clauses = dict.fromkeys(rule.clause for rule in TABLES[table])
            if clause not in clauses:
                raise ValueError(f"without: {unknown(f'rule of {table!r}', clause, clauses)}")

    def _require_own_chains(self) -> None:
        """Raise `ValueError` unless each network can have a chain of its own."""
        for what in ("name", "chain_id"):
            seen = [getattr(each, what) for each in (self.network, *self.also)]
            if len(seen) != len(set(seen)):
                raise ValueError(f"networks: each needs a {what} of its own, got {seen}")
        names = [each.name for each in (self.network, *self.also)]
        for name, settings in self.services.items():
            known = names[:1] if name == self.first else names
            if settings.network is not None and settings.network not in known:
                raise ValueError(f"{name}: {unknown('network', settings.network, known)}")
        if self.also and not self.chain.is_virtual:
            raise ValueError(f"networks: {self.chain.name} is one network, not several")

    @property
    def blocks(self) -> BlockTimes | None:
        """When blocks come; None if each transaction is mined immediately."""
        given = self.block_time_s
        return FixedBlocks(given, phase=0) if isinstance(given, int | float) else given

    def latency_to(self, part: Part) -> Latency:
        """Return the latency of messages to a part: its own, or that of its kind, or none."""
        kind = "facilitator" if part in self.facilitators else "service"
        if part in OUTSIDE:
            kind = part
        return self.latency.get(part) or self.latency.get(kind) or constant(0)

    @property
    def first(self) -> ServiceName:
        """The name of the first service."""
        return next(iter(self.services))

    @property
    def facilitator(self) -> str:
        """The name of the first facilitator."""
        return next(iter(self.facilitators))

    @property
    def is_persistent(self) -> bool:
        """Whether the database or the chain outlives the world, so that ids must never repeat."""
        return self.file is not None or not self.chain.is_virtual

    def rules(self, table: str) -> Any:
        """Return one of `TABLES` without the rules this recipe leaves out; raises `KeyError`."""
        rules = TABLES[table]
        for name, clause in self.without:
            if name == table:
                rules = without(rules, clause)
        return rules

    @property
    def without_token_rules(self) -> tuple[tuple[str, str], ...]:
        """The token's rules that are left out: (name of the table, clause)."""
        return tuple(each for each in self.without if each[0] in TOKEN_TABLES)
