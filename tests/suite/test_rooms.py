"""The engine of rooms, with a subject that plays by a script: each rule of its head, by name."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import pytest

from x402sim.chain.base import ChainError
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.rng import Rng
from x402sim.spec.ground import Ground, GroundType
from x402sim.suite import rooms, subject
from x402sim.suite.case import of_id
from x402sim.suite.command import FOUND_SOMETHING, HELD, conclude
from x402sim.suite.engine import Judging, Plan, Played, result, skipped
from x402sim.suite.kept import Written
from x402sim.suite.options import PATIENCE_S
from x402sim.suite.report.causes import cause
from x402sim.suite.report.exchange import Exchange
from x402sim.suite.report.results import CaseResult, DemandKey, Outcome, Result
from x402sim.suite.rooms import ControlPlay
from x402sim.suite.row import RoomCase, RoomKind
from x402sim.suite.started import CLOCK, Running, RunsAlready
from x402sim.suite.subject import once
from x402sim.suite.verdict import Inconclusive, Lacking, NotApplicable, NotReady, Violation


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait no longer than needed for the exit of a process."""
    monkeypatch.setattr(rooms, "EXIT_S", 0.02)


SHARED, ALONE = RoomKind(name="shared", is_shared=True), RoomKind(name="alone")
GROUND = Ground(GroundType.OURS, (), "a test")
WRONG = Violation(expected="right", actual="wrong")
NODE_ENDS = (
    b"    throw\n    ^\nError: the node timed out\n    at pay (pay.mjs:7:1)\n\nNode.js v20.20.2\n"
)


@dataclass
class Process:
    """Stands for one start of a command."""

    subject: "Scripted"
    plays: int = 0
    returncode: int | None = None
    is_closed: bool = False
    ends_late: bool = False
    hiccups: bool = False
    log: Written = field(default_factory=Written)

    def play(self, name: str) -> str:
        """Act by the next letter of the play's script; return the letter."""
        self.plays += 1
        self.subject.did.append(name)
        letters = self.subject.script.get(name, ".")
        time = min(self.subject.did.count(name), len(letters))
        letter = "e" if self.plays == self.subject.after else letters[time - 1]
        if letter == "e" and self.subject.most:
            self.subject.most -= 1
            self.is_closed = True
            self.log.last += NODE_ENDS
            if self.subject.exit_s:
                asyncio.get_running_loop().call_later(self.subject.exit_s, self.exit)
            else:
                self.exit()
        self.is_closed |= letter in "jJk"
        if letter == "k":
            self.returncode = -9
        self.ends_late, self.hiccups = letter == "g", letter == "h"
        return letter

    def exit(self) -> None:
        self.returncode = 3


@dataclass
class Scripted:
    """A command with a script for each play, a letter each time it is played; the last one lasts.

    It holds (.), fails (x), ends by itself (e) or with the next good payment (g), is killed by the machine (k), jams (j), fails
    and jams (J), is silent (s), refuses one good payment (h), or the play stays unclear (?). It also ends at each start's play number `after`, in all `most` times.
    """

    script: Mapping[str, str] = field(default_factory=dict)
    after: int = 0
    exit_s: float = 0
    most: int = 1000
    shown: str = "scripted"
    is_single: bool = False
    did: list[str] = field(default_factory=list)
    """The plays, good payments and starts, in order."""
    tidied: int = 0
    ended: list[str] = field(default_factory=list)
    """The kills and stops, in order."""
    wrong: NotReady | None = None
    """Why it does not start."""
    stops: list[Exception] = field(default_factory=list)
    """The errors of the next stops."""

    @asynccontextmanager
    async def start(self, given: object) -> AsyncIterator[Running]:
        self.did.append("start")
        if self.wrong:
            raise self.wrong
        kill = partial(self.ended.append, "kill")
        yield Running("http://127.0.0.1:9", Process(self), kill)  # type: ignore[arg-type]
        self.ended.append("stop")
        if self.stops:
            raise self.stops.pop()


class Owned(RunsAlready):
    """A scripted subject that its user has started."""

    @asynccontextmanager
    async def start(self, given: object) -> AsyncIterator[Running]:
        async with SUBJECTS[self.url].start(given) as running:
            yield running


SUBJECTS: dict[str, Scripted] = {}


class Room(rooms.Room):
    def given(self) -> None:
        return None

    async def tidy(self) -> None:
        if isinstance(self.subject, Scripted):
            self.subject.tidied += 1


@dataclass(slots=True, kw_only=True, eq=False)
class Play(rooms.Play[Any, Any]):
    async def ready(self) -> "Play":
        return self


@dataclass(slots=True, kw_only=True, eq=False)
class Judge(rooms.RoomJudge[Any, Any]):
    plain: ClassVar[RoomKind] = SHARED
    beside: ClassVar[int] = 2
    after: ClassVar[Violation] = Violation(expected="a good payment", actual="")
    closed: list[str] = field(default_factory=list)
    """The names of the rooms whose worlds are closed."""
    paid_in: list[list[str]] = field(default_factory=list)
    """The dialects of each good payment; empty for all."""

    async def open(self, kind: Any, name: str) -> Any:
        seconds = 0.003 * self.opened  # no two rooms are closed at the same time

        async def close() -> None:
            await asyncio.sleep(seconds)
            self.closed.append(name)

        world = AsyncExitStack()
        world.push_async_callback(close)
        room = Room(
            name=name, kind=kind, network=BASE_SEPOLIA, subject=self.subject, rng=Rng(0),
            http=None, _stack=world,  # type: ignore[arg-type]
        )  # fmt: skip
        return await room.started()

    def play(self, room: Any, dialect: Any, name: str, patience_s: float) -> Any:
        return Play(room=room, name=name, patience_s=patience_s)

    async def try_good_payment(self, room: Any, dialects: Sequence[Any] = ()) -> str:
        process = room.running.command
        process.subject.did.append("good")
        self.paid_in.append([*dialects])
        if process.ends_late:
            process.exit()
        is_refused, process.hiccups = process.is_closed or process.hiccups, False
        return "no answer" if is_refused else ""


