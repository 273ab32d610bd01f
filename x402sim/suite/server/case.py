"""How cases of a server are declared: what is played, and what is demanded of it.

One row is played once for each version; every demand on it has an id of its own. A version in which
it cannot be played has a reason instead of an id, so that the table has no empty cell.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from x402sim.spec.clauses import LEVELS
from x402sim.spec.ground import BINDING, Ground, GroundType
from x402sim.suite import played
from x402sim.suite.played import Found, PlayedCase
from x402sim.suite.server.payment import Dialect
from x402sim.suite.server.play import Play

DOCUMENTS = {
    **dict.fromkeys(BINDING, "server"),
    GroundType.OURS: "kit",
    GroundType.SILENT: "silent",
}
"""The document that an id begins with, for each kind of ground."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is demanded; the level is the highest that the ground supports.

    `test` gets the play and what it returned, and tells what is wrong. Without one, what the play
    returned is a `Found` itself.
    """

    title: str
    ground: Ground
    test: Callable[[Play, Any], Found] = lambda _, seen: seen
    suffix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerCase(PlayedCase):
    """One id: a demand on what a server did in a play, in one version."""

    dialect: Dialect
    play: Callable[[Play], Awaitable[Any]]
    test: Callable[[Play, Any], Found]

    @property
    def controls(self) -> tuple[str, ...]:
        """The control without which its pass proves nothing."""
        return () if self.is_control else (control_of(self.dialect),)


def control_of(dialect: Dialect) -> str:
    """Return the id of the control of a version."""
    return f"server/control/sells-{dialect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table: what is played in each version, and what is demanded of it.

    section, slug
        They make the id: DOCUMENT/section/slug[-suffix]-version.
    play
        What is done: asks the server, twists the facilitator, and returns what the demands look at.
        An `Inconclusive` that it raises says why nothing can be told.
    absent
        A reason for each version in which it is not played.
    waits_s
        Seconds in which it does nothing but wait; such plays run beside the others.
    """

    section: str
    slug: str
    play: Callable[[Play], Awaitable[Any]]
    demands: Sequence[Demand]
    absent: Mapping[Dialect, str] = field(default_factory=dict)
    waits_s: float = 0
    is_control: bool = False

    def cases(self) -> Iterator[ServerCase]:
        """Yield a case for each demand and version."""
        for dialect in Dialect:
            for demand in () if dialect in self.absent else self.demands:
                kind = demand.ground.kind
                slug = "-".join(filter(None, (self.slug, demand.suffix, dialect)))
                yield ServerCase(
                    id=f"{DOCUMENTS[kind]}/{self.section}/{slug}",
                    level=LEVELS[kind],
                    ground=demand.ground,
                    title=demand.title,
                    dialect=dialect,
                    play=self.play,
                    test=demand.test,
                    played_as=f"{self.section}/{self.slug}-{dialect}",
                    is_control=self.is_control and not demand.suffix,
                    waits_s=self.waits_s,
                )


def table(rows: Sequence[Row]) -> list[ServerCase]:
    """Return the cases of rows; raises `ValueError` for an id that is there twice."""
    return played.table(case for row in rows for case in row.cases())
