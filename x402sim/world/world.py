"""The options of a world: one frozen object for scenarios, servers and tests."""

from __future__ import annotations  # so that help(World) shows short names of types

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from starlette.types import ASGIApp

from x402sim.chain.ledger.frame import TABLES as TOKEN_TABLES
from x402sim.durations import Duration, DurationSpec, constant, duration_of
from x402sim.events import MOST_SERVICES, OUTSIDE, Part, ServiceName
from x402sim.explorer.index import ExplorerSettings
from x402sim.facilitator.engine import Facilitator, FacilitatorSettings
from x402sim.http.bounded import Limits
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import TESTNET, Network, networks_of
from x402sim.protocol.phrase import KNOWN
from x402sim.protocol.rules import FRESHNESS, SETTLEMENT, VERIFICATION, without
from x402sim.service.goods import Good
from x402sim.service.settings import Settings
from x402sim.text.keys import keyless
from x402sim.text.words import as_given, changed, near_url, unknown
from x402sim.world import chains
from x402sim.world.cache import SharedCache

if TYPE_CHECKING:
    from x402sim.report.run import Run
    from x402sim.service.environment import Environment
    from x402sim.service.state import Service
    from x402sim.world.scenario import Scenario, ScenarioFunction

MAX_PORT = 65_535
BUDGET = "3.00"
"""What the user's own key signs for at most at a deployment, in tokens, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class InProcess:
    """Play in this process, in virtual time where the chain allows it."""

    name = "in-process"


@dataclass(frozen=True, slots=True)
class Tcp:
    """Play over TCP on this machine, in virtual time."""

    name = "tcp"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The service at `url`; raises `ValueError` for an invalid URL.

    `payer_key` is the private key of a funded payer, by default that in X402SIM_PAYER_KEY;
    the key pays where no control API can fund payers: by this machine's clock, on the world's
    `network` (if None, on a test network of ours that the service names), and at most `budget`
    tokens for all stories played with this object. On a main network the key pays only with
    `allow_mainnet`.
    """

    url: str
    payer_key: str | None = field(default=None, repr=False)
    budget: str = field(default=BUDGET, kw_only=True)
    allow_mainnet: bool = field(default=False, kw_only=True)
    signed: list[Decimal] = field(default_factory=list, init=False, repr=False, compare=False)
    """The signed amounts of the payer, in tokens: one for each signature."""
    limits: Limits = field(default=Limits(deadline_s=120.0), repr=False)
    """The limits of the answers of service and facilitator; payers give up after 90 s."""

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):  # httpx would show a key given here
            raise ValueError(f"url: expected a text, got {as_given(self.url)}")
        to_base(self.budget, 36, name="budget")  # no network has more decimals
        wanted = f"http://HOST:PORT, with a port up to {MAX_PORT}"
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as wrong:
            why = keyless(str(wrong))
            raise ValueError(f"a URL is {wanted}, not {as_given(self.url)}: {why}") from None
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > MAX_PORT:
            raise ValueError(f"a URL is {wanted}, not {as_given(self.url)}")

    @property
    def name(self) -> str:
        """The URL."""
        return self.url


Where = InProcess | Tcp | Deployment


def parse_where(text: str) -> Where:
    """Return what `text` names: "in-process", "tcp", or the URL of a service.

    Raises `ValueError` that lists the possible names and suggests the nearest.
    """
    if text.startswith(("http://", "https://")):
        return Deployment(text)
    known: dict[str, Where] = {"in-process": InProcess(), "tcp": Tcp()}
    if text not in known:
        raise ValueError(unknown("stage", text, [*known, "http://HOST:PORT"]) + near_url(text))
    return known[text]


Part_ = TypeVar("Part_")
PartSettings = TypeVar("PartSettings", Settings, FacilitatorSettings)
TABLES: dict[str, Any] = {
    "settlement": SETTLEMENT,
    "freshness": FRESHNESS,
    "verification": VERIFICATION,
    **TOKEN_TABLES,
}
"""The rule tables from which a rule can be left out."""
_SERVICE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.-]{0,39}")
_FACILITATOR_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_TAKEN = {*OUTSIDE, "chain", "world", "visitor"}
"""The names of other actors, which no service may have."""


def _unchanged(part: Part_) -> Part_:
    return part


