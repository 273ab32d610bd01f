"""Plays a scenario in a world: records its begin, errors and end, and returns the `Run`.

A deadlocked scenario is stopped, and a scenario without a request for a month (`IdleTimeout`).
Coroutines that the scenario calls and does not await are found (`forgotten_awaits`).
"""

import asyncio
import inspect
import logging
import re
import threading
import traceback
import warnings
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from inspect import isawaitable, unwrap
from types import TracebackType
from typing import Any, TextIO

from msgspec import UNSET, UnsetType

from x402sim import events
from x402sim.clock import Clock, periodic_context, stopwatch
from x402sim.events import AnswerReceived, NoAnswer, Part, RequestSent, TimeAdvanced
from x402sim.explorer.index import ExplorerSettings
from x402sim.facilitator.engine import FacilitatorSettings
from x402sim.journal import Entry
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, TESTNET
from x402sim.report.progress import telling
from x402sim.report.reading import checks_of
from x402sim.report.run import Run, finished, is_swept
from x402sim.service.settings import Settings
from x402sim.serving.control.client import ControlError
from x402sim.spec.decisions import Decisions
from x402sim.story.invariants import Invariants
from x402sim.story.live import LiveWorld
from x402sim.story.stages import OtherNetwork, left_ahead, open_stage
from x402sim.text import tracebacks
from x402sim.text.words import changed, described, duration
from x402sim.world.chains import DEFAULT_CHAIN
from x402sim.world.loop import Deadlock, VirtualLoop, run_anywhere, run_virtual
from x402sim.world.scenario import Scenario, ScenarioFunction, file_of, find, scenario_of, source_of
from x402sim.world.world import Deployment, World

log = logging.getLogger("x402sim")
_is_playing: ContextVar[bool] = ContextVar("a story is played", default=False)


def play(world: World, scenario: Scenario | ScenarioFunction | str, *, progress: bool) -> Run:
    """Play a scenario in a world; `World.play` says how."""
    found = find(scenario) if isinstance(scenario, str) else scenario_of(scenario)
    is_virtual = not isinstance(world.where, Deployment) and world.backend.is_virtual
    on_loop = run_virtual if is_virtual else run_anywhere
    try:
        run = finished(on_loop(lambda: _play(world, found, progress and not is_swept())))
    except KeyboardInterrupt as interrupt:
        file = world.journal_file
        kept = f"Run.load({str(file)!r}) has" if file else "World(journal='run.ndjson') keeps"
        interrupt.add_note(f"{kept} what happened until then")
        raise
    if run.ahead_s:
        log.warning(left_ahead(run.on, run.ahead_s))
    return run


async def _play(world: World, scenario: Scenario, has_progress: bool) -> Run:
    elapsed = stopwatch()
    with _warnings_silenced():
        async with open_stage(world) as stage:
            wanted, actual, on = world.networks[0].name, stage.network.name, world.where.name
            if world.network is not None and wanted != actual:
                raise OtherNetwork(f"{on} is on {actual}, not on {wanted}; leave the network out")
            live = await LiveWorld.start(stage)
            clock, journal, began_s = live.clock, stage.journal, live.clock.now_s()

            def how_far() -> str:  # "2 h 5 min of its time, 70 events"
                return f"{duration(clock.now_s() - began_s)} of its time, {journal.length:,} events"

            progress = telling(scenario.name, how_far) if has_progress else nullcontext()
            try:
                with progress:
                    _begin(live, scenario, world)
                    outcome, reason = await _outcome(live, scenario, world)
                    # a world at a URL has a journal of its own
                    if stage.parts is None and stage.control and live.info:
                        try:
                            journal.merge(await stage.control.journal(live.info.journal))
                        except ControlError as wrong:  # our own events remain
                            outcome, reason = "failed", str(wrong)
                    stage.end(outcome, reason)
                return Run(journal=journal, on=on, real_s=elapsed(), ahead_s=stage.ahead_s())
            finally:
                await stage.close_clients()


