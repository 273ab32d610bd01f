"""How cases of a payer, facilitator or server are declared: what is played, what is demanded.

One row is played once for each dialect of the subject; every demand on it has an id of its own,
which is the same in each dialect. A dialect in which it cannot be played has a reason, so that the
table has no empty cell.

What was found in a play becomes the result of each of its cases.
"""

import asyncio
import runpy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, TypeVar

from x402sim.report import causes
from x402sim.report.results import CaseResult, Evidence, Loss, Outcome
from x402sim.spec.clauses import LEVELS, Level
from x402sim.spec.ground import BINDING, Ground, GroundType, folder
from x402sim.spec.needs import Need
from x402sim.suite.redact import impersonal


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayedCase:
    """One id: a demand on what a subject did in a play; each judge adds what it plays."""

    id: str
    level: Level
    ground: Ground
    title: str
    played_as: str
    """The name of the play: cases with the same name look at one and the same."""
    control: str
    """The id of the control without which its pass proves nothing."""
    is_control: bool = False
    waits_s: float = 0
    """How long the play waits, at least, while it does nothing."""
    needs: tuple[Need, ...] = ()
    decides: tuple[str, ...] = ()
    place: str = ""
    """The id, without the flow of a payer."""
    dialect: str = ""
    """The dialect in which it is played; empty where the id names the flow of a payer."""

    @property
    def name(self) -> str:
        """The id and the dialect: "server/many/again [v2]"."""
        return f"{self.id} [{self.dialect}]" if self.dialect else self.id

    @property
    def controls(self) -> tuple[str, ...]:
        """The control, unless it is one itself."""
        return () if self.is_control else (self.control,)

    @property
    def section(self) -> str:
        """The section of the id."""
        return self.id.split("/")[1]


AnyPlayed = TypeVar("AnyPlayed", bound=PlayedCase)


@cache
def rows_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the rows that the files of a subject declare, in the order of the sections."""
    files = sorted(folder(subject).glob("*.py"))
    found = [row for file in files for row in runpy.run_path(str(file), run_name=file.stem)["ROWS"]]
    return tuple(sorted(found, key=lambda row: sections.index(row.section)))


@cache
def cases_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the cases of a subject's rows; raises `ValueError` for an id that is there twice."""
    found = tuple(case for row in rows_of(subject, *sections) for case in row.cases())
    names = Counter(case.name for case in found)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return found


def by_play(cases: Iterable[AnyPlayed]) -> list[list[AnyPlayed]]:
    """Return the cases that look at the same play, together."""
    groups: dict[str, list[AnyPlayed]] = {}
    for case in cases:
        groups.setdefault(case.played_as, []).append(case)
    return list(groups.values())


Each = TypeVar("Each")


