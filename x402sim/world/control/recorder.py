"""Writes to the journal of a server what is done through /_sim, and each fault that strikes.

The journal of a story has the story's own events for it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from x402sim import events
from x402sim.world.assembly.parts import Parts
from x402sim.world.transport.faults import read_fault

_EVENTS: dict[str, Callable[[Any], events.StoryEvent]] = {
    "/clock/advance": lambda asked: events.TimeAdvanced(seconds=asked.seconds),
    "/clock/skew": lambda asked: events.ClockSkewed(victim=asked.actor, seconds=asked.seconds),
    "/explorer/lag": lambda asked: events.ExplorerLagged(seconds=asked.seconds),
    "/faults": lambda asked: events.FaultInjected(**msgspec.to_builtins(read_fault(asked))),
    "/faults/clear": lambda asked: events.Note(name="faults cleared", data={"keep": asked.keep}),
    "/crash": lambda _: events.ServiceCrashed(),
    "/mining": lambda asked: events.MiningSwitched(automine=asked.automine),
    "/reorg": lambda asked: events.ChainReorganised(depth=asked.depth),
    "/drop": lambda _: events.MempoolDropped(),
    "/force-revert": lambda asked: events.RevertsForced(calls=asked.calls),
    "/revert": lambda asked: events.Note(name="reverted", data={"snapshot": asked.snapshot}),
    "/reset": lambda asked: events.Note(name="reset", data={"clock": True} if asked.clock else {}),
}
"""The event of an action that changes the world, by its path."""


class Recorder:
    """Records actions when they are done, and strikes as they happen."""

    def __init__(self, parts: Parts) -> None:
        self._journal, self._clock = parts.journal, parts.clock
        parts.faults.on_strike.append(self._struck)

    def done(self, path: str, asked: Any) -> None:
        """Record an action that was done, if the events of the chain do not tell it."""
        if path in _EVENTS:
            self._record(_EVENTS[path](asked))

    def _struck(self, victim: str, does: str, path: str) -> None:
        struck = {"victim": victim, "does": does, "path": path}
        self._record(events.Note(name="fault struck", data=struck))

    def _record(self, event: events.StoryEvent) -> None:
        self._journal.record(self._clock.now_ms(), event)