def _chain_of(world: World) -> str | None:
    return None if world.backend == DEFAULT_CHAIN else world.backend.name


def _begin(live: LiveWorld, scenario: Scenario, world: World) -> None:
    network, source = live.network, source_of(scenario)
    live.stage.journal.played(None if source == scenario.name else source)
    live.stage.record(
        events.Begin(
            seed=world.seed or 0,
            chain=_chain_of(world),
            options=_options(world),
            services=_names(world.service),
            facilitators=_names(world.facilitator),
            scenario=scenario.name,
            title=scenario.title,
            start_ms=live.clock.now_ms(),
            network=network.name,
            decimals=network.decimals,
            symbol=network.token_symbol,
            merchant=live.info.pay_to if live.info else None,
            token_owner=live.info.token_owner if live.info else None,
        )
    )
    if len(live.stage.services) > 1:
        for name, merchant in live.stage.merchants(live.merchant).items():
            live.stage.record(events.ServiceJoined(name=name, merchant=merchant))


async def _outcome(
    live: LiveWorld, scenario: Scenario, world: World
) -> tuple[events.StoryOutcome, str]:
    """Play the scenario, or skip it if the stage lacks a need; return outcome and reason."""
    missing = [need.meaning for need in scenario.needs if need not in live.stage.capabilities]
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
    """Run the scenario with invariants and idle timeout; return the raised exception."""
    stage = live.stage
    if stage.parts is not None and has_invariants:
        stage.journal.listeners.append(Invariants(stage, stage.parts))
    idle_timeout = IdleTimeout(live.clock, stage.actors)
    stage.journal.listeners.append(idle_timeout)
    try:
        with forgotten_awaits(file_of(scenario)) as forgotten:
            async with idle_timeout:
                if stage.parts is not None:
                    stage.parts.add_bug_listener(idle_timeout.stop)
                await _started(scenario, live)
        if forgotten:
            raise ForgottenAwait(named(forgotten))
    except asyncio.CancelledError as interrupt:  # Ctrl-C: the journal says where the scenario was
        trace = tracebacks.lines(interrupt, skip=__file__)
        stage.record(events.StoryRaised(trace=trace))
        if stage.parts is not None:
            stage.parts.faults.clear()  # what that records comes before the end
        stage.end("failed", "interrupted")
        raise
    except Exception as error:  # noqa: BLE001 - whatever the scenario raises is its outcome
        stage.record(events.StoryRaised(trace=tracebacks.lines(error, skip=__file__)))
        return tracebacks.summary(error)
    finally:
        await live.end()
        if stage.control is not None:
            await live.heal()
    return None


def _started(scenario: Scenario, live: LiveWorld) -> Awaitable[None]:
    """Call a scenario; raises `TypeError` unless there is something to await."""
    started: object = scenario.function(live)
    if isawaitable(started):
        return started
    name, code = scenario.name, getattr(unwrap(scenario.function), "__code__", None)
    where = f" ({tracebacks.shown(code.co_filename)}:{code.co_firstlineno})" if code else ""
    raise TypeError(
        f"{name}{where} is no story, since it returned {described(started)}: "
        f"write `async def {name}(world)`"
    )


@contextmanager
def _warnings_silenced() -> Iterator[None]:
    """Hide the service's warnings in this context: scenarios break things on purpose.

    What failed is in the journal. Errors are logged as ever, and so are warnings if the logger
    "x402sim" has a level of its own.
    """
    log.addFilter(_is_shown)  # once: a second time it is there already
    token = _is_playing.set(True)
    try:
        yield
    finally:
        _is_playing.reset(token)


def _is_shown(record: logging.LogRecord) -> bool:
    has_own_level = log.level != logging.NOTSET
    return has_own_level or record.levelno >= logging.ERROR or not _is_playing.get()