def _no_middleware(_: Service, app: ASGIApp) -> ASGIApp:
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Functions that replace parts of a world: each gets a part, and returns the one to use.

    `service` and `app` are called at each start of the service, also after a crash, which loses
    everything in memory. `app` wraps the ASGI application of the service.
    """

    setup: Callable[[Environment], Environment] = _unchanged
    service: Callable[[Service], Service] = _unchanged
    app: Callable[[Service, ASGIApp], ASGIApp] = _no_middleware
    facilitator: Callable[[Facilitator], Facilitator] = _unchanged


@dataclass(frozen=True, kw_only=True, repr=False)
class World:
    """The whole world of a pay-per-request API: service, facilitator, explorer, chain, payers.

    A `World` is a description, and never changes. `play` builds the world, lets a scenario act in
    it (as a `LiveWorld`) and returns the `Run`; `LocalServer(world)` serves it. Every option has a
    default; the same options give the same journal, byte for byte, wherever time is virtual.

    seed
        Seed of all randomness: keys, ids, latencies. Default 0 for a scenario; a server draws its
        secrets anew, and has the accounts that users of anvil and Hardhat know.
    on
        Stage: "in-process" (virtual time, the default), "tcp" (the same through a real
        socket), the URL of a running service (real time), or `Deployment(url, payer_key)`. A server
        is a place of its own, and takes no other.
    chain
        Chain backend: "ledger" (in memory, with Circle's token; the default), "anvil" (a real EVM
        that is started and stopped; extra `evm`), the URL of a JSON-RPC node (real time; keys in
        X402SIM_CHAIN_KEYS), `Anvil(program)`, or `Node(url, token=..., deploy=...)`.
    latency
        Duration in seconds of one message in one direction, by the receiver of the request:
        "service", "facilitator", "explorer", "rpc", or the name of one service or facilitator.
        A number; (median, sigma) of a lognormal; `Exponential(mean_s=0.1)`; a list of measured
        seconds; a frozen distribution of scipy.stats, or anything with its `ppf` or `rvs`; or a
        function of a random stream.
        Default: none. A server takes none.
    block_time_s
        Seconds between blocks, 0.01 to 86400; by default each transaction is mined immediately.
        The first block comes at a time drawn from the seed; on a server, after as many seconds.
        Objects: `FixedBlocks(5, phase=0)`, `PoissonBlocks(5)`, or one of your own.
    reorgs
        How the chain reorganises by itself: `Reorgs(0.1, deeper=0.5)`, before each block with 10 %;
        needs block_time_s. Default None: only when a scenario says so (`world.reorg`).
    gas_price_gwei
        What a transaction that is sent now pays for a unit of gas, in gwei (10^-9 native coins):
        a number, a function of the seconds since the world began, or an object whose
        `prices(stream)` returns such a function, drawn from the seed. Default: the network's base
        fee, 5000 on Cronos, 0.001 on base-sepolia.
    cache
        `SharedCache()` between the payers and each service, such as a CDN, which may answer GET
        requests with goods paid by somebody else. Default: none.
    coin_price
        How many tokens a native coin costs, which `run.costs` needs to give fees in tokens.
    explorer
        `ExplorerSettings` of the explorer, such as `ExplorerSettings(lag_s=20)`.
    service
        `Settings` of the service: its price, intervals, limits, policies and decisions. Or of
        several services by name, 1 to 20, each with a merchant, a server wallet and a database of
        its own. Payers use the first unless they are sent to another (`payer.at(name)`).
    facilitator
        `FacilitatorSettings` of the facilitator. Or of several by name, each with an account of its
        own: `Settings(facilitator=name)` chooses one, and services use the first by default.
    network
        Its name, such as "base-sepolia", or a `Network` of your own; default "cronos-testnet". Or
        several: services are on the first, unless `Settings(network=name)` says another. With a URL
        as stage, the control API of the service reports the network; `play` raises `ValueError` if
        you name another. Without a control API, the network given here counts.
    without
        Rules to leave out, to test which check notices: ((table, clause), ...), for example
        (("verification", "5/signature-proves"),). Tables: "settlement" and "freshness" (service),
        "verification" (facilitator), "transfer", "receive" and "cancel" (token).
    invariants
        Whether to check after every event that money is conserved, no session spends more than
        its deposit, and access is granted for paid money only; default True.
    journal
        File for the growing journal, as NDJSON, such as "run.ndjson"; frames are read from
        there. For long runs: memory grows with the open payments, not with the events.
        An existing file is overwritten. Beside it, "run.ndjson.made.json" has the versions of
        x402sim and Python, and your scenario's file. Default: in memory. A server takes none.
    file
        SQLite database of the first service, with the chain in FILE.chain; both are continued if
        they exist. Payment ids are then drawn without the seed, as they must never repeat.
        Default: in memory.
    mnemonic
        Phrase of the funded accounts, on m/44'/60'/0'/0/i. Default: accounts drawn from the seed,
        or without a seed the accounts of anvil and Hardhat, but not on an existing node.
    accounts
        How many accounts are funded, 1 to 100; default 10.
    has_service
        Whether the world has a service of its own; default True. If not, it is for yours.
    unlocked
        Whether the chain's JSON-RPC signs for the funded accounts; default True.
    heartbeat_s
        Seconds between empty blocks where no block time is given, 0.01 to 86400; default 60.
    calls_at_block_time
        Whether `eth_call` and `eth_estimateGas` at "latest" have the timestamp of the newest block,
        as on a node whose chain is idle. Default False: they have the time of now, as if a block
        had just come; those at "pending" always do.
    hooks
        `Hooks`, functions that change parts as they are built; for tests of this kit.

    The objects are in `x402sim.backends`. Raises `ValueError` for an invalid option.

    >>> from x402sim import LiveWorld, World
    >>> async def story(world: LiveWorld) -> None:
    ...     alice = await world.payer("alice", balance="1.00")
    ...     world.expect(await alice.buy(), 200, clause="4.1/receipt")
    >>> World(seed=1, latency={"facilitator": 0.2}, block_time_s=5).play(story).outcome
    'passed'
    """

    seed: int | None = None
    on: InProcess | Tcp | Deployment | str = "in-process"
    chain: chains.ChainBackend | str = "ledger"
    latency: Mapping[str, DurationSpec] | None = None
    block_time_s: float | chains.BlockTimes | None = None
    reorgs: chains.Reorganises | None = None
    gas_price_gwei: chains.GasPrice | None = None
    cache: SharedCache | None = None
    coin_price: float | None = None
    service: Settings | Mapping[str, Settings] | None = None
    facilitator: FacilitatorSettings | Mapping[str, FacilitatorSettings] | None = None
    explorer: ExplorerSettings | None = None
    network: Network | str | Sequence[Network | str] | None = None
    without: tuple[tuple[str, str], ...] = ()
    invariants: bool = True
    journal: str | Path | None = None
    file: str | Path | None = None
    mnemonic: str | None = None
    accounts: int = chains.ACCOUNTS
    has_service: bool = True
    unlocked: bool = True
    heartbeat_s: float = 60
    calls_at_block_time: bool = False
    hooks: Hooks = Hooks()

    def __post_init__(self) -> None:
        where, chain = self.where, self.backend
        if isinstance(where, Tcp) and not chain.is_virtual:
            raise ValueError(f"tcp needs virtual time, which {chain.name} lacks; use in-process")
        if isinstance(where, Deployment):
            if chain != chains.DEFAULT_CHAIN:
                wrong = f"chain {chain.name} cannot be combined with {where.name}"
                raise ValueError(f"{wrong}, which has its own")
            for option in _OF_OUR_OWN:
                if getattr(self, option) is not None:
                    raise ValueError(
                        f"{option}: {where.name} has its own, which cannot be set here"
                    )
        _ = self.services, self.facilitators, self.latencies, self.journal_file
        if self.blocks is None and self.reorgs is not None:
            raise ValueError("reorgs: a chain that reorganises has blocks: give it a block_time_s")
        for what in ("name", "chain_id"):
            ids = list(map(attrgetter(what), self.networks))
            if len(ids) != len(set(ids)):
                raise ValueError(f"networks: each needs a {what} of its own, got {ids}")
        if len({each.decimals for each in self.networks}) > 1:
            raise ValueError(
                "networks: tokens need the same decimals, as amounts of a run have one unit"
            )
        names = list(map(attrgetter("name"), self.networks))
        for name, settings in self.services.items():
            known = names[:1] if name == self.first else names
            if settings.network is not None and settings.network not in known:
                raise ValueError(f"{name}: {unknown('network', settings.network, known)}")
        if len(names) > 1 and not chain.is_virtual:
            raise ValueError(f"networks: {chain.name} is one network, not several")
        if not chains.SHORTEST_S <= self.heartbeat_s <= chains.LONGEST_S:
            raise ValueError(_interval("heartbeat_s", self.heartbeat_s))
        if not isinstance(self.mnemonic, str | None):  # or an error would show the words
            raise ValueError(f"mnemonic: expected a text or None, got {as_given(self.mnemonic)}")
        if not 1 <= self.accounts <= chains.MOST_ACCOUNTS:
            raise ValueError(
                f"fund 1 to {chains.MOST_ACCOUNTS} accounts, not {as_given(self.accounts)}"
            )
        for table, clause in self.without:
            if table not in TABLES:
                raise ValueError(f"without: {unknown('rule table', table, TABLES)}")
            clauses = dict.fromkeys(rule.clause for rule in TABLES[table])
            if clause not in clauses:
                raise ValueError(f"without: {unknown(f'rule of {table!r}', clause, clauses)}")

    def __dir__(self) -> list[str]:
        """Name the options, and `play`: what else is here is read by the parts of a world."""
        return [*(each.name for each in fields(self)), "play"]

    def __repr__(self) -> str:
        return changed(replace(self, mnemonic=None))  # a phrase is a secret

    def play(self, scenario: Scenario | ScenarioFunction | str, *, progress: bool = True) -> Run:
        """Play a scenario, the shipped scenario of this name, or any `async def name(world)`.

        A text is a name, a file "FILE.py", or a function in a file, "FILE.py:function". Returns
        the finished run, which holds the scenario's failures and errors: `raise_for_failure` raises
        them. Raises `ValueError` for an unknown name or a network other than the deployment's,
        `ConnectionError` for a URL without an answer, and `ChainError` if no chain opens.

        In a notebook, where an event loop runs already, it is called in the same way. A run of more
        than two seconds shows how far it is, on stderr or in the cell, unless `progress` is False.
        Ctrl-C ends the scenario; a journal in a file keeps what happened until then.
        """
        # Loaded here, and by name: stories are built on worlds, and worlds know of no story. An
        # import at the top, or any import that the layers see, would close a circle of 13 files.
        story = import_module("x402sim.story.play")
        run: Run = story.play(self, scenario, progress=progress)
        return run

    # --- what the options say --------------------------------------------------------------

    @cached_property
    def where(self) -> Where:
        """Where its scenarios are played."""
        return parse_where(self.on) if isinstance(self.on, str) else self.on

    @cached_property
    def backend(self) -> chains.ChainBackend:
        """The chain backend."""
        return chains.parse_chain(self.chain) if isinstance(self.chain, str) else self.chain

    @cached_property
    def networks(self) -> tuple[Network, ...]:
        """The networks: each has a chain, a token and a JSON-RPC of its own."""
        return tuple(networks_of(TESTNET if self.network is None else self.network))

    @cached_property
    def services(self) -> dict[ServiceName, Settings]:
        """The settings of each service by name; by default one service, in phase 0."""
        services = _by_name("service", self.service, Settings(phase=0))
        for name in services:
            if not _SERVICE_NAME.fullmatch(name) or name in _TAKEN:
                raise ValueError(
                    f"service: {as_given(name)} is no name for a service: expected up to 40 "
                    "letters, digits, spaces, '_', '.' and '-', and none of "
                    f"{', '.join(sorted(_TAKEN))}"
                )
        return services

    @cached_property
    def facilitators(self) -> dict[str, FacilitatorSettings]:
        """The settings of each facilitator by name."""
        facilitators = _by_name("facilitator", self.facilitator, FacilitatorSettings())
        for name in facilitators:
            is_free = name == "facilitator" or name not in {*_TAKEN, *self.services}
            if not _FACILITATOR_NAME.fullmatch(name) or not is_free:
                raise ValueError(
                    f"facilitator: {as_given(name)} is no name for a facilitator: expected up to "
                    "40 small letters, digits and '-', and not the name of another part"
                )
        for name, settings in self.services.items():
            if settings.facilitator is not None and settings.facilitator not in facilitators:
                hint = unknown("facilitator", settings.facilitator, facilitators)
                raise ValueError(f"the settings of {name!r}: {hint}")
        return facilitators

    @property
    def first(self) -> ServiceName:
        """The name of the first service."""
        return next(iter(self.services))

    @property
    def first_facilitator(self) -> str:
        """The name of the first facilitator."""
        return next(iter(self.facilitators))

    @property
    def explorer_settings(self) -> ExplorerSettings:
        """The settings of the explorers."""
        return self.explorer or ExplorerSettings()

    @cached_property
    def blocks(self) -> chains.BlockTimes | None:
        """When blocks come; None if each transaction is mined immediately."""
        given = self.block_time_s
        if given is None or not isinstance(given, int | float):
            return given
        if not chains.SHORTEST_S <= given <= chains.LONGEST_S:
            raise ValueError(_interval("block_time_s", given))
        return chains.FixedBlocks(given, phase=0)

    @cached_property
    def latencies(self) -> dict[Part, Duration]:
        """The latencies that are given, by the receiver of the request."""
        parts = dict.fromkeys(("service", *OUTSIDE, *self.services, *self.facilitators))
        found: dict[Part, Duration] = {}
        for to, spec in (self.latency or {}).items():
            if to not in parts:
                raise ValueError(f"latency: {unknown('part', to, parts)}")
            try:
                found[to] = duration_of(spec)
            except ValueError as wrong:
                raise ValueError(f"latency of {as_given(to)}: {wrong}") from None
        return found

    def latency_to(self, part: Part) -> Duration:
        """Return the latency of messages to a part: by name, else by kind, else none."""
        kind = "facilitator" if part in self.facilitators else "service"
        if part in OUTSIDE:
            kind = part
        return self.latencies.get(part) or self.latencies.get(kind) or constant(0)

    @cached_property
    def database(self) -> Path | None:
        """The file of the database; None keeps it in memory."""
        return None if self.file is None else Path(self.file)

    @cached_property
    def journal_file(self) -> Path | None:
        """The file of the journal; raises `ValueError` if its suffix is another format's."""
        file = None if self.journal is None else Path(self.journal)
        if file is not None and file.suffix in (".parquet", ".csv", ".json"):
            raise ValueError(
                f"journal: a run writes NDJSON, not {file.suffix[1:]}: name it {file.stem}.ndjson; "
                "`Run.save` writes its frames as Parquet and CSV"
            )
        return file

    @property
    def phrase(self) -> str | None:
        """The phrase of the funded accounts; None if they are drawn from the seed.

        On an existing node, anybody could take what the known accounts receive.
        """
        is_known = self.mnemonic is None and self.seed is None and self.backend.is_virtual
        return KNOWN if is_known else self.mnemonic

    @property
    def is_persistent(self) -> bool:
        """Whether the database or the chain outlives the world, so that ids must never repeat."""
        return self.file is not None or not self.backend.is_virtual

    def rules(self, table: str) -> Any:
        """Return one of `TABLES` without the rules in `without`; raises `KeyError`."""
        rules = TABLES[table]
        for name, clause in self.without:
            if name == table:
                rules = without(rules, clause)
        return rules


