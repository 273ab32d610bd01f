"""Judges a facilitator: plays in rooms, good payments in between, and again what has failed.

Plays that leave the world as it was share rooms; a good payment is made in each now and then. If it
fails, what was played since then is played again one by one, and who broke it is told. What fails
is played again in another room, and only what fails twice is told.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

from x402sim.chain.base import ChainError
from x402sim.clock import stopwatch
from x402sim.protocol.networks import BASE_SEPOLIA, Network
from x402sim.report.results import CaseResult
from x402sim.rng import Rng
from x402sim.suite.facilitator.case import FacilitatorCase, is_paid, settlement
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, ROUGH, Floor, Room, opened
from x402sim.suite.facilitator.start import AtUrl, Facilitator
from x402sim.suite.played import Found, Violation, result, skipped, unclear
from x402sim.suite.process import last_line
from x402sim.suite.verdict import Inconclusive, Lacking, Skipped

PATIENCE_S = 15.0
"""How long an answer may take."""
BATCH = 10
"""How many plays in a shared room go between two good payments."""
START = "the judge must start the facilitator: --start COMMAND"
JAMS = 2
"""How many jams are played again: one more of them has repeated already."""
MOST_JAMS = 12
"""How many plays that jam it are looked for one by one: more of them tell nothing new."""
LEAST_S, TIMES = 3.0, 20
"""How long a good payment may take, at least, and how many times as long as the first did."""
BESIDE = 8
"""How many plays that mostly wait run beside the others."""

Outcomes = list[tuple[FacilitatorCase, CaseResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A play that was played: what each of its cases found."""

    play: Play | None
    found: dict[FacilitatorCase, Found]
    unclear: str = ""
    """Why nothing can be told."""
    skipped: str = ""
    """Why it was not played: it does not apply, or a need `lacks`."""
    lacks: bool = False
    seconds: float = 0
    log: str = ""
    jams: bool = False
    """Whether a good payment failed after it."""

    @property
    def is_silent(self) -> bool:
        """Whether an answer did not come."""
        return self.play is not None and any(not each.status for each in self.play.answers)

    @property
    def has_fault(self) -> bool:
        """Whether a demand is broken."""
        return any(isinstance(each, Violation) for each in self.found.values())