@dataclass
class Said:
    """An answer."""

    status: int


def case(name: str, *, is_control: bool = False, **more: Any) -> RoomCase:
    """Return a case that plays by the subject's script."""

    async def play(its: Any) -> str:
        letter = its.room.running.command.play(name)
        its.answers.append(Said(0 if letter == "s" else 200))
        if letter == "?":
            raise Inconclusive("no idea")
        return str(letter)

    def test(its: Any, letter: str) -> Violation | None:
        return WRONG if its.room.has_ended or letter in "xJ" else None

    common: dict[str, Any] = {
        "id": f"server/a/{name}", "level": "MUST", "ground": GROUND, "title": name,
        "played_as": name, "control": "server/a/control", "is_control": is_control,
        "dialect": "v2", "play": play, "test": test, "kind": SHARED,
    }  # fmt: skip
    return RoomCase(**common | more)


def judge_of(subject: Any, **more: Any) -> Judge:
    return Judge(**{"subject": subject, "jobs": 1, "dialects": ("v2",), **more})


def of(names: str, **more: Any) -> list[RoomCase]:
    return [case(each, is_control=each == "control", **more) for each in names.split()]


def judged(subject: Any, cases: str | Sequence[RoomCase], **more: Any) -> dict[str, CaseResult]:
    """Judge by cases; return the results by the names of the plays."""
    its = of(cases) if isinstance(cases, str) else cases
    return {
        each.played_as: found for each, found in asyncio.run(judge_of(subject, **more).every(its))
    }


def outcomes(found: Mapping[str, CaseResult]) -> str:
    """Return the names of the plays with the first letter of the outcome: "a:p b:f"."""
    return " ".join(f"{name}:{each.outcome[0]}" for name, each in sorted(found.items()))


def test_one_that_ends_by_itself_in_some_plays_has_one_failure() -> None:
    found = judged(Scripted({"a": "e", "b": "e"}), "control a b c")
    assert {name: each.outcome for name, each in found.items()} == {
        "control": Outcome.PASSED,
        "a": Outcome.FAILED,
        "b": Outcome.INCONCLUSIVE,
        "c": Outcome.PASSED,
    }
    assert found["a"].actual == "after this, it ended by itself, exit code 3"
    assert found["b"].reason == "it ended by itself, exit code 3, as after a"
    assert found["a"].exchanges[-1].about == "it wrote: Error: the node timed out"
    assert found["a"].evidence is not None
    assert found["a"].evidence.demand is DemandKey.GOES_ON_RUNNING
    subject = case("a")
    said = of_id([subject], {subject: found["a"]}, "")
    assert cause(said) == "it ends by itself, and serves nobody until it is started again"


def test_an_exit_that_comes_after_the_failed_payment_is_told_as_an_end() -> None:
    """A port closes before the exit of its process is known."""
    found = judged(Scripted({"a": "e"}, exit_s=rooms.EXIT_S / 2), "control a")
    assert found["a"].actual == "after this, it ended by itself, exit code 3"
    assert found["a"].exchanges[-1].about == "it wrote: Error: the node timed out"


def test_an_end_with_the_good_payment_after_a_play_is_one_of_the_play() -> None:
    found = judged(Scripted({"a": "g"}), "a")
    assert (found["a"].outcome, found["a"].actual) == (
        Outcome.FAILED, "after this, it ended by itself, exit code 3",
    )  # fmt: skip


def test_plays_that_end_it_side_by_side_are_one_failure() -> None:
    found = judged(Scripted({"a": "e", "b": "e"}), of("a b", kind=ALONE), jobs=2)
    assert sorted(each.outcome for each in found.values()) == ["failed", "inconclusive"]


def test_what_ended_it_once_is_decided_by_its_repetition_whatever_ends_it_meanwhile() -> None:
    subject = Scripted({"a": "e", "b": "e.", "c": "xe"})
    found = judged(subject, of("a b c", kind=ALONE), jobs=3)
    assert outcomes(found) == "a:f b:p c:i"
    assert [subject.did.count(each) for each in "abc"] == [2, 2, 2]


def test_one_that_ends_by_itself_at_any_time_is_told_so_once_and_not_of_what_was_played() -> None:
    found = judged(Scripted(after=3), "control a b c d e f g h")
    failed = {name: each for name, each in found.items() if each.outcome is Outcome.FAILED}
    assert [*failed] == ["control"]
    assert str(failed["control"].actual).startswith("4 times: it ended by itself, exit code 3,")
    assert all(each.outcome is Outcome.PASSED for name, each in found.items() if name != "control")


def test_an_end_that_no_repetition_shows_is_counted_and_told() -> None:
    judge = judge_of(Scripted(after=3, most=1))
    found = asyncio.run(judge.every(of("control a b c d e f g h")))
    assert {each.outcome for _, each in found} == {Outcome.PASSED}, "one end proves nothing"
    assert judge.done().endswith("1 unexplained end (it ended by itself, exit code 3, after b)")


def test_a_subject_that_does_not_start_again_is_told_so() -> None:
    """The judge has stopped the subject: neither a crash nor a refused payment."""

    async def stops(its: Any) -> None:
        its.room.running = None
        raise Inconclusive("it does not start again: locked")

    judge = judge_of(Scripted())
    results = asyncio.run(judge.every([case("a", play=stops), case("b")]))
    found = {each.title: its for each, its in results}
    assert outcomes(found) == "a:i b:p"
    assert found["a"].reason == "it does not start again: locked"
    assert judge.done() == "3 plays, 3 starts", "no room is used again"


