"""Judges a subject in rooms: plays cases, makes good payments in between, finds what jams.

A room is a world with one started subject; cases are played there in turn. The engine's rule of
repetition takes these steps here:

- Plays that leave the world unchanged share a room, up to `BATCH` plays. The judge makes a good
  payment after the last play, and after each play without an answer. Any other play has a room
  alone, and a good payment after it.
- If a good payment fails, an earlier play has jammed the subject. The plays of the room are
  repeated, each with a good payment after it, until the payment fails again: that play jams.
- After `CONFIRMED_JAMS`, a further jam counts without a repetition. After `MOST_JAMS`, the judge
  looks for no more, and all plays of a jammed room are inconclusive.
- If the subject ends by itself in a play and in the repetition, the play has failed. Ends that
  fail no demand are counted: `MOST_ENDS` ends fail the control, chosen or not. SIGKILL is no end
  by itself, but a jam: a machine without memory kills, too.
- A subject started by the user has one room, in which a good payment follows each play; failed
  plays are repeated there. After two failed good payments in turn, the rest is inconclusive.

Each subject has subclasses: of `Room` with its world, of `Play` with its requests, and of
`RoomJudge` with its good payment. `in_rooms` plans a judgement and begins the run.
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, get_args

import httpx
import msgspec

from x402sim.chain.base import ChainError
from x402sim.clock import stopwatch
from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.rng import Rng
from x402sim.spec.clauses import Level
from x402sim.suite.case import by_play
from x402sim.suite.engine import (
    CaseResults,
    Judging,
    Plan,
    Played,
    attempt,
    of_two,
    result,
    side_by_side,
    skipped,
    unclear,
)
from x402sim.suite.money import Transfer
from x402sim.suite.options import PATIENCE_S
from x402sim.suite.report.exchange import Exchange, record
from x402sim.suite.report.results import CaseResult, DemandKey, Outcome
from x402sim.suite.row import RoomCase, RoomKind
from x402sim.suite.started import CLOCK, Running, RunsAlready, Startable
from x402sim.suite.subject import Chosen, Tell, patiently
from x402sim.suite.verdict import Inconclusive, Lacking, NotReady, Violation
from x402sim.text.words import counted


@dataclass(slots=True, kw_only=True, eq=False)
class Room(ABC):
    """A world with a subject in it."""

    name: str
    kind: RoomKind
    network: Network
    subject: Startable[Any]
    rng: Rng
    http: httpx.AsyncClient
    running: Running | None = None
    replica: Running | None = None
    """The other server of a deployment of two."""
    start_s: float = 0
    """Seconds of the last start."""
    starts: int = 0
    _ended: str = ""
    """How the subject had ended by itself when the judge came to stop it."""
    _stack: AsyncExitStack
    _subject: AsyncExitStack = field(default_factory=AsyncExitStack)

    @abstractmethod
    def given(self) -> Any:
        """Return the subject's port, addresses and keys for the next start."""

    @abstractmethod
    async def tidy(self) -> None:
        """Undo the changes of a case in the world."""

    async def start(self) -> None:
        """Start the subject, or start it again after it was stopped; raises `NotReady`."""
        elapsed = stopwatch()
        self.starts += 1
        self.running = await self._subject.enter_async_context(self.subject.start(self.given()))
        self.start_s = elapsed()

    async def started(self) -> Self:
        """Start the subject and return the room; if the start fails, close the room and raise."""
        try:
            await self.start()
        except BaseException:
            await asyncio.shield(self.close())
            raise
        return self

    async def stop(self) -> None:
        """Stop the subject, as a supervisor does: SIGTERM, and then SIGKILL.

        Raises `Inconclusive` for a subject started by its user.
        """
        if isinstance(self.subject, RunsAlready):
            raise Inconclusive("it runs already, and is not the judge's to stop: --start COMMAND")
        await self._stop()

    async def kill(self) -> None:
        """Stop the subject as a power cut does; raises `Inconclusive` as `stop` does."""
        if self.running is not None:
            self.running.kill()
        await self.stop()

    async def _stop(self) -> None:
        if not self.was_killed:
            self._ended = self.has_ended
        self.running = self.replica = None
        await self._subject.aclose()

    async def close(self) -> None:
        """Stop the subject and the world of the room."""
        try:
            await self._stop()
        finally:
            await self._stack.aclose()

    @property
    def has_ended(self) -> str:
        """How the subject ended by itself, now or before it was started again; empty if it runs."""
        running = [each.has_ended for each in (self.running, self.replica) if each]
        return self._ended or next(filter(None, running), "")

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended the subject, and not the judge: a machine without memory."""
        return any(each.was_killed for each in (self.running, self.replica) if each)

    def ending(self) -> str:
        """Return the end of the subject's output, in a sentence; empty while it is stopped."""
        return self.running.ending() if self.running else ""


