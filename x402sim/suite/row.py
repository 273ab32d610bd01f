"""Declares the cases of payers, facilitators and servers: rows with a play and demands.

A row is played once for each dialect of the subject. Every demand of the row has an id, the same in
each dialect. For a dialect without a play the row gives a reason: the table has no empty cell.
"""

import runpy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self

from x402sim.spec.clauses import LEVELS, Level
from x402sim.spec.ground import BINDING, Ground, GroundType, Sentence, folder
from x402sim.spec.needs import Need
from x402sim.suite import texts
from x402sim.suite.case import Case
from x402sim.suite.dialect import Dialect
from x402sim.suite.verdict import Found


@cache
def rows_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the rows in the files of a subject, in the order of the sections.

    A row of a file is a play under `@case`, or stands in the file's list `ROWS`.
    """
    files = sorted(folder(subject).glob("*.py"))
    found: list[Row] = []
    for file in files:
        names = runpy.run_path(str(file), run_name=file.stem)
        found += [row for row in names.values() if isinstance(row, Row)] + names.get("ROWS", [])
    return tuple(sorted(found, key=lambda row: sections.index(row.section)))


@cache
def cases_of(subject: str, *sections: str) -> tuple[Any, ...]:
    """Return the cases of a subject's rows; raises `ValueError` for a name declared twice."""
    found = tuple(case for row in rows_of(subject, *sections) for case in row.cases())
    names = Counter(case.name for case in found)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ValueError(f"declared twice: {', '.join(twice)}")
    return found


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
        """What this kind of room needs and a running subject's world lacks; empty if nothing."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A demand; by default, the level is the highest that the ground supports.

    `test` gets the play and its return value (of a payer, only the play), and returns a `Found`.
    `absent` has a reason for each dialect without this demand.
    """

    title: str
    ground: Ground
    test: Callable[..., Found]
    suffix: str = ""
    level: Level | None = None
    absent: Mapping[Any, str] = field(default_factory=dict)


def demand(title: str, ground: Ground, **more: Any) -> Callable[[Callable[..., Found]], Demand]:
    """Return a decorator that makes a demand of its test; `more` is for `Demand`."""
    return lambda test: Demand(title=title, ground=ground, test=test, **more)


def told(_: Any, observed: Found) -> Found:
    """Return what a play has returned: the observation itself."""
    return observed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoomCase(Case):
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
    variant
        The input of the play, if several rows have one id: the same demand on different inputs.
    play
        The play of the cases, or of a payer the story.
    absent
        A reason for each dialect without the play.
    waits_s
        Idle seconds of the play; plays that wait run beside the others.
    """

    subject: ClassVar[str]
    """The subject's name, and its document's."""
    control: ClassVar[str]
    """The slug of the controls."""
    dialects: ClassVar[Sequence[Dialect]]
    not_played: ClassVar[Mapping[Any, Mapping[str, str]]] = {}
    """For each dialect the reasons why sections, or rows by section/slug, are not played."""
    sentences: ClassVar[Mapping[Any, Mapping[Sentence, Sentence | None]]] = {
        Dialect.V1: texts.IN_V1
    }
    """For each dialect the sentences of its text with the content of other texts' sentences; None
    without one. A demand without a sentence left is not made.
    """

    section: str
    slug: str
    demands: Sequence[Demand]
    play: Any
    absent: Mapping[Any, str] = field(default_factory=dict)
    waits_s: float = 0
    is_control: bool = False
    variant: str = ""

    def __post_init__(self) -> None:
        for dialect, reasons in self.not_played.items():
            for name in (self.section, f"{self.section}/{self.slug}"):
                if name in reasons:
                    object.__setattr__(self, "absent", {**self.absent, dialect: reasons[name]})

    @property
    def name(self) -> str:
        """The name of the play, unique in its section."""
        return "-".join(filter(None, (self.slug, self.variant)))

    @classmethod
    def of(cls, path: str, *demands: Demand, **more: Any) -> Callable[[Any], Self]:
        """Return a decorator that makes a row of a play; `path` is section/slug."""
        section, slug = path.split("/")
        return lambda play: cls(section=section, slug=slug, demands=demands, play=play, **more)

    @abstractmethod
    def case(self, dialect: Any, demand: Demand, common: dict[str, Any]) -> Any:
        """Return the case of a demand in a dialect, with the `common` fields of all cases."""

    @property
    def besides(self) -> Sequence[Demand]:
        """Further demands."""
        return ()

    def _ground(self, ground: Ground, dialect: Any) -> Ground | None:
        """Return a ground with the sentences of a dialect's text; None without a sentence left."""
        known, own = self.sentences.get(dialect, {}), ground.sentences
        kept = dict.fromkeys(each for old in own if (each := known.get(old, old)))
        return replace(ground, sentences=tuple(kept)) if kept or not own else None

    def cases(self) -> Iterator[Any]:
        """Yield a case for each demand and dialect, with grounds of the dialect's text."""
        names = documents(self.subject)
        for dialect in self.dialects:
            if dialect in self.absent:
                continue
            for demand in (*self.demands, *self.besides):
                ground = self._ground(demand.ground, dialect)
                if dialect in demand.absent or ground is None:
                    continue
                kind = ground.kind
                slug = "-".join(filter(None, (self.slug, demand.suffix)))
                common = {
                    "id": f"{names[kind]}/{self.section}/{slug}",
                    "level": demand.level or LEVELS[kind],
                    "ground": ground,
                    "title": demand.title,
                    "played_as": f"{self.section}/{self.name}-{dialect}",
                    "variant": self.variant,
                    "control": f"{self.subject}/control/{self.control}",
                    "is_control": self.is_control and not demand.suffix,
                    "waits_s": self.waits_s,
                }
                yield self.case(dialect, demand, common)


AnyAct = Callable[[Any], Awaitable[Any]]
"""A play: asks the subject, and returns what the demands test."""


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
    play: AnyAct
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


def only(kept: Sequence[Dialect], reason: str) -> dict[Dialect, str]:
    """Return the reason for every dialect but the kept dialects."""
    return {dialect: reason for dialect in Dialect if dialect not in kept}
