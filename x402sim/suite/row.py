"""Declares the cases of payers, facilitators and servers: rows with a play and demands.

A row is played once for each dialect of the subject. Every demand of the row has an id, the same in
each dialect. For a dialect without a play the row gives a reason: the table has no empty cell.

A case turns the finding of a play into a result.
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
    """A demand on a play; each judge adds fields for the play."""

    id: str
    level: Level
    ground: Ground
    title: str
    played_as: str
    """The name of the play: cases with one name share a play."""
    control: str
    """The id of the control: if the control fails, a pass in this dialect proves nothing."""
    is_control: bool = False
    waits_s: float = 0
    """Seconds that the play waits idle, at least."""
    needs: tuple[Need, ...] = ()
    decides: tuple[str, ...] = ()
    dialect: str = ""
    """The dialect of the play."""

    @property
    def name(self) -> str:
        """The id and the dialect: "server/many/again [v2]"."""
        return f"{self.id} [{self.dialect}]" if self.dialect else self.id

    @property
    def controls(self) -> tuple[str, ...]:
        """The control; none for a control."""
        return () if self.is_control else (self.control,)

    @property
    def section(self) -> str:
        """The section of the id."""
        return self.id.split("/")[1]


AnyPlayed = TypeVar("AnyPlayed", bound=PlayedCase)


@cache
def rows_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the rows in the files of a subject, in the order of the sections."""
    files = sorted(folder(subject).glob("*.py"))
    found = [row for file in files for row in runpy.run_path(str(file), run_name=file.stem)["ROWS"]]
    return tuple(sorted(found, key=lambda row: sections.index(row.section)))


@cache
def cases_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the cases of a subject's rows; raises `ValueError` for a name declared twice."""
    found = tuple(case for row in rows_of(subject, *sections) for case in row.cases())
    names = Counter(case.name for case in found)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return found


def by_play(cases: Iterable[AnyPlayed]) -> list[list[AnyPlayed]]:
    """Return the cases in groups that share a play."""
    groups: dict[str, list[AnyPlayed]] = {}
    for case in cases:
        groups.setdefault(case.played_as, []).append(case)
    return list(groups.values())


Each = TypeVar("Each")


async def side_by_side(works: Iterable[Coroutine[Any, Any, list[Each]]]) -> AsyncIterator[Each]:
    """Run works at once, and yield each result at its end.

    An exception of a work is raised here, and cancels the other works, as leaving the loop does.
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
    """A broken demand: the subject's act, and its cost.

    `demand` is a key of `causes.toml` in the folder of the subject's cases; that entry has the
    text of `expected` for cases without an own text.
    """

    actual: str
    demand: str = ""
    expected: str = ""
    loss: Loss | None = None
    why: str = ""
    cause: str = ""
    """The key of `causes.toml` where a `demand` has several causes."""


Found = Violation | str | None
"""A violation; or an observation, in words; or None if the demand holds."""


def result(case: PlayedCase, found: Found, exchange: str, log: str, seconds: float) -> CaseResult:
    """Return the result of a judged case.

    `exchange` is the record of requests and answers, `log` the subject's last line of output, empty
    without output.
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
    expected = found.expected
    if found.demand and not expected:
        expected = causes.expected(found.demand)
    about, answer = found.cause or expected, impersonal(found.actual)
    return CaseResult(
        title=case.title,
        dialect=str(case.dialect),
        ground=case.ground,
        outcome=Outcome.FAILED,
        expected=expected,
        actual=found.actual,
        reason="" if found.loss else found.why,
        loss=found.loss,
        evidence=Evidence(found.demand, about, answer, case.id),
        exchange=exchange + (f"\nits last line: {log}" if log else ""),
        seconds=round(seconds, 3),
        has_begun=True,
    )


def unclear(case: PlayedCase, why: str) -> CaseResult:
    """Return the inconclusive result of a case, with the reason."""
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
    """Return the first word of ids, for each kind of ground."""
    own = dict.fromkeys(BINDING, subject)
    return {**own, GroundType.OURS: "kit", GroundType.SILENT: "silent"}


def beginnings(subject: str) -> tuple[str, ...]:
    """Return the first words of a subject's ids, the subject's own document first."""
    return tuple(dict.fromkeys(documents(subject).values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomKind:
    """A kind of room; rooms of one kind are alike, and are used again.

    name
        The name in the plan and in the names of keys.
    is_shared
        Whether plays follow each other without a good payment in between: plays that leave the
        world unchanged. Otherwise a good payment follows each play, and a room with a failed good
        payment is not used again.
    """

    name: str
    is_shared: bool = False

    @property
    def lacks(self) -> str:
        """What the world of a subject started by its user lacks for this kind; empty if nothing."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A demand; by default, the level is the highest that the ground supports.

    `test` gets the play and its return value (of a payer, only the play), and returns a `Found`.
    Without a test, the return value is the `Found`. `absent` has a reason for each dialect without
    this demand.
    """

    title: str
    ground: Ground
    test: Callable[..., Found] = lambda _, observed: observed
    suffix: str = ""
    level: Level | None = None
    absent: Mapping[Any, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoomCase(PlayedCase):
    """A demand on a play in a room, in one dialect."""

    dialect: Any
    """A dialect of the subject."""
    play: Callable[[Any], Awaitable[Any]]
    test: Callable[[Any, Any], Found]
    kind: RoomKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(ABC):
    """A row of the table: a play in several dialects, and the demands on the play.

    section, slug
        Parts of the id, DOCUMENT/section/slug[-suffix].
    absent
        A reason for each dialect without the play.
    waits_s
        Idle seconds of the play; plays that wait run beside the others.
    """

    subject: ClassVar[str]
    """The subject's name, and its document's."""
    control: ClassVar[str]
    """The slug of the controls."""
    dialects: ClassVar[type[StrEnum]]

    section: str
    slug: str
    demands: Sequence[Demand]
    absent: Mapping[Any, str] = field(default_factory=dict)
    waits_s: float = 0
    is_control: bool = False

    @abstractmethod
    def case(self, dialect: Any, demand: Demand, common: dict[str, Any]) -> Any:
        """Return the case of a demand in a dialect, with the `common` fields of all cases."""

    @property
    def besides(self) -> Sequence[Demand]:
        """Further demands."""
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
                common = {
                    "id": f"{names[kind]}/{self.section}/{slug}",
                    "level": demand.level or LEVELS[kind],
                    "ground": demand.ground,
                    "title": demand.title,
                    "played_as": f"{self.section}/{self.slug}-{dialect}",
                    "control": f"{self.subject}/control/{self.control}",
                    "is_control": self.is_control and not demand.suffix,
                    "waits_s": self.waits_s,
                }
                yield self.case(dialect, demand, common)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomRow(Row):
    """A row of a subject in rooms.

    play
        Asks the subject, changes the world, and returns a value for the tests of the demands. May
        raise `Inconclusive`, with a reason.
    kind
        The kind of room of the play.
    """

    plain: ClassVar[RoomKind]
    """The usual kind of room."""

    play: Callable[[Any], Awaitable[Any]]
    kind: RoomKind | None = None

    @property
    def needs(self) -> tuple[Need, ...]:
        """The needs of the play."""
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
    """Return the reason for every dialect but the kept dialects."""
    return {dialect: reason for dialect in type(kept[0]) if dialect not in kept}