# --- the options of a world, as Python source for the journal ---

_Configuration = Decisions | ExplorerSettings | FacilitatorSettings | Settings
"""Options of which only the fields other than the default are written."""


_RECORDED = (
    "latency",
    "block_time_s",
    "reorgs",
    "gas_price_gwei",
    "cache",
    "coin_price",
    "service",
    "facilitator",
    "explorer",
    "calls_at_block_time",
)


def _options(world: World) -> dict[str, str]:
    given = {name: getattr(world, name) for name in _RECORDED}
    first, *also = world.networks
    given["network"] = [first, *also] if also else None if first == TESTNET else first
    given["without"] = world.without
    named = {
        name: _python(value)
        for name, value in given.items()
        if value and not (isinstance(value, _Configuration) and value == type(value)())
    }
    return named if world.invariants else named | {"invariants": "False"}


def _names(given: object) -> tuple[str, ...] | UnsetType:
    return tuple(map(str, given)) if isinstance(given, Mapping) else UNSET


def _python(value: Any) -> str:
    for name, network in {"MAINNET": MAINNET, "BASE_SEPOLIA": BASE_SEPOLIA}.items():
        if value == network:
            return name
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_python(each)}" for key, each in value.items()) + "}"
    return changed(value, _python) if isinstance(value, _Configuration) else described(value)


# --- coroutines that nobody awaits ------------------------------------------------------

_FORGOTTEN = re.compile("coroutine '.*' was never awaited")


@dataclass(slots=True)
class _Unawaited:
    """The coroutines that a block did not await, each with the line, if in `file`."""

    file: str
    found: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Note Python's warning of a coroutine, with the newest line of the file that runs."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        where = f" ({tracebacks.shown(self.file)}:{frame.f_lineno})" if frame else ""
        self.found.append(f"{text}{where}")


_unawaited: ContextVar[_Unawaited | None] = ContextVar("forgotten coroutines", default=None)


