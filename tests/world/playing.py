"""Plays stories whose asserts must hold, and finds what happened in them."""

from collections.abc import Awaitable, Callable
from typing import Any

from x402sim import LiveWorld, Run, World
from x402sim.events import Event
from x402sim.report.summary import checks_of

Story = Callable[[LiveWorld], Awaitable[None]]


def play(story: Story, on: str = "in-process", *, seed: int = 1, **wanted: Any) -> Run:
    """Play a story whose asserts and checks must hold."""
    run = World(seed=seed, on=on, **wanted).play(story)
    assert run.outcome == "passed", (run.reason, [c for c in checks_of(run.journal) if not c.ok])
    return run


def entries(run: Run, kind: type[Event], actor: str | None = None) -> list[Any]:
    """Return the entries of one kind of event, of any actor or of this one."""
    return [e for e in run.journal if isinstance(e.event, kind) and actor in (None, e.event.actor)]


def found(run: Run, kind: type[Event]) -> list[Any]:
    """Return the events of one kind."""
    return [entry.event for entry in entries(run, kind)]