@dataclass(slots=True, kw_only=True, eq=False)
class Judge:
    """One judgement of one facilitator."""

    facilitator: Facilitator
    network: Network = BASE_SEPOLIA
    dialects: tuple[Dialect, ...] = ()
    """The dialects that it has, as the controls have shown."""
    seed: int = 0
    patience_s: float = PATIENCE_S
    jobs: int = field(default_factory=lambda: os.cpu_count() or 2)
    port: int = 0
    """The port of the node, if somebody has been told it."""
    is_blind: bool = False
    """Whether its node is another's, so that no payment of ours can be good."""
    starts: int = 0
    start_s: float = 0
    control_s: float = 0
    """How long a good payment took, verified and settled."""
    plays: int = 0
    jams: int = 0
    """How many plays have jammed it twice."""
    culprits: int = 0
    """How many plays have jammed it."""
    lost: str = ""
    """Why nothing can be told any more of one that runs already."""
    _idle: dict[Floor, list[Room]] = field(default_factory=dict)
    _rooms: list[Room] = field(default_factory=list)
    _opened: int = 0
    _busy: asyncio.Semaphore = field(init=False)
    _waiting: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        most = self.facilitator.most_at_once
        if most is not None:
            self.jobs = min(self.jobs, most)
        self._busy = asyncio.Semaphore(self.jobs)
        self._waiting = self._busy if most is not None else asyncio.Semaphore(BESIDE)

    @property
    def is_fixed(self) -> bool:
        """Whether it runs already, and once."""
        return isinstance(self.facilitator, AtUrl)

    # --- rooms ------------------------------------------------------------------------------

    async def room(self, floor: Floor) -> Room:
        """Return a room of this kind that nobody is in; raises `NotReady` and `ChainError`.

        One that runs already has one room, in which everything is played; for a room of another
        kind it raises `Lacking`.
        """
        if self.is_fixed and floor not in (PLAIN, ROUGH):
            raise Lacking(f"it needs a chain of its own kind ({floor.name}): {START}")
        if self.is_fixed and self._rooms:
            return self._rooms[0]
        idle = self._idle.get(floor, [])
        if idle:
            return idle.pop()
        if (most := self.facilitator.most_at_once) is not None:
            while len(self._rooms) >= most:  # one of another kind has the only place
                await self.leave(self._rooms[0], keep=False)
        self._opened += 1
        room = await opened(
            self.facilitator,
            floor,
            self.network,
            self.seed,
            f"{floor.name} {self._opened}",
            self.patience_s,
            self.port,
        )
        self._rooms.append(room)
        self.starts += room.starts
        self.start_s = max(self.start_s, room.start_s)
        if floor.chain == "anvil" and (wrong := await self.sound(room, self.dialects[:1])):
            await self.leave(room, keep=False)  # a jam there would be no finding of a case
            raise ChainError(f"on anvil, whose token is OpenZeppelin's, it fails: {wrong}")
        return room

    async def leave(self, room: Room, *, keep: bool) -> None:
        """Give a room back, or close it."""
        if self.is_fixed:
            return
        if keep and not room.has_ended:
            self._idle.setdefault(room.floor, []).append(room)
            return
        self._rooms.remove(room)
        for idle in self._idle.values():
            if room in idle:
                idle.remove(room)
        await room.close()

    async def close(self) -> None:
        """Close every room."""
        rooms, self._rooms = self._rooms, []
        self._idle.clear()
        await asyncio.gather(*(room.close() for room in rooms))

    # --- plays ------------------------------------------------------------------------------

    async def played(self, group: Sequence[FacilitatorCase], room: Room, again: str = "") -> Played:
        """Play the play of some cases in a room, and test each."""
        elapsed, first = stopwatch(), group[0]
        self.plays += 1
        play = await Play(
            room=room,
            dialect=first.dialect,
            rng=Rng(self.seed),
            name=f"{first.played_as}{again} in {room.name}",
            patience_s=self.patience_s,
        ).begin()
        try:
            seen = await first.play(play)
            found = {case: case.test(play, seen) for case in group}
        except Inconclusive as why:
            return Played(play=play, found={}, unclear=str(why), seconds=elapsed())
        except Skipped as why:
            lacks = isinstance(why, Lacking)
            return Played(play=play, found={}, skipped=str(why), lacks=lacks, seconds=elapsed())
        finally:
            await room.tidy()
        log = last_line(room.running.log()) if room.running else ""
        return Played(play=play, found=found, seconds=elapsed(), log=log)

    async def sound(self, room: Room, dialects: Sequence[Dialect] = ()) -> str:
        """Make a good payment in each dialect; return why one fails, "" if none does."""
        if self.is_blind:
            return ""
        for dialect in dialects or self.dialects:
            elapsed, most_s = stopwatch(), self.patience_s
            if self.control_s:
                most_s = min(most_s, max(LEAST_S, TIMES * self.control_s))
            play = await Play(
                room=room,
                dialect=dialect,
                rng=Rng(self.seed),
                name=f"control {dialect} {self._opened} {self.plays} in {room.name}",
                patience_s=most_s + (room.floor.block_s or 0),
            ).begin()
            self.plays += 1
            wrong = is_paid(play, await settlement(play, await play.draft()))
            if wrong is not None:
                return f"a good payment ({dialect}): {wrong.actual}"
            self.control_s = self.control_s or elapsed()
        return ""

    async def run(
        self, cases: Sequence[FacilitatorCase], on_begin: Callable[[str], None]
    ) -> AsyncIterator[tuple[FacilitatorCase, CaseResult]]:
        """Play the cases, and yield each with its result as soon as it is certain."""
        groups: dict[str, list[FacilitatorCase]] = {}
        for case in cases:
            groups.setdefault(case.played_as, []).append(case)
        done: asyncio.Queue[Outcomes | BaseException] = asyncio.Queue()

        async def work(batch: list[list[FacilitatorCase]]) -> None:
            try:
                waits = max(group[0].waits_s for group in batch)
                async with self._waiting if waits else self._busy:
                    await done.put(await self._judged(batch, on_begin))
            except Exception as error:  # noqa: BLE001 - raised again where it is waited for
                await done.put(error)

        batches = _batches(list(groups.values()))
        tasks = [asyncio.create_task(work(batch)) for batch in batches]
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

    async def _judged(
        self, batch: list[list[FacilitatorCase]], on_begin: Callable[[str], None]
    ) -> Outcomes:
        """Play some plays in one room and a good payment after them; what fails, once more.

        If the good payment fails, they are played again with one after each, to see who it is.
        """
        floor = batch[0][0].floor
        for case in (case for group in batch for case in group):
            on_begin(case.id)
        results: Outcomes = []
        todo, is_careful = batch, not floor.is_shared
        while todo:
            cases = [case for group in todo for case in group]
            if self.lost:
                return [*results, *((case, unclear(case, self.lost)) for case in cases)]
            try:
                room = await self.room(floor)
            except (Lacking, ChainError) as lacking:  # a kind of room, or an anvil
                return [*results, *((case, skipped(case, str(lacking))) for case in cases)]
            done, broken = await self._in_turn(todo, room, is_careful=is_careful)
            await self.leave(room, keep=not broken)
            if broken and self.is_fixed:
                self.lost = f"nothing can be told any more, as {broken}"
            elif broken and not is_careful and len(done) > 1 and self.culprits < MOST_JAMS:
                is_careful = True
                continue
            elif broken and not is_careful and len(done) > 1:
                todo = todo[len(done) :]
                results += [each for group, _ in done for each in _doubtful(group)]
                continue
            todo = todo[len(done) :]
            for place, (group, played) in enumerate(done, 1):
                is_culprit = bool(broken) and place == len(done)
                self.culprits += is_culprit
                results += await self._certain(
                    group, _with(played, group, _after(broken)) if is_culprit else played
                )
        return results

    async def _in_turn(
        self, groups: list[list[FacilitatorCase]], room: Room, *, is_careful: bool
    ) -> tuple[list[tuple[list[FacilitatorCase], Played]], str]:
        """Play plays in a room until a good payment fails there; return them, and why it failed.

        One is made at the end, after an answer that did not come, and if it `is_careful` after
        each play.
        """
        done = []
        for group in groups:
            played = await self.played(group, room)
            done.append((group, played))
            is_last = len(done) == len(groups)
            if is_careful or is_last or played.is_silent or room.has_ended:
                # what jams one dialect jams every other
                dialects = [group[0].dialect] if is_careful else []
                if broken := room.has_ended or await self.sound(room, dialects):
                    return done, broken
        return done, ""

    async def _certain(self, group: list[FacilitatorCase], first: Played) -> Outcomes:
        """Return the results of a play; one that failed is played again in another room.

        Of jams, a few are; after them, one that is found again has repeated.
        """
        if not first.has_fault:
            return [(case, _result(case, first)) for case in group]
        if self.lost or (first.jams and self.jams >= JAMS):
            return [(case, _result(case, first)) for case in group]
        room = await self.room(group[0].floor)
        second = await self.played(group, room, " again")
        broken = room.has_ended or await self.sound(room, [group[0].dialect])
        await self.leave(room, keep=not broken)
        if broken:
            second = _with(second, group, _after(broken))
        self.jams += first.jams and second.jams
        results: Outcomes = []
        for case in group:
            wrong, repeated = first.found.get(case), second.found.get(case)
            if isinstance(wrong, Violation) and not isinstance(repeated, Violation):
                why = second.unclear or "it did not when it was played again"
                results.append((case, unclear(case, f"it failed ({wrong.actual}), and {why}")))
            else:
                results.append((case, _result(case, first)))
        return results


