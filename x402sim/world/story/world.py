"""The configuration of a world in which scenarios are played."""

from __future__ import annotations  # so that help(World) shows short names of types

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from x402sim.clock import stopwatch
from x402sim.events import OUTSIDE
from x402sim.explorer.settings import ExplorerSettings
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.protocol.networks import TESTNET, Network, networks_of
from x402sim.report.progress import telling
from x402sim.report.run import Run, finished, is_swept
from x402sim.service.settings import Settings
from x402sim.text.arguments import AboveZero, explained
from x402sim.text.printable import described
from x402sim.text.suggest import unknown
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.block_times import BlockTimes, FixedBlocks
from x402sim.world.chains.gas_prices import GasPrice
from x402sim.world.chains.parse import DEFAULT_CHAIN, parse_chain
from x402sim.world.chains.reorgs import Reorganises
from x402sim.world.loop import run_anywhere, run_virtual
from x402sim.world.stages.deployment import left_ahead
from x402sim.world.stages.parse import parse_stage
from x402sim.world.stages.stage import Stage
from x402sim.world.story import serialize
from x402sim.world.story.configure import (
    facilitators_of,
    require_own_world,
    services_of,
)
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.play import how_far, play_on
from x402sim.world.story.scenario import Scenario, Story, find, scenario_of
from x402sim.world.transport.cache import SharedCache
from x402sim.world.transport.latency import LatencySpec, latency_of

log = logging.getLogger("x402sim")
_is_story: ContextVar[bool] = ContextVar("a story is played", default=False)


class OtherNetwork(ValueError):
    """The network that was chosen is not the deployment's."""


