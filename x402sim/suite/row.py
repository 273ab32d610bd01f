"""How cases of a payer, facilitator or server are declared: what is played, what is demanded.

One row is played once for each dialect of the subject; every demand on it has an id of its own. A
dialect in which it cannot be played has a reason instead of an id, so that the table has no empty
cell.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from x402sim.spec.clauses import LEVELS, Level
from x402sim.spec.ground import BINDING, Ground, GroundType
from x402sim.spec.needs import Need
from x402sim.suite.played import Found, PlayedCase
from x402sim.suite.room import Floor


def documents(subject: str) -> dict[GroundType, str]:
    """Return the document that an id begins with, for each kind of ground."""
    own = dict.fromkeys(BINDING, subject)
    return {**own, GroundType.OURS: "kit", GroundType.SILENT: "silent"}


def beginnings(subject: str) -> tuple[str, ...]:
    """Return what the ids of a subject begin with, its own document first."""
    return tuple(dict.fromkeys(documents(subject).values()))


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
    """One id: a demand on what a subject did in a play, in one dialect."""

    dialect: Any
    """One of the subject's own."""
    play: Callable[[Any], Awaitable[Any]]
    test: Callable[[Any, Any], Found]
    floor: Floor


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(ABC):
    """A row of the table: something that is played in several dialects, and what is demanded of it.

    section, slug
        They make the id: DOCUMENT/section/slug[-suffix]-dialect.
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
                slug = "-".join(filter(None, (self.slug, demand.suffix, dialect)))
                common = {
                    "id": f"{names[kind]}/{self.section}/{slug}",
                    "level": demand.level or LEVELS[kind],
                    "ground": demand.ground,
                    "title": demand.title,
                    "played_as": f"{self.section}/{self.slug}-{dialect}",
                    "control": f"{self.subject}/control/{self.control}-{dialect}",
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
    floor
        The kind of room that it is played in.
    """

    plain: ClassVar[Floor]
    """The usual kind of room."""

    play: Callable[[Any], Awaitable[Any]]
    floor: Floor | None = None

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
            floor=self.floor or self.plain,
            needs=self.needs,
            **common,
        )


AnyDialect = TypeVar("AnyDialect", bound=StrEnum)


def only(kept: Sequence[AnyDialect], reason: str) -> dict[AnyDialect, str]:
    """Return the reason for every dialect but these."""
    return {dialect: reason for dialect in type(kept[0]) if dialect not in kept}