def test_one_that_hangs_is_told_at_once_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "LONG_S", 0.5)
    told: list[str] = []

    async def hangs(its: Any) -> None:
        for _ in range(3):  # these come in time
            its.answers.append("an answer")
            await asyncio.sleep(0.01)
        assert told == []
        for _ in range(1000):
            await asyncio.sleep(0.01 * (not told))

    assert len(judged(Scripted(), [case("a", play=hangs)], tell=once(told.append))) == 1
    assert told == [
        "server/a/a [v2]: it does not answer, and has 15 s for each answer: 0.5 s until now"
    ]


def test_an_id_is_told_once_and_when_it_is_certain_in_every_dialect() -> None:
    v1, v2, mcp = (replace(case("a"), dialect=dialect) for dialect in ("v1", "v2", "mcp"))

    class Plays:
        async def run(self, cases: Any, on_begin: Any) -> AsyncIterator[tuple[Any, CaseResult]]:
            yield v2, result(v2, None)
            yield v1, result(v1, WRONG)

    judging = Judging(
        judge=Plays(),
        cases=[v1, v2, mcp],
        rerun="",
        left_out=lambda case: skipped(case, NotApplicable("only its offer is judged")),
        done=str,
        plan=Plan(cases=[v1, v2]),
    )

    async def main() -> list[Result]:
        return [each async for each in judging.run(lambda check_id: None)]

    (one,) = asyncio.run(main())
    assert one.outcome is Outcome.FAILED
    assert {each.dialect: each.outcome for each in one.cases} == {
        "v1": Outcome.FAILED,
        "v2": Outcome.PASSED,
        "mcp": Outcome.SKIPPED,
    }


# --- the rules of repetition ------------------------------------------------------------------


def test_plays_that_leave_the_world_unchanged_share_a_room_up_to_batch() -> None:
    subject, names = Scripted(), [f"p{n}" for n in range(rooms.BATCH + 1)]
    judge = judge_of(subject)
    found = dict(asyncio.run(judge.every(of(" ".join(names)))))
    assert {each.outcome for each in found.values()} == {Outcome.PASSED}
    assert subject.did == ["start", *names[:-1], "good", names[-1], "good"]
    assert (judge.plays, judge.done()) == (11, "11 plays, 1 start")
    assert judge.closed == ["shared 1"]


def test_a_good_payment_is_made_in_the_dialect_of_the_play_before_or_after_several_in_all() -> None:
    for kind, dialects in ((SHARED, []), (ALONE, ["v2"])):
        judge = judge_of(Scripted({"b": "x"}))
        asyncio.run(judge.every(of("a b" if kind is SHARED else "b", kind=kind)))
        assert judge.paid_in == [dialects, ["v2"]]


def test_the_first_play_of_a_room_that_ends_it_is_repeated_once() -> None:
    subject = Scripted({"a": "e"})
    assert outcomes(judged(subject, "a b")) == "a:f b:p"
    assert subject.did == ["start", "a", "start", "a", "start", "b", "good"]


def test_each_id_is_told_when_its_room_begins_and_a_control_once_and_last() -> None:
    begun: list[str] = []

    async def main(judge: Judge) -> list[str]:
        cases = of("control a b")
        judge.controls = [(cases[0], result(cases[0], None))]
        try:
            return [case.title async for case, _ in judge.run(cases, begun.append)]
        finally:
            await judge.close()

    assert asyncio.run(main(judge_of(Scripted()))) == ["a", "b", "control"]
    assert begun == ["server/a/control", "server/a/a", "server/a/b"]


def test_a_control_that_has_failed_is_told_so_whatever_has_ended() -> None:
    found = judged(Scripted({"control": "x", "a": "e.", "b": "e."}), "control a b")
    assert (found["control"].outcome, found["control"].actual) == (Outcome.FAILED, "wrong")


def test_the_first_end_is_told_with_the_number_of_ends() -> None:
    judge = judge_of(Scripted({"a": "e.", "b": "e."}))
    found = {
        case.title: its for case, its in asyncio.run(judge.every(of("control a b", kind=ALONE)))
    }
    first = "it ended by itself, exit code 3, after a"
    assert found["control"].actual == f"2 times: {first}"
    assert judge.done() == f"5 plays, 4 starts, 2 unexplained ends ({first})"


def test_a_good_payment_follows_each_play_without_an_answer() -> None:
    subject = Scripted({"b": "s"})
    assert outcomes(judged(subject, "a b c")) == "a:p b:p c:p"
    assert subject.did == ["start", "a", "b", "good", "c", "good"]


def test_a_play_that_changes_the_world_has_a_room_alone_and_a_good_payment_after_it() -> None:
    subject = Scripted({"b": "j."})
    found = judged(subject, of("a b c", kind=ALONE))
    assert outcomes(found) == "a:p b:i c:p"
    assert subject.did == [
        "start", "a", "good", "b", "good",
        "start", "b", "good",  # a room with a failed good payment is not used again
        "start", "c", "good",
    ]  # fmt: skip


def test_plays_of_a_room_that_was_jammed_are_repeated_with_a_good_payment_after_each() -> None:
    subject = Scripted({"b": "j"})
    found = judged(subject, "a b c d")
    assert outcomes(found) == "a:p b:f c:p d:p"
    assert (found["b"].expected, found["b"].actual) == ("a good payment", "after this, no answer")
    assert subject.did == [
        "start", "a", "b", "c", "d", "good",
        "start", "a", "good", "b", "good",
        "start", "b", "good",  # alone in a fresh room
        "start", "c", "good", "d", "good",
    ]  # fmt: skip


