"""The engine of rooms with a subject that ends by itself, or with a failing control."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.rng import Rng
from x402sim.spec.ground import Ground, GroundType
from x402sim.suite import rooms, subject
from x402sim.suite.case import of_id
from x402sim.suite.engine import Judging, Plan, result, skipped
from x402sim.suite.kept import Written
from x402sim.suite.report.causes import cause
from x402sim.suite.report.results import CaseResult, DemandKey, Outcome, Result
from x402sim.suite.row import RoomCase, RoomKind
from x402sim.suite.started import Running
from x402sim.suite.subject import once
from x402sim.suite.verdict import Inconclusive, NotApplicable, Violation

SHARED = RoomKind(name="shared", is_shared=True)
GROUND = Ground(GroundType.OURS, (), "a test")
WRONG = Violation(expected="right", actual="wrong")
NODE_ENDS = (
    b"    throw\n    ^\nError: the node timed out\n    at pay (pay.mjs:7:1)\n\nNode.js v20.20.2\n"
)


@dataclass
class Process:
    """Stands for one start of a command."""

    subject: "Mortal"
    plays: int = 0
    returncode: int | None = None
    is_closed: bool = False
    log: Written = field(default_factory=Written)

    def play(self, name: str) -> None:
        self.plays += 1
        is_last = name in self.subject.at or self.plays == self.subject.after
        if is_last and self.subject.most:
            self.subject.most -= 1
            self.is_closed = True
            self.log.last += NODE_ENDS
            if self.subject.exit_s:
                asyncio.get_running_loop().call_later(self.subject.exit_s, self.exit)
            else:
                self.exit()

    def exit(self) -> None:
        self.returncode = 3


@dataclass
class Mortal:
    """A command that ends at some plays, or after a number of plays."""

    at: Sequence[str] = ()
    after: int = 0
    exit_s: float = 0
    most: int = 1000
    shown: str = "mortal"
    most_at_once: None = None

    @asynccontextmanager
    async def start(self, given: object) -> AsyncIterator[Running]:
        yield Running("http://127.0.0.1:9", Process(self))  # type: ignore[arg-type]


class Room(rooms.Room):
    def given(self) -> None:
        return None

    async def tidy(self) -> None:
        return None


@dataclass(slots=True, kw_only=True, eq=False)
class Play(rooms.Play[Any, Any]):
    async def ready(self) -> "Play":
        return self


@dataclass(slots=True, kw_only=True, eq=False)
class Judge(rooms.RoomJudge[Any, Any]):
    plain: ClassVar[RoomKind] = SHARED
    beside: ClassVar[int] = 2
    after: ClassVar[Violation] = Violation(expected="a good payment", actual="")

    async def open(self, kind: Any, name: str) -> Any:
        room = Room(
            name=name, kind=kind, network=BASE_SEPOLIA, subject=self.subject, rng=Rng(0),
            http=None, _stack=AsyncExitStack(),  # type: ignore[arg-type]
        )  # fmt: skip
        return await room.started()

    def play(self, room: Any, dialect: Any, name: str, patience_s: float) -> Any:
        return Play(room=room, name=name, patience_s=patience_s)

    async def try_good_payment(self, room: Any, dialects: Sequence[Any] = ()) -> str:
        return "no answer" if room.running.command.is_closed else ""


def case(name: str, *, is_control: bool = False) -> RoomCase:
    async def play(its: Any) -> None:
        its.room.running.command.play(name)

    def test(its: Any, observed: Any) -> Violation | None:
        return WRONG if its.room.has_ended else None

    return RoomCase(
        id=f"server/a/{name}", level="MUST", ground=GROUND, title=name, played_as=name,
        control="server/a/control", is_control=is_control, dialect="v2", play=play, test=test,
        kind=SHARED,
    )  # fmt: skip


def judged(subject: Mortal, *names: str) -> dict[str, CaseResult]:
    cases = [case(each, is_control=each == "control") for each in names]
    judge = Judge(subject=subject, jobs=1)  # type: ignore[arg-type]
    return {each.played_as: found for each, found in asyncio.run(judge.every(cases))}


def test_one_that_ends_by_itself_in_some_plays_has_one_failure() -> None:
    found = judged(Mortal(at=("a", "b")), "control", "a", "b", "c")
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
    found = judged(Mortal(at=("a",), exit_s=0.05), "control", "a")
    assert found["a"].actual == "after this, it ended by itself, exit code 3"
    assert found["a"].exchanges[-1].about == "it wrote: Error: the node timed out"


def test_one_that_ends_by_itself_at_any_time_is_told_so_once_and_not_of_what_was_played() -> None:
    found = judged(Mortal(after=3), "control", *"abcdefgh")
    failed = {name: each for name, each in found.items() if each.outcome is Outcome.FAILED}
    assert [*failed] == ["control"]
    assert str(failed["control"].actual).startswith("3 times: it ended by itself, exit code 3,")
    assert all(each.outcome is Outcome.PASSED for name, each in found.items() if name != "control")


def test_an_end_that_no_repetition_shows_is_counted_and_told() -> None:
    cases = [case(each, is_control=each == "control") for each in ("control", *"abcdefgh")]
    judge = Judge(subject=Mortal(after=3, most=1), jobs=1)  # type: ignore[arg-type]
    found = asyncio.run(judge.every(cases))
    assert {each.outcome for _, each in found} == {Outcome.PASSED}, "one end proves nothing"
    assert judge.done().endswith("1 unexplained end (it ended by itself, exit code 3, after b)")


def test_a_subject_that_does_not_start_again_is_told_so() -> None:
    """The judge has stopped the subject: neither a crash nor a refused payment."""

    async def stops(its: Any) -> None:
        its.room.running = None
        raise Inconclusive("it does not start again: locked")

    judge = Judge(subject=Mortal(), jobs=1)  # type: ignore[arg-type]
    cases = [replace(case("a"), play=stops), case("b")]
    found = {each.played_as: it for each, it in asyncio.run(judge.every(cases))}
    assert (found["a"].outcome, found["b"].outcome) == (Outcome.INCONCLUSIVE, Outcome.PASSED)
    assert found["a"].reason == "it does not start again: locked"


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

    judge = Judge(subject=Mortal(), jobs=1, tell=once(told.append))
    assert len(asyncio.run(judge.every([replace(case("a"), play=hangs)]))) == 1
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