class Answered(Protocol):
    """An answer of a subject."""

    @property
    def status(self) -> int:
        """The status; 0 if no answer came."""


AnyRoom = TypeVar("AnyRoom", bound=Room)
AnyAnswer = TypeVar("AnyAnswer", bound=Answered)


@dataclass(slots=True, kw_only=True, eq=False)
class Play(ABC, Generic[AnyRoom, AnyAnswer]):
    """The tools of a case: a room, and the record of requests and answers."""

    room: AnyRoom
    name: str
    patience_s: float
    """The most seconds of an answer."""
    exchanges: list[Exchange] = field(default_factory=list)
    """What happened, for the report."""
    answers: list[AnyAnswer] = field(default_factory=list)
    since: int = 0
    """The height of the chain at the beginning of the play."""
    _drawn: int = 0

    @abstractmethod
    async def ready(self) -> Self:
        """Note the height of the chain."""

    def draw(self) -> bytes:
        """Return 32 new random bytes."""
        self._drawn += 1
        return self.room.rng.secret(f"{self.name} {self._drawn}")

    async def wait(self, seconds: float) -> None:
        """Wait in real time."""
        await CLOCK.sleep(seconds)

    def say(self, about: str, moved: Iterable[Transfer] = ()) -> None:
        """Write a sentence for the report, with transfers."""
        self.exchanges.append(Exchange(about, transfers=tuple(each.movement for each in moved)))


BATCH = 10
"""The plays in a shared room between two good payments."""
START = "the judge must start it: --start COMMAND"
CONFIRMED_JAMS = 2
"""The jams that a second play confirms; later jams count without a second play."""
MOST_ENDS = 2
"""Unexplained ends of a subject until they count as a failure."""
ENDS = Violation(
    expected="it goes on running",
    actual="",
    why="nobody is served until somebody starts it again",
    demand=DemandKey.GOES_ON_RUNNING,
)
BETWEEN = "between two plays"
EXIT_S = 0.3
"""The port of a crashed process closes before the exit is known: the seconds in between."""
MOST_JAMS = 12
"""The most jamming plays that the judge singles out: further ones show nothing new."""

AnyPlay = TypeVar("AnyPlay", bound=Play[Any, Any])
RoomResults = CaseResults[RoomCase]


@dataclass(slots=True)
class Trouble:
    """The subject's failures so far, and their consequences for the next play.

    | known so far | the next play |
    | --- | --- |
    | `MOST_JAMS` plays have jammed the subject | a jam is not singled out any more |
    | `CONFIRMED_JAMS` plays have jammed it twice | a jam counts at once |
    | it has ended twice `in_play` | a play in which it ends is inconclusive |
    | `MOST_ENDS` `ends` that failed no demand | the control has failed |
    | it is `lost` | nothing is played: the user's own subject serves nobody any more |
    """

    jams: int = 0
    confirmed: int = 0
    in_play: str = ""
    ends: list[str] = field(default_factory=list)
    """How the subject ended, after which play, and no demand has failed for it."""
    lost: str = ""

    def needs_no_second(self, first: Played[Any]) -> bool:
        """Tell whether a failed play is certain already, or cannot be repeated."""
        only_jams = first.jams and not (first.ended or first.fails_too)
        return bool(self.lost) or (only_jams and self.confirmed >= CONFIRMED_JAMS)

    def ended(self, name: str, *plays: Played[Any], is_charged: bool) -> None:
        """Note that the subject ended by itself in a play, in the repetition, or in both."""
        ends = [play.ended for play in plays if play.ended]
        if len(ends) == len(plays):
            self.in_play = name
        if not (is_charged and all(play.ended or play.jams for play in plays)):
            self.ends += [f"{how}, after {name}" for how in ends]


