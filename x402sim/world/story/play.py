"""Plays a story: records its beginning, its errors and its outcome."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable, unwrap
from typing import Any

from x402sim import events
from x402sim.report.summary import checks_of
from x402sim.text import tracebacks
from x402sim.text.printable import described
from x402sim.text.times import duration
from x402sim.world.story.forgotten import ForgottenAwait, forgotten_awaits, named
from x402sim.world.story.idle_timeout import IdleTimeout
from x402sim.world.story.invariants import Invariants
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.market import merchants, parts_of
from x402sim.world.story.scenario import Scenario, file_of, source_of


async def play_on(
    live: LiveWorld,
    scenario: Scenario,
    place: str,
    told: Mapping[str, Any],
    *,
    has_invariants: bool,
) -> None:
    """Play a scenario in a live world; the journal holds all of it, from `begin` to `end`.

    `place` names stage and chain; `told` is what the first event has of the world's options.
    """
    _begin(live, scenario, told)
    outcome, reason = await _outcome(live, scenario, place, has_invariants=has_invariants)
    stage = live.stage
    if stage.parts is None and stage.control and live.who:  # the world has a journal of its own
        stage.links.journal.merge(await stage.control.journal(live.who.journal))
    stage.record(events.End(outcome=outcome, reason=reason))


def how_far(live: LiveWorld) -> Callable[[], str]:
    """Return what says how far a story is that begins now: "2 h 5 min of its time, 70 events"."""
    clock, journal, began_s = live.clock, live.stage.links.journal, live.clock.now_s()
    return lambda: f"{duration(clock.now_s() - began_s)} of its time, {journal.length:,} events"


def _begin(live: LiveWorld, scenario: Scenario, told: Mapping[str, Any]) -> None:
    network, source = live.network, source_of(scenario)
    live.stage.record(
        events.Begin(
            **told,
            scenario=scenario.name,
            title=scenario.title,
            start_ms=live.clock.now_ms(),
            network=network.name,
            decimals=network.decimals,
            symbol=network.token_symbol,
            merchant=live.who.pay_to if live.who else None,
            token_owner=live.who.token_owner if live.who else None,
            source=None if source == scenario.name else source,
        )
    )
    if len(live.stage.services) > 1:
        for name, merchant in merchants(live.stage, live.merchant).items():
            live.stage.record(events.ServiceJoined(name=name, merchant=merchant))


async def _outcome(
    live: LiveWorld, scenario: Scenario, place: str, *, has_invariants: bool
) -> tuple[events.Outcome, str]:
    """Play the story, or skip it if the stage lacks a need; return outcome and reason."""
    missing = [need.meaning for need in scenario.needs if need not in live.stage.offers]
    if missing:
        return "skipped", f"{place} does not offer {', '.join(missing)}"
    error = await _error(live, scenario, has_invariants=has_invariants)
    if error is not None:
        return "failed", error
    checks = checks_of(live.stage.links.journal)
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
        stage.links.journal.listeners.append(Invariants(stage, stage.parts))
    idle_timeout = IdleTimeout(live.clock, parts_of(live.stage))
    stage.links.journal.listeners.append(idle_timeout)
    try:
        with forgotten_awaits(file_of(scenario)) as forgotten:
            async with idle_timeout:
                if stage.parts is not None:
                    stage.parts.site.listen(idle_timeout.stop)
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
