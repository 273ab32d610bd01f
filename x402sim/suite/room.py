"""A room: one world with one started subject, in which cases are played in turn; and a play there.

Each subject that is judged in rooms adds its world to `Room`, and to `Play` what it can do.
"""

import asyncio
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import httpx

from x402sim.clock import stopwatch
from x402sim.protocol.networks import Network
from x402sim.report.conformance import FULL
from x402sim.rng import Rng
from x402sim.suite.started import CLOCK, Running, RunsAlready, Startable
from x402sim.suite.verdict import Inconclusive
from x402sim.text.words import counted

MOST_LINES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """What a room is like; the rooms of one kind are alike, and are used again.

    name
        Its name, in the plan and in the names of keys.
    is_shared
        Whether cases are played in it one after the other without a look in between: those that
        leave the world as it was. Otherwise a good payment is made after each case, and a room in
        which it fails is not used again.
    """

    name: str
    is_shared: bool = False

    @property
    def lacks(self) -> str:
        """What it has that the world of a subject that runs already lacks; empty if nothing."""
        return ""


@dataclass(slots=True, kw_only=True, eq=False)
class Room(ABC):
    """A world with a subject in it."""

    name: str
    floor: Floor
    network: Network
    subject: Startable[Any]
    rng: Rng
    http: httpx.AsyncClient
    folder: Path
    running: Running | None = None
    start_s: float = 0
    """How long its last start took."""
    starts: int = 0
    _stack: AsyncExitStack
    _subject: AsyncExitStack = field(default_factory=AsyncExitStack)

    @abstractmethod
    def given(self) -> Any:
        """Return what the subject is given at its next start."""

    @abstractmethod
    async def tidy(self) -> None:
        """Take away what a case has made of the world."""

    async def start(self) -> None:
        """Start the subject, again if it was stopped; raises `NotReady`."""
        elapsed, folder = stopwatch(), self.folder / str(self.starts)
        folder.mkdir()
        self.starts += 1
        starting = self.subject.start(self.given(), folder)
        self.running = await self._subject.enter_async_context(starting)
        self.start_s = elapsed()

    async def started(self) -> Self:
        """Return it with the subject started; raises `NotReady`, and closes it then."""
        try:
            await self.start()
        except BaseException:
            await asyncio.shield(self.close())
            raise
        return self

    async def stop(self) -> None:
        """Stop the subject, as a supervisor does: SIGTERM, and then SIGKILL.

        Raises `Inconclusive` for one that runs already.
        """
        if isinstance(self.subject, RunsAlready):
            raise Inconclusive("it runs already, and is not the judge's to stop: --start COMMAND")
        await self._stop()

    async def kill(self) -> None:
        """Stop the subject as a power cut does; raises `Inconclusive` for one that runs already."""
        if self.running is not None:
            self.running.kill()
        await self.stop()

    async def _stop(self) -> None:
        self.running = None
        await self._subject.aclose()

    async def close(self) -> None:
        """Stop everything."""
        await self._stop()
        await self._stack.aclose()

    @property
    def has_ended(self) -> str:
        """How the subject ended by itself; empty while it runs."""
        return self.running.has_ended if self.running else "it was stopped"


class Answer(Protocol):
    """What a subject answered."""

    @property
    def status(self) -> int:
        """The status; 0 if no answer came."""

    @property
    def summary(self) -> str:
        """The request and its answer, as a report shows them."""


AnyRoom = TypeVar("AnyRoom", bound=Room)
AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


@dataclass(slots=True, kw_only=True, eq=False)
class Play(ABC, Generic[AnyRoom, AnyAnswer]):
    """What a case has in its hands: a room, and what has happened there so far."""

    room: AnyRoom
    name: str
    patience_s: float
    """How long an answer may take, at most."""
    lines: list[str] = field(default_factory=list)
    answers: list[AnyAnswer] = field(default_factory=list)
    since: int = 0
    """The height of the chain when it began."""
    _drawn: int = 0
    _said: int = 0

    @abstractmethod
    async def begin(self) -> Self:
        """Note where the chain is."""

    def draw(self) -> bytes:
        """Return 32 bytes that nobody has drawn before."""
        self._drawn += 1
        return self.room.rng.secret(f"{self.name} {self._drawn}")

    async def wait(self, seconds: float) -> None:
        """Wait in real time."""
        await CLOCK.sleep(seconds)

    def heard(self, answer: AnyAnswer) -> AnyAnswer:
        """Keep an answer, and write it for the report."""
        self.answers.append(answer)
        self.say(answer.summary)
        return answer

    def say(self, line: str) -> None:
        """Write a line for the report."""
        self._said += 1
        if self._said <= MOST_LINES:
            self.lines.append(line)

    def detail(self, line: str) -> None:
        """Write what the last line has only in short; it is in the reports, not in a terminal."""
        if self._said <= MOST_LINES:
            self.lines.append(f"{FULL}{line}")

    @property
    def report(self) -> str:
        """What happened, in lines."""
        left = self._said - MOST_LINES
        more = [f"and {counted(left, 'more line')}"] if left > 0 else []
        return "\n".join([*self.lines, *more])
