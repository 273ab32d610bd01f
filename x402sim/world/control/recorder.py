"""Writes to the journal of a server what is done through /_sim, and each fault that strikes.

The journal of a story has the story's own events for it.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from x402sim import events
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.transport.faults import Fault, read_fault

_EVENTS: dict[str, Callable[..., events.StoryEvent]] = {
    "/clock/advance": lambda seconds: events.TimeAdvanced(seconds=seconds),
    "/clock/skew": lambda actor, seconds: events.ClockSkewed(victim=actor, seconds=seconds),
    "/explorer/lag": lambda seconds: events.ExplorerLagged(seconds=seconds),
    "/facilitator": lambda **given: events.Note(
        name="facilitator set", data={key: it for key, it in given.items() if it is not None}
    ),
    "/faults": lambda fault: events.FaultInjected(**msgspec.to_builtins(read_fault(fault))),
    "/faults/clear": lambda keep: events.Note(name="faults cleared", data={"keep": list(keep)}),
    "/crash": lambda service: events.ServiceCrashed(victim=service),
    "/mining": lambda automine: events.MiningSwitched(automine=automine),
    "/reorg": lambda depth, drop: events.ChainReorganised(depth=depth),
    "/drop": lambda: events.MempoolDropped(),
    "/force-revert": lambda calls: events.RevertsForced(calls=calls),
    "/revert": lambda snapshot: events.Note(name="reverted", data={"snapshot": snapshot}),
    "/reset": lambda clock: events.Note(name="reset", data={"clock": True} if clock else {}),
}
"""The event of an action that changes the world, by its path, of what it was given."""


class Recorder:
    """Records actions when they are done, and strikes as they happen."""

    def __init__(self, world: RunningWorld) -> None:
        self._journal, self._clock = world.journal, world.clock
        world.faults.on_strike.append(self._struck)

    def done(self, path: str, given: dict[str, Any]) -> None:
        """Record an action that was done, if the events of the chain do not tell it."""
        if path in _EVENTS:
            self._record(_EVENTS[path](**given))

    def _struck(self, victim: str, fault: Fault, path: str) -> None:
        struck = {"victim": victim, "does": fault.does, "path": path, "contains": fault.contains}
        if fault.caller is not msgspec.UNSET:
            struck["caller"] = fault.caller
        self._record(events.Note(name="fault struck", data=struck))

    def _record(self, event: events.StoryEvent) -> None:
        self._journal.record(self._clock.now_ms(), event)
