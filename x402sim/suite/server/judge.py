"""Judges a server: its rooms, and what a good payment is, which is served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from x402sim.suite import rooms
from x402sim.suite.played import Violation
from x402sim.suite.room import Floor
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.play import Item, Play
from x402sim.suite.server.room import PLAIN, REPLICAS, Room, opened
from x402sim.suite.verdict import Inconclusive, Lacking

QUICK_S = 3.0
"""A start that takes longer is not repeated unless that is chosen."""


@dataclass(slots=True, kw_only=True, eq=False)
class Judge(rooms.Judge[Room, Play]):
    """One judgement of one server."""

    plain: ClassVar[Floor] = PLAIN
    beside: ClassVar[int] = 6
    after: ClassVar[Violation] = Violation(
        expected="a good payment that is served afterwards", actual="", why="nobody is served"
    )

    items: Sequence[Item]
    handlers: Mapping[str, Item] = field(default_factory=dict)
    """Paid requests whose handler is not like others, by the option that names them."""

    restart: bool | None = None
    """Whether it is killed and started again; None leaves it to how long a start takes."""
    shares: bool = False
    """Whether two of it, with one folder, share what they keep."""

    @property
    def restarts(self) -> bool:
        """Whether it is killed and started again: if not chosen, its first start decides."""
        if self.restart is None:
            self.restart = self.start_s < QUICK_S
        return self.restart and not self.is_fixed

    async def open(self, floor: Floor, name: str) -> Room:
        """Open a room, and start the server in it, or two; raises `NotReady` and `Lacking`."""
        if floor is REPLICAS and (not self.shares or self.subject.most_at_once is not None):
            raise Lacking(
                "it needs two servers that share what they keep, each at a port that it "
                "is given: say so with --shared-store"
            )
        return await opened(self.subject, floor, self.network, self.seed, name, self.port)

    def play(self, room: Room, dialect: Dialect, name: str, patience_s: float) -> Play:
        """Return a play in a room."""
        return Play(
            room=room,
            dialect=dialect,
            items=self.items,
            handlers=self.handlers,
            restarts=self.restarts,
            name=name,
            patience_s=patience_s,
        )

    async def sound(self, room: Room, dialects: Sequence[Dialect] = ()) -> str:
        """Make a good payment in each version; return why one fails, "" if none does."""
        known = self.dialects or dialects
        # nothing is bought in a version of which only the offer is judged
        for dialect in [each for each in dialects if each in known] or known:
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
