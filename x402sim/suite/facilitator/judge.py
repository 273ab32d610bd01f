"""Judges a facilitator: its rooms, and what a good payment is, verified and settled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from x402sim.chain.base import ChainError
from x402sim.clock import stopwatch
from x402sim.suite import rooms
from x402sim.suite.facilitator.case import is_paid, tried
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, Floor, Room, opened
from x402sim.suite.played import Violation

LEAST_S, TIMES = 3.0, 20
"""How long a good payment may take, at least, and how many times as long as the first did."""


@dataclass(slots=True, kw_only=True, eq=False)
class Judge(rooms.Judge[Room, Play]):
    """One judgement of one facilitator."""

    plain: ClassVar[Floor] = PLAIN
    beside: ClassVar[int] = 8
    after: ClassVar[Violation] = Violation(
        expected="a good payment that settles afterwards",
        actual="",
        why="it serves nobody any more",
    )

    is_blind: bool = False
    """Whether its node is another's, so that no payment of ours can be good."""
    control_s: float = 0
    """How long a good payment took, verified and settled."""

    async def open(self, floor: Floor, name: str) -> Room:
        """Open a room; on an anvil a good payment is made first, as a jam there would be no
        finding of a case.
        """
        room = await opened(
            self.subject, floor, self.network, self.seed, name, self.patience_s, self.port
        )
        if floor.chain == "anvil" and (wrong := await self.sound(room, self.dialects[:1])):
            await room.close()
            raise ChainError(f"on anvil, whose token is OpenZeppelin's, it fails: {wrong}")
        return room

    def play(self, room: Room, dialect: Dialect, name: str, patience_s: float) -> Play:
        """Return a play in a room."""
        return Play(room=room, dialect=dialect, name=name, patience_s=patience_s)

    async def sound(self, room: Room, dialects: Sequence[Dialect] = ()) -> str:
        """Make a good payment in each dialect; return why one fails, "" if none does."""
        if self.is_blind:
            return ""
        for dialect in dialects or self.dialects:
            elapsed, most_s = stopwatch(), self.patience_s
            if self.control_s:
                most_s = min(most_s, max(LEAST_S, TIMES * self.control_s))
            most_s += room.floor.block_s or 0
            play = await self.begun(room, dialect, "control", most_s)
            wrong = is_paid(play, await tried(play, await play.draft()))
            if wrong is not None:
                return f"a good payment ({dialect}): {wrong.actual}"
            self.control_s = self.control_s or elapsed()
        return ""