class _Hook:
    """Replaces `warnings.showwarning` as long as any scenario is played."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stories = 0
        self._before = warnings.showwarning
        self._undo = ExitStack()

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have warnings shown by this hook in a block."""
        with self._lock:
            self._stories += 1
            if self._stories == 1:
                self._undo.enter_context(warnings.catch_warnings())
                warnings.filterwarnings("always", _FORGOTTEN.pattern, RuntimeWarning)
                if warnings.showwarning != self._show:  # else another thread has restored it
                    self._before = warnings.showwarning
                warnings.showwarning = self._show
        try:
            yield
        finally:
            with self._lock:
                self._stories -= 1
                if not self._stories:
                    self._undo.close()

    def _show(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        unawaited, forgotten = _unawaited.get(), _FORGOTTEN.match(str(message))
        if unawaited is None or forgotten is None:
            self._before(message, category, filename, lineno, file, line)
        else:
            unawaited.note(forgotten[0])


_HOOK = _Hook()


class ForgottenAwait(RuntimeError):
    """A scenario called a coroutine function without `await`."""


@contextmanager
def forgotten_awaits(file: str) -> Iterator[list[str]]:
    """Find the coroutines that are never awaited in a block; after it, the list has each.

    `file` is the scenario's: a line in the file is named. An exception of the block, which may
    follow from a forgotten await, gets a note.
    """
    unawaited = _Unawaited(file)
    token = _unawaited.set(unawaited)
    with _HOOK.in_place():
        try:
            yield unawaited.found
        except Exception as error:
            unawaited.file = ""  # clearing the frames discards them: that line forgot nothing
            _release_frames(error)
            if unawaited.found:
                error.add_note(named(unawaited.found))
            raise
        finally:
            _unawaited.reset(token)


def named(found: list[str]) -> str:
    """Name the found coroutines, and the remedy."""
    return "; ".join(found) + ": write `await`"


def _release_frames(error: BaseException) -> None:
    """Clear an error's frames, which may hold the coroutine without `await`."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            _release_frames(each)
    if isinstance(error, AttributeError):
        error.obj = None
    traceback.clear_frames(error.__traceback__)


# --- the idle timeout, and deadlocks ----------------------------------------------------

IDLE_TIMEOUT_S = 31 * 86400
"""A month of simulated time."""
CHECK_S, RECHECK_S = 600, 1
"""Simulated seconds between two checks for a deadlock, and until one is confirmed."""


class IdleTimeout:
    """A context manager around a scenario, and a listener of its journal.

    Raises `Deadlock` if nothing but periodic work is left, and `TimeoutError` after a month without
    a request; time that the scenario advances itself (`LiveWorld.advance`) does not count. An error
    given to `stop` is raised in the scenario, so that the journal is kept: the loop's
    `TimeStandsStill`, and what the user's own code raised in a part of the world.
    """

    def __init__(self, clock: Clock, parts: frozenset[Part]) -> None:
        """Listen; `parts` are the actors that go on without the scenario."""
        self._clock, self._parts = clock, parts
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._until = 0.0  # the end of the month after the time that the scenario has advanced
        first_s, unawaited = self._loop.time() + CHECK_S, periodic_context()
        self._timer = self._loop.call_at(first_s, self._check, context=unawaited)
        self._in_flight: set[int] = set()  # the exchanges of the scenario that are in flight
        self._is_suspect = False
        self._newest_s = self._loop.time()
        self._stopped_by: Exception | None = None

    def __call__(self, entry: Entry) -> None:
        """Restart the timeout if the event is the scenario's own."""
        event = entry.event
        if event.actor in self._parts:
            return
        self._newest_s = self._loop.time()
        if isinstance(event, RequestSent):
            self._in_flight.add(event.exchange)
        elif isinstance(event, AnswerReceived | NoAnswer):
            self._in_flight.discard(event.exchange)
        elif isinstance(event, TimeAdvanced):
            self._until = max(self._until, self._newest_s + event.seconds + IDLE_TIMEOUT_S)

    def _check(self) -> None:
        """Stop the scenario if two checks find it stuck; all that was ready runs in between."""
        now_s, until_s = self._loop.time(), max(self._until, self._newest_s + IDLE_TIMEOUT_S)
        is_stuck = self._is_stuck()
        if is_stuck and self._is_suspect:
            self.stop(Deadlock(
                f"nothing can wake the story, which did nothing since {self._newest_s:.3f} s: only "
                "blocks, sweeps and the indexer are left"
            ))  # fmt: skip
        elif now_s >= until_s:
            self._limit.reschedule(now_s)
        else:
            self._is_suspect = is_stuck
            next_s = min(until_s, now_s + (RECHECK_S if is_stuck else CHECK_S))
            # in this periodic context: `_is_stuck` must not count the timer
            self._timer = self._loop.call_at(next_s, self._check)

    def _is_stuck(self) -> bool:
        if not isinstance(self._loop, VirtualLoop) or self._in_flight or self._loop.must_wait:
            return False
        return not self._clock.is_awaited and not self._loop.is_awaited

    def stop(self, error: Exception) -> None:
        """Raise an error in the scenario, now; of several, the first one counts."""
        if self._stopped_by is None:
            self._stopped_by = error
            self._limit.reschedule(self._loop.time())

    async def __aenter__(self) -> None:
        if isinstance(self._loop, VirtualLoop):
            self._loop.on_standstill = self.stop
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if isinstance(self._loop, VirtualLoop):
            self._loop.on_standstill = None
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            if self._stopped_by is None:
                raise TimeoutError(
                    f"the scenario made no request for {IDLE_TIMEOUT_S // 3600} hours of simulated "
                    "time"
                ) from error
        if self._stopped_by is not None:
            raise self._stopped_by from self._stopped_by.__cause__ or error
