"""Plays a story in a world: records its beginning, its errors and its outcome."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from inspect import isawaitable, unwrap

from x402sim import events
from x402sim.clock import stopwatch
from x402sim.protocol.networks import Network
from x402sim.report.progress import telling
from x402sim.report.run import Run, finished, is_swept
from x402sim.report.summary import checks_of
from x402sim.text import tracebacks
from x402sim.text.printable import described
from x402sim.text.times import duration
from x402sim.world.chains.parse import DEFAULT_CHAIN
from x402sim.world.loop import run_anywhere, run_virtual
from x402sim.world.stages.deployment import left_ahead
from x402sim.world.stages.open import open_stage
from x402sim.world.story import serialize
from x402sim.world.story.forgotten import ForgottenAwait, forgotten_awaits, named
from x402sim.world.story.idle_timeout import IdleTimeout
from x402sim.world.story.invariants import Invariants
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.scenario import (
    Scenario,
    ScenarioFunction,
    file_of,
    find,
    scenario_of,
    source_of,
)
from x402sim.world.where import Deployment
from x402sim.world.world import World

log = logging.getLogger("x402sim")
_is_story: ContextVar[bool] = ContextVar("a story is played", default=False)


class OtherNetwork(ValueError):
    """The network that was chosen is not the deployment's."""


def play(world: World, scenario: Scenario | ScenarioFunction | str, *, progress: bool) -> Run:
    """Play a scenario in a world; `World.play` says how."""
    found = find(scenario) if isinstance(scenario, str) else scenario_of(scenario)
    is_told = progress and not is_swept()
    is_virtual = not isinstance(world.where, Deployment) and world.backend.is_virtual
    on_loop = run_virtual if is_virtual else run_anywhere
    try:
        run = finished(on_loop(lambda: _play(world, found, is_told)))
    except KeyboardInterrupt as interrupt:
        file = world.journal_file
        kept = f"Run.load({str(file)!r}) has" if file else "World(journal='run.ndjson') keeps"
        interrupt.add_note(f"{kept} what happened until then")
        raise
    if run.ahead_s:
        log.warning(left_ahead(run.on, run.ahead_s))
    return run


async def _play(world: World, scenario: Scenario, is_told: bool) -> Run:
    elapsed = stopwatch()
    with _warnings_silenced():
        async with open_stage(world) as stage:
            _require_network(world, stage.network)
            live = await LiveWorld.on(stage)
            told = telling(scenario.name, _how_far(live)) if is_told else nullcontext()
            try:
                with told:
                    await _play_on(live, scenario, world)
                ahead_s, on = stage.ahead_s(), world.where.name
                return Run(journal=stage.journal, on=on, real_s=elapsed(), ahead_s=ahead_s)
            finally:
                await stage.close_clients()


def _require_network(world: World, theirs: Network) -> None:
    """Raise `ValueError` if another network was chosen than that of the world on a stage."""
    if world.network is not None and world.networks[0].name != theirs.name:
        place, ours = world.where.name, world.networks[0].name
        raise OtherNetwork(f"{place} is on {theirs.name}, not on {ours}; leave the network out")


async def _play_on(live: LiveWorld, scenario: Scenario, world: World) -> None:
    """Play a scenario in a live world; the journal holds all of it, from `begin` to `end`."""
    _begin(live, scenario, world)
    outcome, reason = await _outcome(live, scenario, world)
    stage = live.stage
    if stage.parts is None and stage.control and live.info:  # the world has a journal of its own
        stage.journal.merge(await stage.control.journal(live.info.journal))
    stage.record(events.End(outcome=outcome, reason=reason))


def _how_far(live: LiveWorld) -> Callable[[], str]:
    """Return what says how far a story is that begins now: "2 h 5 min of its time, 70 events"."""
    clock, journal, began_s = live.clock, live.stage.journal, live.clock.now_s()
    return lambda: f"{duration(clock.now_s() - began_s)} of its time, {journal.length:,} events"


def _chain_of(world: World) -> str | None:
    """Return the name of a world's chain, if it is not the default one."""
    return None if world.backend == DEFAULT_CHAIN else world.backend.name


def _begin(live: LiveWorld, scenario: Scenario, world: World) -> None:
    network, source = live.network, source_of(scenario)
    live.stage.record(
        events.Begin(
            seed=world.seed or 0,
            chain=_chain_of(world),
            options=serialize.options(world),
            services=serialize.names(world.service),
            facilitators=serialize.names(world.facilitator),
            scenario=scenario.name,
            title=scenario.title,
            start_ms=live.clock.now_ms(),
            network=network.name,
            decimals=network.decimals,
            symbol=network.token_symbol,
            merchant=live.info.pay_to if live.info else None,
            token_owner=live.info.token_owner if live.info else None,
            source=None if source == scenario.name else source,
        )
    )
    if len(live.stage.services) > 1:
        for name, merchant in live.stage.merchants(live.merchant).items():
            live.stage.record(events.ServiceJoined(name=name, merchant=merchant))


async def _outcome(live: LiveWorld, scenario: Scenario, world: World) -> tuple[events.Outcome, str]:
    """Play the story, or skip it if the stage lacks a need; return outcome and reason."""
    missing = [need.meaning for need in scenario.needs if need not in live.stage.offers]
    if missing:
        chain = _chain_of(world)
        place = world.where.name + (f" on {chain}" if chain else "")
        return "skipped", f"{place} does not offer {', '.join(missing)}"
    error = await _error(live, scenario, has_invariants=world.invariants)
    if error is not None:
        return "failed", error
    checks = checks_of(live.stage.journal)
    failed = [check for check in checks if not check.ok]
    if failed:
        return "failed", f"{len(failed)} of {len(checks)} checks did not hold"
    if scenario.covers and not checks:
        return "failed", "it checked nothing"
    return "passed", ""


async def _error(live: LiveWorld, scenario: Scenario, *, has_invariants: bool) -> str | None:
    """Run the story with invariants and idle timeout; return the exception that it raised."""
    stage = live.stage
    if stage.parts is not None and has_invariants:
        stage.journal.listeners.append(Invariants(stage, stage.parts))
    idle_timeout = IdleTimeout(live.clock, stage.actors)
    stage.journal.listeners.append(idle_timeout)
    try:
        with forgotten_awaits(file_of(scenario)) as forgotten:
            async with idle_timeout:
                if stage.parts is not None:
                    stage.parts.listen(idle_timeout.stop)
                await _started(scenario, live)
        if forgotten:
            raise ForgottenAwait(named(forgotten))
    except asyncio.CancelledError as interrupt:  # Ctrl-C: the journal says where the story was
        trace = tracebacks.lines(interrupt, skip=__file__)
        live.stage.record(events.StoryRaised(trace=trace))
        live.stage.record(events.End(outcome="failed", reason="interrupted"))
        raise
    except Exception as error:  # noqa: BLE001 - whatever the story raises is its outcome
        live.stage.record(events.StoryRaised(trace=tracebacks.lines(error, skip=__file__)))
        return tracebacks.summary(error)
    finally:
        if stage.control is not None:
            await live.heal()
    return None


def _started(scenario: Scenario, live: LiveWorld) -> Awaitable[None]:
    """Call a story; raises `TypeError` unless there is something to await."""
    started: object = scenario.play(live)
    if isawaitable(started):
        return started
    name, code = scenario.name, getattr(unwrap(scenario.play), "__code__", None)
    where = f" ({tracebacks.shown(code.co_filename)}:{code.co_firstlineno})" if code else ""
    raise TypeError(
        f"{name}{where} is no story, since it returned {described(started)}: "
        f"write `async def {name}(world)`"
    )


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
