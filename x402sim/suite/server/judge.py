"""Judges a server: plays in rooms, and again what has failed.

What fails is played again, and only what fails twice is told. After each play a good payment is
made; if it fails, the room is not used again, and the play before it has broken the server.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from x402sim.clock import stopwatch
from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.report.results import CaseResult
from x402sim.suite.played import Found, Violation, result, skipped, unclear
from x402sim.suite.process import last_line
from x402sim.suite.server.case import ServerCase
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.play import Item, Play
from x402sim.suite.server.room import Room, opened
from x402sim.suite.server.start import Server
from x402sim.suite.verdict import Inconclusive, Lacking, Skipped

PATIENCE_S = 15.0
"""How long an answer may take."""
BESIDE = 6
"""How many plays that mostly wait run beside the others."""

Outcomes = list[tuple[ServerCase, CaseResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A play that was played: what each of its cases found."""

    play: Play | None
    found: dict[ServerCase, Found]
    unclear: str = ""
    skipped: str = ""
    lacks: bool = False
    seconds: float = 0
    log: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether a demand is broken."""
        return any(isinstance(each, Violation) for each in self.found.values())


@dataclass(slots=True, kw_only=True, eq=False)
class Judge:
    """One judgement of one server."""

    server: Server
    items: Sequence[Item]
    handlers: Mapping[str, Item] = field(default_factory=dict)
    """Paid requests whose handler is not like others, by the option that names them."""
    network: Network = BASE_SEPOLIA
    dialects: tuple[Dialect, ...] = tuple(Dialect)
    seed: int = 0
    patience_s: float = PATIENCE_S
    jobs: int = field(default_factory=lambda: os.cpu_count() or 2)
    port: int = 0
    """The port of the facilitator, if somebody has been told it."""
    starts: int = 0
    start_s: float = 0
    plays: int = 0
    lost: str = ""
    """Why nothing can be told any more of one that runs already."""
    _idle: list[Room] = field(default_factory=list)
    _rooms: list[Room] = field(default_factory=list)
    _busy: asyncio.Semaphore = field(init=False)
    _waiting: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        most = self.server.most_at_once
        if most is not None:
            self.jobs = min(self.jobs, most)
        self._busy = asyncio.Semaphore(self.jobs)
        self._waiting = self._busy if most is not None else asyncio.Semaphore(BESIDE)

    # --- rooms ------------------------------------------------------------------------------

    async def room(self) -> Room:
        """Return a room that nobody is in; raises `NotReady`."""
        if self._idle:
            return self._idle.pop()
        self.starts += 1
        room = await opened(self.server, self.network, self.seed, f"room {self.starts}", self.port)
        self._rooms.append(room)
        self.start_s = max(self.start_s, room.start_s)
        return room

    async def leave(self, room: Room, *, keep: bool) -> None:
        """Give a room back, or close it."""
        if keep and not room.has_ended:
            self._idle.append(room)
            return
        self._rooms.remove(room)
        await room.close()

    async def close(self) -> None:
        """Close every room."""
        rooms, self._rooms = self._rooms, []
        self._idle.clear()
        await asyncio.gather(*(room.close() for room in rooms))

    # --- plays ------------------------------------------------------------------------------

    async def play(self, room: Room, dialect: Dialect, name: str) -> Play:
        """Return a play in a room."""
        self.plays += 1
        return await Play(
            room=room,
            dialect=dialect,
            items=self.items,
            handlers=self.handlers,
            name=f"{name} {self.plays} in {room.name}",
            patience_s=self.patience_s,
        ).begin()

    async def played(self, group: Sequence[ServerCase], room: Room) -> Played:
        """Play the play of some cases in a room, and test each."""
        elapsed, first = stopwatch(), group[0]
        play = await self.play(room, first.dialect, first.played_as)
        try:
            seen = await first.play(play)
            found = {case: case.test(play, seen) for case in group}
        except Inconclusive as why:
            return Played(play=play, found={}, unclear=str(why), seconds=elapsed())
        except Skipped as why:
            lacks = isinstance(why, Lacking)
            return Played(play=play, found={}, skipped=str(why), lacks=lacks, seconds=elapsed())
        finally:
            room.tidy()
        log = last_line(room.running.log()) if room.running else ""
        return Played(play=play, found=found, seconds=elapsed(), log=log)

    async def sound(self, room: Room, dialect: Dialect) -> str:
        """Make a good payment; return why it fails, "" if it does not."""
        play = await self.play(room, dialect, "sound")
        try:
            answer = await play.pay(await play.draft())
        except Inconclusive as why:
            return str(why)
        if room.has_ended:
            return room.has_ended
        return "" if answer.is_2xx else f"a good payment gets {answer.how}"

    async def run(
        self, cases: Sequence[ServerCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[ServerCase, CaseResult]]:
        """Play the cases, and yield each with its result as soon as it is certain."""
        groups: dict[str, list[ServerCase]] = {}
        for case in cases:
            groups.setdefault(case.played_as, []).append(case)
        done: asyncio.Queue[Outcomes | BaseException] = asyncio.Queue()

        async def work(group: list[ServerCase]) -> None:
            try:
                async with self._waiting if group[0].waits_s else self._busy:
                    for case in group:
                        on_begin(case.id)
                    await done.put(await self._judged(group))
            except Exception as error:  # noqa: BLE001 - raised again where it is waited for
                await done.put(error)

        longest_first = sorted(groups.values(), key=lambda group: -group[0].waits_s)
        tasks = [asyncio.create_task(work(group)) for group in longest_first]
        try:
            for _ in tasks:
                results = await done.get()
                if isinstance(results, BaseException):
                    raise results
                for case, result in results:
                    yield case, result
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _judged(self, group: list[ServerCase]) -> Outcomes:
        """Play a play; if it fails, once more, in a room that sells."""
        if self.lost:
            return [(case, unclear(case, self.lost)) for case in group]
        played = await self._once(group)
        if not (played.is_broken or played.unclear) or self.lost:
            return [(case, _result(case, played)) for case in group]
        again = await self._once(group)
        results: Outcomes = []
        for case in group:
            wrong, repeated = played.found.get(case), again.found.get(case)
            if isinstance(wrong, Violation) and not isinstance(repeated, Violation):
                why = again.unclear or "it did not when it was played again"
                results.append((case, unclear(case, f"it failed ({wrong.actual}), and {why}")))
            else:
                shown = again if played.unclear else played
                results.append((case, _result(case, shown)))
        return results

    async def _once(self, group: Sequence[ServerCase]) -> Played:
        """Play a play in a room, and a good payment after it."""
        room = await self.room()
        try:
            played = await self.played(group, room)
        except BaseException:
            await self.leave(room, keep=False)
            raise
        broken = room.has_ended
        if not group[0].is_control:
            broken = broken or await self.sound(room, group[0].dialect)
        is_fixed = self.server.most_at_once is not None and self.port != 0
        if broken and is_fixed:
            self.lost = f"nothing can be told any more, as {broken}"
        await self.leave(room, keep=not broken or is_fixed)
        return _with(played, group, broken) if broken else played


def _with(played: Played, group: Sequence[ServerCase], broken: str) -> Played:
    """Return a play that has broken the server: a MUST says so, unless one is broken already."""
    found, about = dict(played.found), "a good payment that is served afterwards"
    if not played.is_broken:
        fault = Violation(expected=about, actual=f"after this, {broken}", why="nobody is served")
        for case in sorted(group, key=lambda case: case.level != "MUST")[:1]:
            found[case] = fault
    return replace(played, found=found)


def _result(case: ServerCase, played: Played) -> CaseResult:
    if case in played.found:
        told = played.play.told if played.play else ""
        return result(case, played.found[case], told, played.log, played.seconds)
    if played.skipped:
        return skipped(case, played.skipped, lacks=played.lacks)
    return unclear(case, played.unclear or "the server ended before it was looked at")