def test_a_failed_play_is_played_again_alone_in_a_fresh_room_and_has_failed_if_both_fail() -> None:
    subject = Scripted({"a": "x", "b": "x."})
    found = judged(subject, "a b c")
    assert outcomes(found) == "a:f b:i c:p"
    again = ["start", "a", "good", "start", "b", "good"]
    assert subject.did == ["start", "a", "b", "c", "good", *again]


def test_an_unclear_play_is_played_again_and_the_second_play_decides() -> None:
    found = judged(Scripted({"a": "?", "b": "?.", "c": "?x", "d": "?j"}), "a b c d")
    assert outcomes(found) == "a:i b:p c:f d:f"


def test_after_confirmed_jams_a_further_jam_counts_without_a_repetition() -> None:
    subject = Scripted(dict.fromkeys("abc", "j"))
    assert outcomes(judged(subject, of("a b c", kind=ALONE))) == "a:f b:f c:f"
    assert [subject.did.count(each) for each in "abc"] == [2, 2, 1]


def test_a_jam_that_no_repetition_confirms_spares_no_repetition() -> None:
    subject = Scripted(dict.fromkeys("abc", "j.") | {"d": "x"})
    assert outcomes(judged(subject, of("a b c d", kind=ALONE))) == "a:i b:i c:i d:f"
    assert [subject.did.count(each) for each in "abcd"] == [2, 2, 2, 2]


def test_a_jam_counts_as_confirmed_only_if_both_plays_jam() -> None:
    subject = Scripted({"a": "xj", "b": "xj", "c": "j"})
    assert outcomes(judged(subject, of("a b c", kind=ALONE))) == "a:f b:f c:f"
    assert subject.did.count("c") == 2


def test_of_the_plays_that_wait_each_has_a_room_and_the_longest_begins_first() -> None:
    subject = Scripted()
    cases = [
        case(each, waits_s=waits_s) for each, waits_s in (("a", 1), ("b", 3), ("c", 2), ("d", 0))
    ]
    assert outcomes(judged(subject, cases)) == "a:p b:p c:p d:p"
    assert [each for each in subject.did if each in "abc"] == ["b", "c", "a"]
    assert subject.did.count("good") == 4


def test_an_end_or_another_failure_is_repeated_after_confirmed_jams_too() -> None:
    subject = Scripted({"a": "j", "b": "j", "c": "e.", "d": "x.", "e": "J."})
    assert outcomes(judged(subject, of("a b c d e", kind=ALONE))) == "a:f b:f c:p d:i e:i"


def test_after_most_jams_the_plays_of_a_jammed_room_are_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rooms, "MOST_JAMS", 2)
    subject = Scripted(dict.fromkeys("acd", "j"))
    assert outcomes(judged(subject, [case("a", kind=ALONE), *of("b c")])) == "a:f b:p c:f"
    found = judged(subject, [*of("a d", kind=ALONE), *of("b c")])
    assert outcomes(found) == "a:f b:i c:i d:f"
    assert found["b"].reason == (
        "after this or another case a good payment fails, as it does after 2 others"
    )
    assert subject.did[-4:] == ["start", "b", "c", "good"], "it looks for no more"


def level(name: str, *levels: Any) -> list[RoomCase]:
    """Return cases of these levels that share a play."""
    return [case(name, id=f"server/a/{name}-{each}", level=each) for each in levels]


@pytest.mark.parametrize(
    ("letter", "levels", "failed"),
    [
        ("j", "MAY SHOULD MUST MUST", ["MUST"]),
        ("j", "MAY SHOULD", ["SHOULD"]),
        ("j", "MAY", ["MAY"]),
        ("J", "MUST SHOULD MAY", ["MUST", "SHOULD", "MAY"]),
    ],
)
def test_a_jam_is_the_failure_of_one_case_of_the_highest_level(
    letter: str, levels: str, failed: list[str]
) -> None:
    cases = level("a", *levels.split())
    found = asyncio.run(judge_of(Scripted({"a": letter})).every(cases))
    assert [each.level for each, its in found if its.outcome is Outcome.FAILED] == failed
    jammed = [each.level for each, its in found if its.actual == "after this, no answer"]
    assert jammed == failed * (letter == "j")


# --- ends -------------------------------------------------------------------------------------


def test_an_end_in_the_repetition_alone_is_counted_and_fails_no_play() -> None:
    for first in "x?":
        judge = judge_of(Scripted({"a": f"{first}e"}))
        ((_, found),) = asyncio.run(judge.every(of("a")))
        assert (found.outcome, len(judge.trouble.ends)) == (Outcome.INCONCLUSIVE, 1)


def test_an_end_in_a_shared_room_and_one_in_its_repetition_are_two_ends() -> None:
    found = judged(Scripted({"a": "ee."}), "control a b")
    assert outcomes(found) == "a:p b:p control:f"
    assert str(found["control"].actual).startswith("2 times: it ended by itself")
    assert [each.about for each in found["control"].exchanges] == [
        "it ended by itself, exit code 3, after a"
    ] * 2


def test_an_end_in_a_shared_room_is_no_second_failure_of_the_play_that_ends_it_each_time() -> None:
    judge = judge_of(Scripted({"a": "e"}))
    asyncio.run(judge.every(of("b a c")))
    assert (judge.trouble.ends, judge.trouble.in_play) == ([], "a")


def test_an_end_after_a_jam_of_the_same_play_is_one_failure_with_the_jam() -> None:
    judge = judge_of(Scripted({"a": "je"}))
    found = asyncio.run(judge.every(of("a", kind=ALONE)))
    assert [its.outcome for _, its in found] == [Outcome.FAILED]
    assert judge.trouble.ends == []