def _batches(groups: list[list[FacilitatorCase]]) -> list[list[list[FacilitatorCase]]]:
    """Return the plays as they go into rooms: those of a shared kind together."""
    alone = [[group] for group in groups if not group[0].floor.is_shared or group[0].waits_s]
    shared: dict[Floor, list[list[FacilitatorCase]]] = {}
    for group in groups:
        if group[0].floor.is_shared and not group[0].waits_s:
            shared.setdefault(group[0].floor, []).append(group)
    together = [
        each[start : start + BATCH]
        for each in shared.values()
        for start in range(0, len(each), BATCH)
    ]
    return sorted(alone, key=lambda batch: -batch[0][0].waits_s) + together


def _after(broken: str) -> Violation:
    return Violation(
        expected="a good payment that settles afterwards",
        actual=f"after this, {broken}",
        why="it serves nobody any more",
    )


def _doubtful(group: Sequence[FacilitatorCase]) -> Outcomes:
    """Return the results of plays one of which has jammed it, as so many others have: whatever
    they found may follow from that.
    """
    why = f"after this or another case a good payment fails, as it does after {MOST_JAMS} others"
    return [(case, unclear(case, why)) for case in group]


def _with(played: Played, group: Sequence[FacilitatorCase], fault: Violation) -> Played:
    """Return a play after which a good payment fails: a MUST has this fault, of its cases, unless
    one is broken already, or else what is demanded besides.
    """
    found = dict(played.found)
    broken = {case.level for case in group if isinstance(found.get(case), Violation)}
    held = [case for case in group if case.level != "MAY" and case.level not in broken]
    if "MUST" not in broken:
        for case in sorted(held, key=lambda case: case.level != "MUST")[:1]:
            found[case] = fault
    return replace(played, found=found, unclear="", jams=True)


def _result(case: FacilitatorCase, played: Played) -> CaseResult:
    if case in played.found:
        told = played.play.told if played.play else ""
        return result(case, played.found[case], told, played.log, played.seconds)
    if played.skipped:
        return skipped(case, played.skipped, lacks=played.lacks)
    return unclear(case, played.unclear or "the facilitator ended before it was looked at")