async def side_by_side(works: Iterable[Coroutine[Any, Any, list[Each]]]) -> AsyncIterator[Each]:
    """Run works at once, and yield each result as soon as it is there.

    An exception of one of them is raised here and cancels the others, as does leaving the loop.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        for done in asyncio.as_completed(tasks):
            for each in await done:
                yield each
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """What a subject did against a demand, and what that costs.

    `demand` is a key of `causes.toml` in the folder of the subject's cases. It says what is
    `expected`, too, unless the case words that itself.
    """

    actual: str
    demand: str = ""
    expected: str = ""
    loss: Loss | None = None
    why: str = ""


Found = Violation | str | None
"""What is wrong; or what was observed, in words; or nothing is wrong."""


def result(case: PlayedCase, found: Found, exchange: str, log: str, seconds: float) -> CaseResult:
    """Return the result of a case that was looked at.

    `exchange` is what was requested and answered in its play, `log` the last line that the subject
    wrote, empty without one.
    """
    if not isinstance(found, Violation):
        return CaseResult(
            title=case.title,
            dialect=str(case.dialect),
            ground=case.ground,
            outcome=Outcome.PASSED if found is None else Outcome.OBSERVED,
            actual=found,
            seconds=round(seconds, 3),
            has_begun=True,
        )
    expected = found.expected or causes.expected(found.demand)
    return CaseResult(
        title=case.title,
        dialect=str(case.dialect),
        ground=case.ground,
        outcome=Outcome.FAILED,
        expected=expected,
        actual=found.actual,
        reason="" if found.loss else found.why,
        loss=found.loss,
        evidence=Evidence(found.demand, expected, impersonal(found.actual), case.place),
        exchange=exchange + (f"\nits last line: {log}" if log else ""),
        seconds=round(seconds, 3),
        has_begun=True,
    )


def unclear(case: PlayedCase, why: str) -> CaseResult:
    """Return the result of a case that is inconclusive, with the reason."""
    return CaseResult(
        title=case.title,
        dialect=str(case.dialect),
        ground=case.ground,
        outcome=Outcome.INCONCLUSIVE,
        reason=why,
        has_begun=True,
    )


def skipped(
    case: PlayedCase, why: str, *, lacks: bool = True, is_untold: bool = False
) -> CaseResult:
    """Return the result of a case without judgement: a need `lacks`, or the case does not apply.

    `is_untold`: the case was played, and the subject showed nothing to judge by.
    """
    return CaseResult(
        title=case.title,
        dialect=str(case.dialect),
        ground=case.ground,
        outcome=Outcome.SKIPPED,
        reason=why,
        applies=lacks,
        lacks=lacks,
        is_untold=is_untold,
    )


def documents(subject: str) -> dict[GroundType, str]:
    """Return the document that an id begins with, for each kind of ground."""
    own = dict.fromkeys(BINDING, subject)
    return {**own, GroundType.OURS: "kit", GroundType.SILENT: "silent"}


def beginnings(subject: str) -> tuple[str, ...]:
    """Return what the ids of a subject begin with, its own document first."""
    return tuple(dict.fromkeys(documents(subject).values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomKind:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is demanded; the level is the highest that the ground supports, or a lower one.

    `test` gets the play and what it returned (of a payer, only what was played), and tells what is
    wrong. Without one, what the play returned is a `Found` itself. `absent` has a reason for each
    dialect that has no such demand.
    """

    title: str
    ground: Ground
    test: Callable[..., Found] = lambda _, observed: observed
    suffix: str = ""
    level: Level | None = None
    absent: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoomCase(PlayedCase):
    """A demand on what a subject did in a play, in one dialect."""

    dialect: Any
    """One of the subject's own."""
    play: Callable[[Any], Awaitable[Any]]
    test: Callable[[Any, Any], Found]
    kind: RoomKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(ABC):
    """A row of the table: something that is played in several dialects, and what is demanded of it.

    section, slug
        They make the id: DOCUMENT/section/slug[-suffix].
    absent
        A reason for each dialect in which it is not played.
    waits_s
        Seconds in which it does nothing but wait; such plays run beside the others.
    """

    subject: ClassVar[str]
    """The subject's name, which is that of its document."""
    control: ClassVar[str]
    """The slug of its controls."""
    dialects: ClassVar[type[StrEnum]]
    ids_name_dialects: ClassVar[bool] = False
    """Whether ids end with the dialect, as those of payers do with the flow."""

    section: str
    slug: str
    demands: Sequence[Demand]
    absent: Mapping[Any, str] = field(default_factory=dict)
    waits_s: float = 0
    is_control: bool = False

    @abstractmethod
    def case(self, dialect: Any, demand: Demand, common: dict[str, Any]) -> Any:
        """Return the case of a demand in a dialect, with the fields that all cases have."""

    @property
    def besides(self) -> Sequence[Demand]:
        """What is demanded besides."""
        return ()

    def cases(self) -> Iterator[Any]:
        """Yield a case for each demand and dialect."""
        names = documents(self.subject)
        for dialect in self.dialects:
            if dialect in self.absent:
                continue
            for demand in (*self.demands, *self.besides):
                if dialect in demand.absent:
                    continue
                kind = demand.ground.kind
                slug = "-".join(filter(None, (self.slug, demand.suffix)))
                place = f"{names[kind]}/{self.section}/{slug}"
                end = f"-{dialect}" if self.ids_name_dialects else ""
                common = {
                    "id": f"{place}{end}",
                    "place": place,
                    "level": demand.level or LEVELS[kind],
                    "ground": demand.ground,
                    "title": demand.title,
                    "played_as": f"{self.section}/{self.slug}-{dialect}",
                    "control": f"{self.subject}/control/{self.control}{end}",
                    "is_control": self.is_control and not demand.suffix,
                    "waits_s": self.waits_s,
                }
                yield self.case(dialect, demand, common)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRow(Row):
    """A row of a subject that is judged in rooms.

    play
        What is done: asks the subject, turns its world, and returns what the demands look at.
        An `Inconclusive` that it raises says why it cannot be judged.
    kind
        The kind of room that it is played in.
    """

    plain: ClassVar[RoomKind]
    """The usual kind of room."""

    play: Callable[[Any], Awaitable[Any]]
    kind: RoomKind | None = None

    @property
    def needs(self) -> tuple[Need, ...]:
        """What must be there to judge it."""
        return ()

    def case(self, dialect: Any, demand: Demand, common: dict[str, Any]) -> RoomCase:
        """Return the case of a demand in a dialect."""
        return RoomCase(
            dialect=dialect,
            play=self.play,
            test=demand.test,
            kind=self.kind or self.plain,
            needs=self.needs,
            **common,
        )


AnyDialect = TypeVar("AnyDialect", bound=StrEnum)


def only(kept: Sequence[AnyDialect], reason: str) -> dict[AnyDialect, str]:
    """Return the reason for every dialect but these."""
    return {dialect: reason for dialect in type(kept[0]) if dialect not in kept}