@explained
class World:
    """The whole world of a pay-per-request API: service, facilitator, explorer, chain, payers.

    A `World` is a description. `play` builds the world, lets a scenario act in it (as a
    `LiveWorld`) and returns the `Run`. Every option has a default; the same options give
    the same journal, byte for byte, wherever time is virtual.

    seed
        Seed of all randomness: keys, ids, latencies; default 0.
    on
        Stage: "in-process" (virtual time, the default), "tcp" (the same through a real
        socket), the URL of a running service (real time), or `Deployment(url, payer_key)`.
    chain
        Chain backend: "ledger" (in memory, with Circle's token; the default), "anvil" (a real EVM
        that is started and stopped; extra `evm`), the URL of a JSON-RPC node (real time; keys in
        X402SIM_CHAIN_KEYS), `Anvil(program)`, or `Node(url, token=..., deploy=...)`.
    latency
        Latency in seconds of one message in one direction, by who receives the request:
        "service", "facilitator", "explorer", "rpc", or the name of one service or facilitator.
        A number; (median, sigma) of a lognormal; a list of measured seconds; a frozen distribution
        of scipy.stats, or anything with its `ppf` or `rvs`; or a function of a random stream.
        Default: none.
    block_time_s
        Seconds between blocks, 0.01 to 86400; by default each transaction is mined immediately.
        The first block comes at a time drawn from the seed. Objects: `FixedBlocks(5, phase=0)`,
        `JitteredBlocks(5, 0.2)`, `PoissonBlocks(5)`.
    reorgs
        How the chain reorganises by itself: `Reorgs(0.1, deeper=0.5)`, before each block with 10 %;
        needs block_time_s. Default None: only when a scenario says so (`world.reorg`).
    gas_price_gwei
        What a transaction that is sent now pays for a unit of gas, in gwei (10^-9 native coins):
        a number, a function of the seconds since the world began, or `GasWalk(gwei, sigma)`, which
        is drawn from the seed. Default 5000, Cronos's minimum.
    coin_price
        How many tokens a native coin costs, which `run.costs` needs to give fees in tokens.
    cache
        `SharedCache()` between the payers and each service, such as a CDN, which may answer GET
        requests with what somebody else has paid for. Default: none.
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
        several: services are on the first, but for those with `Settings(network=name)`. With a URL
        as stage, the network is the one that the control API of the service reports; `play` raises
        `ValueError` if you name another. Without a control API, it is the one given here.
    without
        Rules to leave out, to test which check notices: ((table, clause), ...), for example
        (("verification", "5/signature-proves"),). Tables: "settlement" and "freshness" (service),
        "verification" (facilitator), "transfer", "receive" and "cancel" (token).
    invariants
        Whether to check after every event that money is conserved, no session spends more than
        its deposit, and access is granted for paid money only; default True.
    journal
        File that the journal is written to as it grows, as NDJSON, such as "run.ndjson"; frames are
        read from there. For long runs: memory grows with the open payments, not with the events.
        An existing file is overwritten. Beside it, "run.ndjson.made.json" has the versions of
        x402sim and Python. Default: in memory.

    The objects are in `x402sim.backends`. Raises `ValueError` for an invalid option.

    >>> from x402sim import LiveWorld, World
    >>> async def story(world: LiveWorld) -> None:
    ...     alice = await world.payer("alice", balance="1.00")
    ...     world.expect(await alice.buy(), 200, clause="4.1/receipt")
    >>> World(seed=1, latency={"facilitator": 0.2}, block_time_s=5).play(story).outcome
    'passed'
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        on: Stage | str = "in-process",
        chain: ChainBackend | str = "ledger",
        latency: Mapping[str, LatencySpec] | None = None,
        block_time_s: float | BlockTimes | None = None,
        reorgs: Reorganises | None = None,
        gas_price_gwei: GasPrice | None = None,
        coin_price: AboveZero | None = None,
        cache: SharedCache | None = None,
        service: Settings | Mapping[str, Settings] | None = None,
        facilitator: FacilitatorSettings | Mapping[str, FacilitatorSettings] | None = None,
        explorer: ExplorerSettings | None = None,
        network: Network | str | Sequence[Network | str] | None = None,
        without: tuple[tuple[str, str], ...] = (),
        invariants: bool = True,
        journal: str | Path | None = None,
    ) -> None:
        self.seed, self.on = seed, parse_stage(on) if isinstance(on, str) else on
        self.chain = parse_chain(chain) if isinstance(chain, str) else chain
        configured = {"service": service, "facilitator": facilitator, "explorer": explorer}
        around: dict[str, Any] = {"reorgs": reorgs, "gas_price_gwei": gas_price_gwei}
        around["cache"] = cache
        require_own_world(self.on, self.chain, configured | around)
        first, *also = networks_of(TESTNET if network is None else network)
        services = services_of(service)
        facilitators = facilitators_of(facilitator, services)
        self._recipe = Recipe(
            network=first,
            also=tuple(also),
            seed=seed,
            services=services,
            facilitators=facilitators,
            explorer=explorer or ExplorerSettings(),
            chain=self.chain,
            block_time_s=_blocks(block_time_s),
            without=without,
            journal=_ndjson_file(journal),
            latency=_latencies(latency, ("service", *OUTSIDE, *services, *facilitators)),
            **around,
        )
        options = serialize.options(
            latency=dict(latency or {}),
            block_time_s=block_time_s,
            **around,
            coin_price=coin_price,
            **configured,
            network=[first, *also] if also else None if first == TESTNET else first,
            without=without,
        ) | ({} if invariants else {"invariants": "False"})
        self._network = None if network is None else first
        chain_name = None if self.chain == DEFAULT_CHAIN else self.chain.name
        self._place = self.on.name if chain_name is None else f"{self.on.name} on {chain_name}"
        self._told = {
            "seed": seed,
            "chain": chain_name,
            "options": options,
            "services": serialize.names(service),
            "facilitators": serialize.names(facilitator),
        }
        self._has_invariants = invariants

    def play(self, scenario: Scenario | Story | str, *, progress: bool = True) -> Run:
        """Play a scenario, the shipped scenario of this name, or any `async def name(world)`.

        A text is a name, a file "FILE.py", or a function in a file, "FILE.py:function". Returns
        the finished run, which holds the scenario's failures and errors: `raise_for_failure` raises
        them. Raises `ValueError` for an unknown name or a network that is not the deployment's,
        `ConnectionError` for a URL that does not answer, and `ChainError` for a chain that cannot
        be opened.

        In a notebook, where an event loop runs already, it is called in the same way. A run of more
        than two seconds shows how far it is, on stderr or in the cell, unless `progress` is False.
        Ctrl-C ends the scenario; the journal, if it is in a file, says where.
        """
        found = find(scenario) if isinstance(scenario, str) else scenario_of(scenario)
        is_told = progress and not is_swept()
        is_virtual = self.on.builds_world and self.chain.is_virtual
        play = run_virtual if is_virtual else run_anywhere
        try:
            run = finished(play(lambda: self._play(found, is_told)))
        except KeyboardInterrupt as interrupt:
            file = self._recipe.journal
            kept = f"Run.load({str(file)!r}) has" if file else "World(journal='run.ndjson') keeps"
            interrupt.add_note(f"{kept} what happened until then")
            raise
        if run.ahead_s:
            log.warning(left_ahead(run.on, run.ahead_s))
        return run

    async def _play(self, scenario: Scenario, is_told: bool) -> Run:
        elapsed = stopwatch()
        with _warnings_silenced():
            async with self.on.open(self._recipe) as stage:
                self._require_network(stage.network)
                live = await LiveWorld.on(stage)
                told = telling(scenario.name, how_far(live)) if is_told else nullcontext()
                try:
                    with told:
                        await play_on(
                            live,
                            scenario,
                            self._place,
                            self._told,
                            has_invariants=self._has_invariants,
                        )
                    journal, ahead_s = stage.links.journal, stage.ahead_s()
                    return Run(journal=journal, on=self.on.name, real_s=elapsed(), ahead_s=ahead_s)
                finally:
                    await stage.close_clients()

    def _require_network(self, theirs: Network) -> None:
        """Raise `ValueError` if another network was chosen than that of the world on a stage."""
        ours = self._network
        if ours is not None and ours.name != theirs.name:
            raise OtherNetwork(
                f"{self.on.name} is on {theirs.name}, not on {ours.name}; leave the network out"
            )


def _ndjson_file(journal: str | Path | None) -> Path | None:
    """Return the file; raises `ValueError` if its name says that it holds something else."""
    file = None if journal is None else Path(journal)
    if file is not None and file.suffix in (".parquet", ".csv", ".json"):
        raise ValueError(
            f"journal: a run writes NDJSON, not {file.suffix[1:]}: name it {file.stem}.ndjson; "
            "`Run.save` writes its frames as Parquet and CSV"
        )
    return file


def _blocks(given: float | BlockTimes | None) -> BlockTimes | None:
    """Return when blocks come: of a number of seconds, at a phase drawn from the seed."""
    if given is None or hasattr(given, "intervals"):
        return given
    return FixedBlocks(given)


def _latencies(given: object, receivers: Sequence[str]) -> dict[str, Any]:
    parts = dict.fromkeys(receivers)
    if not isinstance(given, Mapping | None):
        raise ValueError(
            'latency: expected seconds by part, such as {"service": 0.1}, got '
            f"{described(given)}. Possible parts: {', '.join(parts)}"
        )
    found: dict[str, Any] = {}
    for to, spec in (given or {}).items():
        if to not in parts:
            raise ValueError(f"latency: {unknown('part', to, parts)}")
        try:
            found[to] = latency_of(spec)
        except ValueError as wrong:
            raise ValueError(f"latency of {to!r}: {wrong}") from None
    return found


@contextmanager
def _warnings_silenced() -> Iterator[None]:
    """Hide the service's warnings in this context: stories break things on purpose.

    What failed is in the journal. Errors are logged as ever, and so are warnings if the logger
    "x402sim" has a level of its own.
    """
    log.addFilter(_is_shown)  # once: a second time it is there already
    token = _is_story.set(True)
    try:
        yield
    finally:
        _is_story.reset(token)


def _is_shown(record: logging.LogRecord) -> bool:
    asked_for = log.level != logging.NOTSET
    return asked_for or record.levelno >= logging.ERROR or not _is_story.get()
