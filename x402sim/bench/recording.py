"""What does the journal cost? The events of one lifecycle, recorded again and again."""

import msgspec

from x402sim.bench.lifecycle import PlainAsgi
from x402sim.events import Event
from x402sim.journal import Journal
from x402sim.world.assembly.parts import JOURNAL_LIMIT
from x402sim.world.stages.stage import START_S


class Recorder:
    """Records the events of a lifecycle: each is made from its fields, and then recorded."""

    def __init__(self) -> None:
        self.events = _events_of_a_lifecycle()
        self._made_of = [(type(event), msgspec.structs.asdict(event)) for event in self.events]

    def work(self, times: int) -> None:
        """Record the events of this many lifecycles in a new journal."""
        journal, at_ms = Journal(JOURNAL_LIMIT), START_S * 1000
        for _ in range(times):
            for kind, fields in self._made_of:
                journal.record(at_ms, kind(**fields))


def _events_of_a_lifecycle() -> list[Event]:
    world = PlainAsgi()
    try:
        before = world.parts.journal.length
        world.work(1)
        return [entry.event for entry in world.parts.journal.since(before)]
    finally:
        world.close()
