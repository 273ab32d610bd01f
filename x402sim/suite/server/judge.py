"""Judges a server: its rooms, and what a good payment is, which is served."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from x402sim.suite import rooms
from x402sim.suite.played import Violation
from x402sim.suite.room import Floor
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.play import Item, Play
from x402sim.suite.server.room import PLAIN, Room, opened
from x402sim.suite.verdict import Inconclusive


@dataclass(slots=True, kw_only=True, eq=False)
class Judge(rooms.Judge[Room, Play]):
    """One judgement of one server."""

    plain: ClassVar[Floor] = PLAIN
    beside: ClassVar[int] = 6
    after: ClassVar[Violation] = Violation(
        expected="a good payment that is served afterwards", actual="", why="nobody is served"
    )

    items: Sequence[Item]
    failing: Item | None = None
    """A paid request whose handler fails."""

    async def open(self, floor: Floor, name: str) -> Room:
        """Open a room, and start the server in it."""
        return await opened(self.subject, floor, self.network, self.seed, name, self.port)

    def play(self, room: Room, dialect: Dialect, name: str, patience_s: float) -> Play:
        """Return a play in a room."""
        return Play(
            room=room,
            dialect=dialect,
            items=self.items,
            failing_item=self.failing,
            name=name,
            patience_s=patience_s,
        )

    async def sound(self, room: Room, dialects: Sequence[Dialect] = ()) -> str:
        """Make a good payment in each version; return why one fails, "" if none does."""
        for dialect in dialects or self.dialects:
            play = await self.begun(room, dialect, "sound")
            try:
                answer = await play.pay(await play.draft())
            except Inconclusive as why:
                return str(why)
            if room.has_ended:
                return room.has_ended
            if not answer.is_2xx:
                return f"a good payment gets {answer.how}"
        return ""