def test_a_kill_by_the_machine_between_two_plays_is_no_end_by_itself() -> None:
    judge = judge_of(Scripted())

    async def main() -> list[CaseResult]:
        first, second = await judge.room(), await judge.room()
        await judge.leave(second, keep=True)
        for room in (first, second):
            room.running.command.returncode = -9
        await judge.leave(first, keep=True)
        ends = [each async for each in judge.run(of("control", kind=ALONE), print)]
        await judge.close()
        return [its for _, its in ends]

    (found,) = asyncio.run(main())
    assert found.outcome is Outcome.PASSED


def test_a_kill_by_the_machine_in_a_play_is_no_end_by_itself() -> None:
    judge = judge_of(Scripted({"a": "k.", "b": "k."}))
    found = dict(asyncio.run(judge.every(of("control a b", kind=ALONE))))
    assert {case.title: each.outcome[0] for case, each in found.items()} == {
        "control": "p", "a": "i", "b": "i",
    }  # fmt: skip
    assert judge.trouble.ends == []


def test_an_end_before_the_judge_comes_to_stop_it_is_one_of_the_play() -> None:
    async def restarts(its: Any) -> str:
        its.room.running.command.play("a")
        await its.room.kill()
        await its.room.start()
        return "."

    found = judged(Scripted({"a": "e"}), [case("a", play=restarts)])
    assert found["a"].actual == "after this, it ended by itself, exit code 3"
    assert outcomes(judged(Scripted(), [case("a", play=restarts)])) == "a:p"
    assert outcomes(judged(Scripted({"a": "k"}), [case("a", play=restarts)])) == "a:p"


def test_an_end_of_the_other_server_of_two_is_one_of_the_play() -> None:
    async def uses_two(its: Any) -> str:
        its.room.replica = Running("http://127.0.0.1:9", Process(Scripted({"a": "e"})))  # type: ignore[arg-type]
        its.room.replica.command.play("a")
        return "."

    found = judged(Scripted(), [case("a", play=uses_two)])
    assert found["a"].actual == "after this, it ended by itself, exit code 3"


def test_a_kill_of_the_other_server_by_the_machine_is_no_end_by_itself() -> None:
    async def uses_two(its: Any) -> str:
        its.room.replica = Running("http://127.0.0.1:9", Process(Scripted({"a": "k"})))  # type: ignore[arg-type]
        its.room.replica.command.play("a")
        return "."

    judge = judge_of(Scripted())
    asyncio.run(judge.every([case("a", play=uses_two)]))
    assert judge.trouble.ends == []
    assert judge.trouble.in_play == ""


@pytest.mark.parametrize("is_single", [False, True])
def test_an_idle_room_whose_subject_has_ended_is_closed_and_the_end_counted(
    is_single: bool,
) -> None:
    judge = judge_of(Scripted(is_single=is_single))

    async def main() -> None:
        first = await judge.room()
        await judge.leave(first, keep=True)
        first.running.command.exit()
        assert await judge.room(ALONE if is_single else None) is not first
        assert judge.closed == ["shared 1"]
        await judge.close()

    asyncio.run(main())
    assert judge.trouble.ends == ["it ended by itself, exit code 3, between two plays"]


def test_to_repeat_the_ends_that_fail_a_control_everything_is_played() -> None:
    (control,) = by_rooms(Scripted({"a": "e.", "b": "e."}), of("a b", kind=ALONE))[-1:]
    assert (control.id, control.rerun) == ("server/a/control", "judge")


def test_an_id_is_told_once_also_if_its_control_in_another_dialect_has_failed() -> None:
    first, other = (case("control", is_control=True, dialect=each) for each in ("v1", "v2"))

    class Ends:
        async def run(self, *_: Any) -> AsyncIterator[tuple[RoomCase, CaseResult]]:
            yield other, result(other, WRONG)

    async def main() -> list[str]:
        told = Judging(
            judge=Ends(), cases=[first], rerun="", left_out=lambda its: result(its, WRONG),
            done=str, plan=Plan(),
        )  # fmt: skip
        return [each.id async for each in told.run(print)]

    assert asyncio.run(main()) == ["server/a/control"]


def test_an_end_after_a_good_payment_or_between_two_plays_is_counted() -> None:
    subject = Scripted()
    judge = judge_of(subject)

    async def main() -> list[Result]:
        first, second = await judge.room(), await judge.room()
        first.running.command.exit()
        await judge.leave(first, keep=True)
        await judge.leave(second, keep=True)
        assert await judge.room() is second, "no play is blamed for an earlier end"
        await judge.leave(second, keep=True)
        second.running.command.exit()
        ends = [each async for each in judge.run(of("control", kind=ALONE), print)]
        await judge.close()
        return [its for _, its in ends]

    (found,) = asyncio.run(main())
    assert found.outcome is Outcome.FAILED
    assert [each.about.partition(", after")[0] for each in found.exchanges] == [
        "it ended by itself, exit code 3",
        "it ended by itself, exit code 3, between two plays",
    ]


@pytest.mark.parametrize("jams", [0, rooms.MOST_JAMS])
def test_an_end_is_counted_though_no_more_jams_are_looked_for(jams: int) -> None:
    judge = judge_of(Scripted({"b": "e."}))
    judge.trouble.jams = jams
    asyncio.run(judge.every(of("a b")))
    assert judge.trouble.ends == ["it ended by itself, exit code 3, after b"]