@dataclass(slots=True, kw_only=True, eq=False)
class RoomJudge(ABC, Generic[AnyRoom, AnyPlay]):
    """One judgement of one subject; a subclass opens rooms and makes good payments."""

    plain: ClassVar[RoomKind]
    """The usual kind of room."""
    beside: ClassVar[int]
    """The number of waiting plays at the same time, beside the others."""
    after: ClassVar[Violation]
    """The violation of a failed good payment after a play."""

    subject: Startable[Any]
    network: Network = BASE_SEPOLIA
    dialects: tuple[Any, ...] = ()
    """The dialects whose control has passed."""
    seed: int = 0
    patience_s: float = PATIENCE_S
    jobs: int = 0
    """The plays at the same time; 0 is one play for each core."""
    port: int = 0
    """The port of the facilitator or node beside the subject, if the user chose a port."""
    starts: int = 0
    start_s: float = 0
    plays: int = 0
    """The plays of cases, repetitions included."""
    begins: int = 0
    """The plays and the good payments beside them."""
    trouble: Trouble = field(default_factory=Trouble)
    tell: Tell = lambda text: None
    """Tells the user that the subject does not answer; `once` tells only the first time."""
    opened: int = 0
    """The number of opened rooms."""
    controls: RoomResults = field(default_factory=list)
    """The controls played before any other play, in the `dialects`."""
    _idle: dict[RoomKind, list[AnyRoom]] = field(default_factory=dict)
    _rooms: list[AnyRoom] = field(default_factory=list)
    _busy: asyncio.Semaphore = field(init=False)
    _waiting: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        is_single = self.subject.is_single
        self.jobs = 1 if is_single else self.jobs or os.cpu_count() or 2
        self._busy = asyncio.Semaphore(self.jobs)
        self._waiting = self._busy if is_single else asyncio.Semaphore(self.beside)

    # --- the methods of each subject --------------------------------------------------------

    @abstractmethod
    async def open(self, kind: Any, name: str) -> AnyRoom:
        """Open a room of this kind, and start the subject in it.

        Raises `NotReady`, and `ChainError` for a chain that is not installed.
        """

    @abstractmethod
    def play(self, room: AnyRoom, dialect: Any, name: str, patience_s: float) -> AnyPlay:
        """Return a play in a room, before it begins."""

    @abstractmethod
    async def try_good_payment(self, room: AnyRoom, dialects: Sequence[Any] = ()) -> str:
        """Make a good payment in each dialect; return why a payment fails, "" if all settle."""

    @property
    def is_fixed(self) -> bool:
        """Whether the user has started the subject: then there is one room, and no restart."""
        return isinstance(self.subject, RunsAlready)

    # --- rooms ------------------------------------------------------------------------------

    async def room(self, kind: RoomKind | None = None, *, is_fresh: bool = False) -> AnyRoom:
        """Return an empty room of this kind; raises `NotReady` and `ChainError`.

        In a room that `is_fresh`, the subject has just been started. A subject started by its user
        has one room for all plays. Raises `Lacking` for a kind of room that needs another world.
        """
        kind = kind or self.plain
        if self.is_fixed and kind.lacks:
            raise Lacking(f"it needs {kind.lacks}: {START}")
        if self.is_fixed and self._rooms:
            return self._rooms[0]
        while not is_fresh and (idle := self._idle.get(kind)):
            if not (room := idle.pop()).has_ended:
                return room
            self._count(room, BETWEEN)
            await self.leave(room, keep=False)
        if self.subject.is_single and self._rooms:  # of another kind
            self._count(self._rooms[0], BETWEEN)
            await self.leave(self._rooms[0], keep=False)
        self.opened += 1
        with patiently(self.tell, f"{self.subject.shown} is started, and does not answer"):
            room = await self.open(kind, f"{kind.name} {self.opened}")
        self._rooms.append(room)
        self.starts += room.starts
        self.start_s = max(self.start_s, room.start_s)
        return room

    async def leave(self, room: AnyRoom, *, keep: bool) -> None:
        """Give a room back, or close the room."""
        if self.is_fixed:
            return
        if keep and not room.has_ended:
            self._idle.setdefault(room.kind, []).append(room)
            return
        if keep:
            self._count(room, "after a good payment")
        self._rooms.remove(room)
        for idle in self._idle.values():
            if room in idle:
                idle.remove(room)
        await room.close()

    def _count(self, room: AnyRoom, when: str) -> None:
        """Count the end of a room's subject, if it ended by itself."""
        if room.has_ended and not room.was_killed:
            self.trouble.ends.append(f"{room.has_ended}, {when}")

    async def close(self) -> None:
        """Close every room, and then raise the first error."""
        rooms, self._rooms = self._rooms, []
        self._idle.clear()
        ended = await asyncio.gather(*(room.close() for room in rooms), return_exceptions=True)
        for wrong in ended:
            if wrong is not None:
                raise wrong

    # --- plays ------------------------------------------------------------------------------

    async def begun(
        self, room: AnyRoom, dialect: Any, name: str, patience_s: float | None = None
    ) -> AnyPlay:
        """Begin a play in a room, and return the play."""
        self.begins += 1
        named = f"{name} {self.begins} in {room.name}"
        return await self.play(room, dialect, named, patience_s or self.patience_s).ready()

    async def played(self, group: Sequence[RoomCase], room: AnyRoom) -> Played[RoomCase]:
        """Play the common play of some cases in a room, and test each case."""
        first = group[0]
        self.plays += 1
        play = await self.begun(room, first.dialect, first.played_as)
        hangs = f"{first.name}: it does not answer, and has {play.patience_s:g} s for each answer"
        try:
            with patiently(self.tell, hangs, first.waits_s, lambda: len(play.answers)):
                played = await attempt(
                    group,
                    play,
                    lambda: first.play(play),
                    lambda case, observed: case.test(play, observed),
                )
        finally:
            await room.tidy()
        return replace(played, log=room.ending())

    def with_end(self, played: Played[RoomCase], room: AnyRoom) -> Played[RoomCase]:
        """Return a play during which the subject ended by itself: its answers are no findings."""
        if not (how := room.has_ended) or room.was_killed:
            return played
        return replace(played, found={}, left=Inconclusive(how), ended=how, log=room.ending())

    async def run(
        self, cases: Sequence[RoomCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[RoomCase, CaseResult]]:
        """Play the cases; yield each case with a certain result.

        Controls come last: controls fail if the subject ended by itself in several plays. Then a
        control that is not among the cases has failed, too.
        """
        chosen = {*cases}
        controls = [each for each in self.controls if each[0] not in chosen]

        async def work(batch: list[list[RoomCase]]) -> RoomResults:
            waits = max(group[0].waits_s for group in batch)
            async with self._waiting if waits else self._busy:
                for case in (case for group in batch for case in group):
                    on_begin(case.id)
                return await self._judged(batch)

        size = 1 if self.is_fixed else BATCH
        async for case, found in side_by_side(map(work, _batches(by_play(cases), size))):
            if case.is_control and found.outcome is not Outcome.FAILED:
                controls.append((case, found))
            else:
                yield case, found
        for room in (room for rooms in self._idle.values() for room in rooms):
            self._count(room, BETWEEN)
        for case, found in controls:
            its = self._with_ends(case, found)
            if its is not found or case in chosen:
                yield case, its

    def _with_ends(self, case: RoomCase, found: CaseResult) -> CaseResult:
        """Return the result of a control: a failure if the subject keeps ending by itself."""
        if len(ends := self.trouble.ends) < MOST_ENDS:
            return found
        fault = replace(ENDS, actual=f"{counted(len(ends), 'time')}: {ends[0]}")
        failed = result(case, fault, tuple(map(Exchange, ends)))
        return msgspec.structs.replace(failed, seconds=found.seconds)

    async def every(self, cases: Sequence[RoomCase]) -> RoomResults:
        """Play the cases, and close every room; return the cases with their results."""
        try:
            return [each async for each in self.run(cases, lambda check_id: None)]
        finally:
            await self.close()

    def done(self) -> str:
        """Return what was played, and how often the subject ended by itself without a cause."""
        work = f"{counted(self.plays, 'play')}, {counted(self.starts, 'start')}"
        ends = self.trouble.ends
        return f"{work}, {counted(len(ends), 'unexplained end')} ({ends[0]})" if ends else work

    async def _judged(self, batch: list[list[RoomCase]]) -> RoomResults:
        """Play some plays in one room, then a good payment; repeat failures."""
        kind = batch[0][0].kind
        results: RoomResults = []
        todo, is_careful = batch, self.is_fixed or not kind.is_shared
        ended, end = batch[0], ""
        while todo:
            cases = [case for group in todo for case in group]
            if lost := self.trouble.lost:
                return [*results, *((case, unclear(case, lost)) for case in cases)]
            try:
                room = await self.room(kind)
            except (Lacking, ChainError) as lacking:  # a kind of room, or an anvil
                return [*results, *((case, skipped(case, Lacking(str(lacking)))) for case in cases)]
            done, broken = await self._in_turn(todo, room, is_careful=is_careful)
            if broken and self.is_fixed:  # a hiccup is no jam, and there is no other room
                broken = await self._broken(room, [done[-1][0][0].dialect])
            await self.leave(room, keep=not broken and room.running is not None)
            if broken and self.is_fixed:
                self.trouble.lost = f"nothing can be told any more, as {broken}"
            elif broken and len(done) > 1 and not is_careful:  # one of these plays has jammed
                ended, played = done[-1]
                if played.ended:
                    end = f"{played.ended}, after {ended[0].played_as}"
                    self.trouble.ends.append(end)
                if self.trouble.jams < MOST_JAMS:
                    is_careful = True  # the same plays again, each with a good payment after it
                    continue
                todo = todo[len(done) :]
                results += [each for group, _ in done for each in _doubtful(group)]
                continue
            todo = todo[len(done) :]
            for place, (group, played) in enumerate(done, 1):
                if broken and place == len(done):
                    self.trouble.jams += 1
                    played = self._jammed(played, group, broken)
                results += await self._certain(group, played)
                if end and group is ended and self.trouble.in_play:
                    self.trouble.ends.remove(end)  # all ends together are one failure
        return results

    async def _in_turn(
        self, groups: list[list[RoomCase]], room: AnyRoom, *, is_careful: bool
    ) -> tuple[list[tuple[list[RoomCase], Played[RoomCase]]], str]:
        """Play plays in a room until a good payment fails; return the plays, and why it failed.

        A good payment comes after the last play, after each play without an answer, and, if
        `is_careful`, after every play.
        """
        done = []
        for group in groups:
            played = await self.played(group, room)
            done.append((group, played))
            if room.running is None:  # the play stopped it, and could not start it again
                return done, ""
            is_last = len(done) == len(groups)
            if is_careful or is_last or _is_silent(played) or room.has_ended:
                # a jam in one dialect jams every other
                dialects = [group[0].dialect] if is_careful else []
                if broken := await self._broken(room, dialects):
                    done[-1] = group, self.with_end(played, room)
                    return done, broken
        return done, ""

    async def _broken(self, room: AnyRoom, dialects: Sequence[Any]) -> str:
        """Return how the subject has ended, else why a good payment fails; empty if neither.

        A subject that the play stopped, and could not start again, gets no good payment.
        """
        if room.running is None:
            return ""
        dialects = [each for each in dialects if each in self.dialects]  # not judged by offer only
        broken = room.has_ended or await self.try_good_payment(room, dialects)
        if broken and not room.has_ended:
            await CLOCK.sleep(EXIT_S)
        return room.has_ended or broken

    async def _certain(self, group: list[RoomCase], first: Played[RoomCase]) -> RoomResults:
        """Return the results of a play; repeat a failed play first, alone in a fresh room.

        What other plays have left in the subject is then no reason for the failure.

        If the subject ends by itself in both plays, all ends together are one failure.
        """
        trouble, name = self.trouble, group[0].played_as
        if first.ended and trouble.in_play:
            why = f"{first.ended}, as after {trouble.in_play}"
            return [(case, unclear(case, why)) for case in group]
        if trouble.needs_no_second(first) or not (first.wrong or first.unclear):
            return [(case, first.of(case)) for case in group]
        room = await self.room(group[0].kind, is_fresh=True)
        second = await self.played(group, room)
        if broken := await self._broken(room, [group[0].dialect]):
            second = self.with_end(second, room)
            if first.jams or not second.ended:  # a single end is no failure of the play
                second = self._jammed(second, group, broken)
        await self.leave(room, keep=False)
        if first.ended and second.ended and trouble.in_play:  # of another play, meanwhile
            return await self._certain(group, first)
        # A demand of the play tells its end, and its ground may say why it is only a SHOULD
        # (`body/deep`). A MAY is no demand: two ends there fail the control.
        is_charged = any(case.level != "MAY" for case in group)
        trouble.ended(name, first, second, is_charged=is_charged)
        if first.ended:
            return [(case, second.of(case)) for case in group]
        trouble.confirmed += first.jams and second.jams
        return [(case, of_two(first.of(case), second.of(case))) for case in group]

    def _jammed(
        self, played: Played[RoomCase], group: Sequence[RoomCase], broken: str
    ) -> Played[RoomCase]:
        """Return a play that has jammed the subject; the jam is a failure of one case.

        The case is one of the highest level. If one of this level has failed already, the jam is
        no second failure.
        """
        fault = replace(self.after, actual=f"after this, {broken}")
        if played.ended:
            fault = replace(ENDS, actual=f"after this, {played.ended}")
        found = dict(played.found)
        levels = [[case for case in group if case.level == level] for level in get_args(Level)]
        highest = next(filter(None, levels))
        if not any(isinstance(found.get(case), Violation) for case in highest):
            found[highest[0]] = fault
        return replace(played, found=found, jams=True, fails_too=bool(played.wrong))


def _is_silent(played: Played[RoomCase]) -> bool:
    return any(not each.status for each in played.play.answers)


def _batches(groups: list[list[RoomCase]], size: int) -> list[list[list[RoomCase]]]:
    """Return the plays of each room: plays of a shared kind of room go together."""
    alone = [[group] for group in groups if not group[0].kind.is_shared or group[0].waits_s]
    shared: dict[RoomKind, list[list[RoomCase]]] = {}
    for group in groups:
        if group[0].kind.is_shared and not group[0].waits_s:
            shared.setdefault(group[0].kind, []).append(group)
    together = [
        each[start : start + size]
        for each in shared.values()
        for start in range(0, len(each), size)
    ]
    return sorted(alone, key=lambda batch: -batch[0][0].waits_s) + together


def _doubtful(group: Sequence[RoomCase]) -> RoomResults:
    why = f"after this or another case a good payment fails, as it does after {MOST_JAMS} others"
    return [(case, unclear(case, why)) for case in group]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlay:
    """A good payment in a dialect, tried before any other play.

    `why` says why the payment failed; empty if paid. A dialect without a purchase is not judged; if
    `is_broken`, its control has failed.
    """

    why: str = ""
    played: Played[RoomCase] | None = None
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Controls:
    """The control of each dialect, tried before any other play."""

    tried: Mapping[Any, ControlPlay]

    @property
    def broken(self) -> dict[Any, str]:
        """The dialects whose control fails, with the reasons."""
        return {dialect: each.why for dialect, each in self.tried.items() if each.why}

    @property
    def has_purchase(self) -> bool:
        """Whether a purchase was possible in a dialect."""
        return any(each.played is not None for each in self.tried.values())

    @property
    def failed(self) -> list[RoomCase]:
        """The cases of the controls that have failed."""
        broken = [each.played for each in self.tried.values() if each.is_broken]
        return [case for played in broken if played for case in played.found]

    @property
    def held(self) -> RoomResults:
        """The cases of the controls that hold, and their results."""
        sound = [each.played for each in self.tried.values() if not each.why]
        return [each for played in sound if played for each in played.results]

    def result(self, case: RoomCase, *, is_invalid: bool) -> CaseResult | None:
        """Return the result of a case in a dialect whose control has failed; None in another.

        If the subject `is_invalid`, a control without a purchase counts as failed, too.
        """
        control = self.tried.get(case.dialect)
        if control is None or control.played is None or not (is_invalid or control.is_broken):
            return None
        if control.is_broken and case in control.played.found:
            return control.played.of(case)
        evidence = record(control.played.play.exchanges) if case.is_control else ()
        return unclear(case, f"its control fails: {control.why}", evidence)


async def _try_controls(
    judge: RoomJudge[AnyRoom, Any],
    dialects: Sequence[Any],
    control: Callable[[AnyRoom, Any], Awaitable[ControlPlay]],
) -> Controls:
    """Try the control of each dialect; twice if it fails, or ends the subject."""
    tried: dict[Any, ControlPlay] = {}
    for dialect in dialects:
        for _ in range(2):  # a single failed try proves nothing
            room = await judge.room()
            tried[dialect] = await control(room, dialect)
            is_sound = not (tried[dialect].is_broken or room.has_ended)
            await judge.leave(room, keep=True)
            if is_sound:
                break
    return Controls(tried)


@asynccontextmanager
async def in_rooms(
    judge: RoomJudge[AnyRoom, Any],
    options: Chosen,
    cases: Sequence[RoomCase],
    dialects: Sequence[Any],
    *,
    control: Callable[[AnyRoom, Any], Awaitable[ControlPlay]],
    left_out: Callable[[RoomCase, Mapping[Any, str]], CaseResult | None],
    plan: Callable[[Mapping[Any, str]], Plan],
    invalid: Callable[[str], str],
) -> AsyncIterator[Judging[RoomCase]]:
    """Start a subject, try the control of each dialect, and plan.

    `control` tries a good payment. `left_out` returns the result of a case outside the plan, None
    for a case in a dialect that the subject does not speak; `plan` returns the plan. Both get the
    reasons of the dialects whose control fails. If every control fails, the plan is a text that
    `invalid` makes of the reasons; if no purchase was possible in any dialect, raises `NotReady`
    with the text.
    """
    try:
        controls = await _try_controls(judge, dialects, control)
        broken = controls.broken
        judge.dialects = tuple(dialect for dialect in dialects if dialect not in broken)
        judge.controls = controls.held
        planned = plan(broken)
        is_invalid = not (judge.dialects or controls.failed or planned.cases)
        if is_invalid:
            nothing = f"{options.shown} {invalid(why_each(broken))}"
            if not controls.has_purchase:
                raise NotReady(nothing)
            planned = Plan(lines=(nothing,))
        to_play = {*planned.cases}
        known = dict.fromkeys([*controls.failed, *cases])
        results = {
            case: controls.result(case, is_invalid=is_invalid) or left_out(case, broken)
            for case in known
            if case not in to_play
        }
        unplayed = {case: its for case, its in results.items() if its is not None}
        silent = {case.dialect for case, its in results.items() if its is None}
        unspoken = {str(each): why for each, why in broken.items() if each in silent}
        yield Judging(
            judge=judge,
            cases=[case for case in known if case in unplayed or case in to_play],
            rerun=options.rerun,
            left_out=unplayed.__getitem__,
            done=judge.done,
            plan=replace(planned, unspoken=unspoken),
        )
    except OSError as wrong:
        raise NotReady(f"{options.shown}: {wrong}") from wrong
    except ChainError as wrong:
        raise NotReady(str(wrong)) from wrong
    finally:
        await judge.close()


def why_each(broken: Mapping[Any, str]) -> str:
    """Return why the control of each dialect failed."""
    return "; ".join(f"{dialect}: {why}" for dialect, why in broken.items())