_OF_OUR_OWN = (
    "service",
    "facilitator",
    "explorer",
    "reorgs",
    "gas_price_gwei",
    "cache",
    "file",
    "mnemonic",
)
"""The options of a world of our own, in the order of refusals at a URL."""


def with_goods(world: World, goods: Iterable[Good]) -> World:
    """Return a world whose only service sells these goods; raises `ValueError`."""
    if not world.has_service or len(world.services) > 1:
        raise ValueError("goods: a world with one service is wanted; else give Settings(sells=...)")
    (settings,) = world.services.values()
    from x402sim.service.sources import selling  # few worlds sell goods of a user

    return replace(world, service=selling(settings, goods))


def _interval(option: str, given: float) -> str:
    bounds = f"{chains.SHORTEST_S:g} to {chains.LONGEST_S:g}"
    return f"{option}: expected a number from {bounds}, got {as_given(given)}"


def _by_name(
    option: str, given: PartSettings | Mapping[str, PartSettings] | None, default: PartSettings
) -> dict[str, PartSettings]:
    """Return the settings of a kind of parts by name; of a single part, by the option's name."""
    if not isinstance(given, Mapping):
        return {option: default if given is None else given}
    if not 1 <= len(given) <= MOST_SERVICES:
        raise ValueError(f"{option}: expected 1 to {MOST_SERVICES} by name, got {len(given)}")
    return dict(given)