@pytest.mark.parametrize(
    ("script", "chosen", "code"),
    [
        ({"a": "ee."}, of("b a"), FOUND_SOMETHING),
        ({"a": "e.", "c": "e."}, of("a b c"), FOUND_SOMETHING),
        ({"a": "e"}, level("a", "SHOULD"), HELD),
        ({"a": "e"}, level("a", "MAY"), FOUND_SOMETHING),
        ({"a": "e"}, of("a"), FOUND_SOMETHING),
        ({"a": "e."}, of("a b"), HELD),
    ],
    ids=["in a shared room", "of two plays", "of a SHOULD", "of a MAY", "of a MUST", "once"],
)
def test_a_subject_that_ended_most_ends_times_fails_whatever_was_chosen(
    script: dict[str, str], chosen: list[RoomCase], code: int
) -> None:
    """A user who gives --only gets no exit code 0 for a server that crashed twice."""
    results = by_rooms(Scripted(script), chosen)
    assert conclude(results, strict=False) == code
    own = {each.id for each in chosen}
    others = [(each.id, each.outcome) for each in results if each.id not in own]
    must_fails = any(
        each.level == "MUST" and each.outcome is Outcome.FAILED and each.id in own
        for each in results
    )
    expected = [("server/a/control", Outcome.FAILED)] * (code != HELD and not must_fails)
    assert others == expected


# --- a subject started by its user ------------------------------------------------------------


def test_a_subject_started_by_its_user_has_one_room_and_failed_plays_are_repeated_there() -> None:
    subject = SUBJECTS["one"] = Scripted({"a": "x."})
    cases = [*of("a c", kind=ALONE), *of("b")]
    assert outcomes(judged(Owned("one"), cases)) == "a:i b:p c:p"
    assert subject.did == ["start", "a", "good", "a", "good", "c", "good", "b", "good"]


def test_after_two_failed_good_payments_of_a_users_subject_the_rest_is_inconclusive() -> None:
    subject = SUBJECTS["two"] = Scripted({"b": "j"})
    found = judged(Owned("two"), "a b c d")
    assert outcomes(found) == "a:p b:f c:i d:i"
    assert found["c"].reason == "nothing can be told any more, as no answer"
    assert subject.did == ["start", "a", "good", "b", "good", "good"]


def test_one_failed_good_payment_of_a_users_subject_is_no_jam() -> None:
    subject = SUBJECTS["busy"] = Scripted({"a": "h"})
    assert outcomes(judged(Owned("busy"), "a b")) == "a:p b:p"
    assert subject.did == ["start", "a", "good", "good", "b", "good"]


def test_a_failure_before_the_jam_of_a_users_subject_is_repeated() -> None:
    SUBJECTS["both"] = Scripted({"a": "x.", "b": "j"})
    assert outcomes(judged(Owned("both"), "a b")) == "a:i b:f"


def test_nothing_is_bought_in_a_dialect_that_is_judged_by_its_offer_only() -> None:
    SUBJECTS["offers"] = Scripted()
    judge = judge_of(Owned("offers"), dialects=("v1",))
    asyncio.run(judge.every(of("a")))
    assert judge.paid_in == [[]]


def test_a_users_subject_is_skipped_in_a_world_that_it_lacks() -> None:
    class Special(RoomKind):
        @property
        def lacks(self) -> str:
            return "a chain of its own"

    SUBJECTS["three"] = Scripted()
    cases = [*of("a", kind=Special(name="special")), *of("b")]
    found = judged(Owned("three"), cases)
    assert outcomes(found) == "a:s b:p"
    assert found["a"].reason == f"it needs a chain of its own: {rooms.START}"
    assert outcomes(judged(Scripted(), cases)) == "a:p b:p"


# --- rooms ------------------------------------------------------------------------------------


def test_a_room_whose_subject_does_not_start_is_closed_and_the_reason_raised() -> None:
    judge = judge_of(Scripted(wrong=NotReady("no port today")))
    with pytest.raises(NotReady, match="no port today"):
        asyncio.run(judge.every(of("a")))
    assert judge.closed == ["shared 1"]


def test_a_subject_is_stopped_killed_and_started_again_in_its_room() -> None:
    subject = Scripted()

    async def main() -> None:
        room = await judge_of(subject).room()
        await room.stop()
        assert (room.running, room.has_ended) == (None, "")
        await room.start()
        await room.kill()
        await room.kill()  # there is nothing to kill

    asyncio.run(main())
    assert (subject.did, subject.ended) == (["start", "start"], ["stop", "kill", "stop"])


def test_a_users_subject_is_not_the_judges_to_stop() -> None:
    SUBJECTS["four"] = Scripted()

    async def main() -> None:
        room = await judge_of(Owned("four")).room()
        with pytest.raises(Inconclusive, match="not the judge's to stop: --start COMMAND"):
            await room.stop()
        await room.close()
        assert room.running is None

    asyncio.run(main())
    assert SUBJECTS["four"].ended == ["stop"]


def test_the_slowest_start_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [2.0, 3.0, 1.0]
    monkeypatch.setattr(rooms, "stopwatch", lambda: partial(seconds.pop, 0))
    judge = judge_of(Scripted({"a": "x"}))
    asyncio.run(judge.every(of("a b", kind=ALONE)))
    assert (judge.start_s, judge.starts, seconds) == (3.0, 2, [1.0])


def test_a_room_of_a_repetition_is_closed_at_once() -> None:
    judge = judge_of(Scripted({"a": "x"}))

    async def main() -> list[str]:
        assert [case.title async for case, _ in judge.run(of("a"), print)] == ["a"]
        closed = [*judge.closed]
        await judge.close()
        return closed

    assert asyncio.run(main()) == ["shared 2"]


def test_the_world_is_tidied_after_each_play_even_if_the_play_raises() -> None:
    subject = Scripted({"a": "?"})
    judged(subject, "a b")
    assert subject.tidied == 3


@pytest.mark.parametrize(("cores", "jobs"), [(5, 5), (None, 2)])
def test_without_a_number_as_many_plays_run_at_once_as_there_are_cores(
    cores: int | None, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms.os, "cpu_count", lambda: cores)
    assert judge_of(Scripted(), jobs=0).jobs == jobs
    assert judge_of(Scripted(), jobs=3).jobs == 3
    assert judge_of(Scripted(is_single=True), jobs=3).jobs == 1


@pytest.mark.parametrize(("is_single", "most"), [(False, 3), (True, 1)])
def test_plays_that_wait_run_beside_the_others_except_of_a_subject_that_runs_alone(
    is_single: bool, most: int
) -> None:
    at_once = [0, 0]

    async def play(its: Any) -> str:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await asyncio.sleep(0.02)
        at_once[0] -= 1
        return "."

    waits = [case(each, play=play, waits_s=1) for each in "abc"]
    others = [case(each, play=play, kind=ALONE) for each in "de"]
    assert outcomes(judged(Scripted(is_single=is_single), [*waits, *others])).count("p") == 5
    assert at_once == [0, most], "two that wait, and one other"


def test_a_failed_play_whose_repetition_ends_it_is_not_played_a_third_time() -> None:
    subject = Scripted({"a": "e", "b": "xe"})
    assert outcomes(judged(subject, of("a b", kind=ALONE))) == "a:f b:i"
    assert subject.did.count("b") == 2


@pytest.mark.parametrize(("letter", "waits"), [(".", 0), ("e", 0), ("j", 3)])
def test_the_exit_of_a_subject_is_waited_for_only_after_a_failed_good_payment(
    letter: str, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(CLOCK, "sleep", sleep)
    judged(Scripted({"a": letter}), "a b")
    assert slept == [rooms.EXIT_S] * waits


def test_a_play_draws_what_nobody_has_drawn_waits_and_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def main() -> None:
        judge = judge_of(Scripted())
        room = await judge.room()
        plays = [await judge.begun(room, "v2", "a") for _ in range(2)]
        drawn = {play.draw() for play in plays for _ in range(2)}
        assert {len(each) for each in drawn} == {32}
        assert len(drawn) == 4
        assert [each.patience_s for each in plays] == [PATIENCE_S] * 2
        assert (await judge.begun(room, "v2", "a", 3)).patience_s == 3
        monkeypatch.setattr(CLOCK, "sleep", sleep)
        await plays[0].wait(7)
        plays[0].say("it is so")
        assert [each.about for each in plays[0].exchanges] == ["it is so"]

    asyncio.run(main())
    assert waited == [7]


def test_a_room_closes_its_world_even_if_the_subject_cannot_be_stopped() -> None:
    judge = judge_of(Scripted(stops=[OSError("it cannot be stopped")]))

    async def main() -> None:
        room = await judge.room()
        with pytest.raises(OSError, match="cannot be stopped"):
            await room.close()

    asyncio.run(main())
    assert judge.closed == ["shared 1"]


def test_a_judge_closes_every_room_even_if_one_cannot_be_closed() -> None:
    judge = judge_of(Scripted(stops=[OSError("it cannot be stopped")]))

    async def main() -> None:
        for _ in range(3):
            await judge.room()
        with pytest.raises(OSError, match="cannot be stopped"):
            await judge.close()
        await judge.close()

    asyncio.run(main())
    assert sorted(judge.closed) == ["shared 1", "shared 2", "shared 3"]


def test_of_a_subject_that_runs_alone_a_room_is_closed_before_the_next_is_opened() -> None:
    subject = Scripted({"a": "x"}, is_single=True)
    judge = judge_of(subject, jobs=4)
    assert judge.jobs == 1

    async def main() -> int:
        for kind in (SHARED, ALONE, SHARED):
            await judge.leave(await judge.room(kind), keep=True)
        return len(judge._rooms)

    assert asyncio.run(main()) == 1
    assert judge.closed == ["shared 1", "alone 2"]


# --- the control ------------------------------------------------------------------------------


LEFT = Lacking("no chain")


@dataclass
class Options:
    shown: str = "scripted"
    rerun: str = "judge"


def by_rooms(
    subject: Any,
    chosen: Sequence[RoomCase],
    controls: Mapping[str, Sequence[ControlPlay]] | None = None,
    told: Callable[[Judging[Any]], object] = lambda judging: None,
    offers: Sequence[RoomCase] = (),
) -> list[Result]:
    """Judge by `in_rooms`: cases in the dialects of `controls`, each with what each try gives.

    `offers` are judged in any dialect. A case named "left" is left out.
    """
    tries = {name: list(its) for name, its in (controls or {}).items()}
    judge = judge_of(subject)

    async def control(room: Any, dialect: Any) -> ControlPlay:
        if tries:
            return tries[dialect].pop(0)
        played = await judge.played(of("control"), room)
        return ControlPlay(why=played.unclear, played=played)

    async def main() -> list[Result]:
        async with rooms.in_rooms(
            judge,
            Options(),
            chosen,
            [*tries] or ["v2"],
            control=control,
            left_out=lambda case, _: skipped(case, LEFT) if case.title == "left" else None,
            plan=lambda broken: Plan(
                cases=[
                    case
                    for case in chosen
                    if case in offers or (case.dialect in judge.dialects and case.title != "left")
                ]
            ),
            invalid=lambda why: f"sells nothing: {why}",
        ) as judging:
            told(judging)
            return [each async for each in judging.run(lambda check_id: None)]

    try:
        return asyncio.run(main())
    finally:
        assert len(judge.closed) == judge.opened, "every room is closed"
        assert not any(tries.values()), "each try was made"


def tried(its: Any = None, *, dialect: str = "v2", found: Any = None) -> Played[RoomCase]:
    """Return a played control of this case."""
    its = its or case("control", is_control=True, dialect=dialect)
    play = Play(room=None, name="control", patience_s=1, exchanges=[Exchange("it was asked")])
    return Played(play=play, found={its: found})


def test_in_a_dialect_whose_control_fails_nothing_is_judged_and_the_plan_says_so() -> None:
    judgings: list[Judging[Any]] = []
    controls = {
        "v1": [ControlPlay(why="refused", played=tried(dialect="v1", found=WRONG))],
        "mcp": [ControlPlay(why="no offer")],
        "v2": [ControlPlay(played=tried())],
    }
    subject = Scripted({"a": "e.", "d": "e."})
    cases = [*of("a d", kind=ALONE), case("b", dialect="v1"), case("c", dialect="mcp")]
    found = by_rooms(subject, cases, controls, judgings.append)
    assert [each.id for each in found] == ["server/a/a", "server/a/d", "server/a/control"]
    assert [each.dialect for each in found[-1].cases] == ["v2"], "it ended twice"
    assert judgings[0].plan.unspoken == {"v1": "refused", "mcp": "no offer"}
    assert not {"b", "c"} & {*subject.did}
    assert judgings[0].cases == cases[:2]


def test_the_room_of_the_control_is_used_again_and_what_is_left_out_is_told() -> None:
    subject = Scripted()
    found = by_rooms(subject, of("control a left"))
    assert {each.id: each.outcome for each in found} == {
        "server/a/left": Outcome.SKIPPED,
        "server/a/a": Outcome.PASSED,
        "server/a/control": Outcome.PASSED,
    }
    assert found[0].reason == "no chain"
    assert subject.did == ["start", "control", "control", "a", "good"]


def test_an_offer_is_judged_though_nothing_can_be_bought() -> None:
    judgings: list[Judging[Any]] = []
    offers = of("a")
    controls = {"v2": [ControlPlay(why="refused", played=tried(found=WRONG))]}
    (found,) = by_rooms(Scripted(), offers, controls, judgings.append, offers)
    assert found.outcome is Outcome.PASSED
    assert judgings[0].plan.unspoken == {}


def test_cases_of_a_dialect_that_is_not_spoken_alone_are_no_failure_of_the_subject() -> None:
    controls = {"v1": [ControlPlay(why="no offer")], "v2": [ControlPlay(played=tried())]}
    judgings: list[Judging[Any]] = []
    assert by_rooms(Scripted(), of("a", dialect="v1"), controls, judgings.append) == []
    assert judgings[0].plan.lines == ()


def test_a_control_that_breaks_something_fails_if_it_fails_twice_and_its_cases_are_unclear() -> (
    None
):
    failed = tried(dialect="v1", found=WRONG)
    broken = ControlPlay(why="it moves money", played=failed, is_broken=True)
    controls = {"v1": [broken, broken]}
    judgings: list[Judging[Any]] = []
    results = by_rooms(Scripted(), of("a", dialect="v1"), controls, judgings.append)
    assert judgings[0].plan.lines == (), "a subject with a failure is not invalid"
    found = {each.id: each for each in results}
    assert {name: each.outcome for name, each in found.items()} == {
        "server/a/control": Outcome.FAILED,
        "server/a/a": Outcome.INCONCLUSIVE,
    }
    assert found["server/a/a"].reason == "its control fails: it moves money"


def test_a_control_that_fails_once_is_tried_again() -> None:
    broken = ControlPlay(why="it moves money", played=tried(found=WRONG), is_broken=True)
    controls = {"v2": [broken, ControlPlay(played=tried())]}
    (found,) = by_rooms(Scripted(), of("a"), controls)
    assert found.outcome is Outcome.PASSED


def test_a_control_that_ends_the_subject_is_tried_again_and_the_next_finds_it_running() -> None:
    subject = Scripted({"v1": "e", "v2": "."})
    judge = judge_of(subject)

    async def control(room: Any, dialect: Any) -> ControlPlay:
        assert not room.has_ended
        room.running.command.play(dialect)
        return ControlPlay(why=room.has_ended, played=tried(dialect=dialect))

    async def main() -> rooms.Controls:
        try:
            return await rooms._try_controls(judge, ["v1", "v2"], control)
        finally:
            await judge.close()

    assert [*asyncio.run(main()).broken] == ["v1"]
    assert subject.did == ["start", "v1", "start", "v1", "start", "v2"]
    assert len(judge.trouble.ends) == 2


def test_without_a_purchase_in_any_dialect_the_subject_is_not_ready() -> None:
    controls = {"v2": [ControlPlay(why="no offer")], "v1": [ControlPlay(why="none")]}
    with pytest.raises(NotReady, match="scripted sells nothing: v2: no offer; v1: none"):
        by_rooms(Scripted(), of("a"), controls)


def test_where_every_control_fails_all_is_unclear_and_the_plan_is_the_reason() -> None:
    judgings: list[Judging[Any]] = []
    cases = [*of("control a"), *of("b", dialect="v1"), *of("c", dialect="v0")]
    refused = ControlPlay(why="refused", played=tried(cases[0], found=WRONG))
    controls = {"v2": [refused], "v1": [ControlPlay(why="no offer")]}
    found = by_rooms(Scripted(), cases, controls, judgings.append)
    assert judgings[0].plan.lines == ("scripted sells nothing: v2: refused; v1: no offer",)
    assert [each.id for each in found] == ["server/a/control", "server/a/a"]
    assert {each.outcome for each in found} == {Outcome.INCONCLUSIVE}
    assert {each.reason for each in found} == {"its control fails: refused"}
    shown = [[each.about for each in its.cases[0].exchanges] for its in found]
    assert shown == [["it was asked"], []]
    assert judgings[0].plan.unspoken == {"v1": "no offer"}


@pytest.mark.parametrize("wrong", [OSError("no port"), ChainError("no anvil")])
def test_an_error_of_the_system_or_the_chain_ends_a_judgement_with_its_words(
    wrong: Exception,
) -> None:
    def raises(_: object) -> None:
        raise wrong

    with pytest.raises(NotReady, match=str(wrong)):
        by_rooms(Scripted(), of("a"), told=raises)
