"""Every clause of the service's specification: one sentence in our words, and its code.

They are in `clauses.md`. `kept_by` names the function or class that implements a clause. Its
docstring cites the id, and the tests marked with the id fail without it. `ground` quotes the
sentences of the specification that the clause comes from.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from x402sim.spec.ground import Ground, GroundType, read_ground

Level = Literal["MUST", "SHOULD", "MAY"]

LEVELS: dict[GroundType, Level] = {
    GroundType.EXPLICIT: "MUST",
    GroundType.DERIVED: "MUST",
    GroundType.OURS: "SHOULD",
    GroundType.SILENT: "MAY",
}
"""The highest level that a ground supports; a demand has it if it does not name a lower one."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause: its id, its text, the code that implements it, and the clause's ground."""

    id: str
    text: str
    kept_by: str
    ground: Ground

    @property
    def section(self) -> str:
        """The section of the specification."""
        return self.id.split("/")[0]

    @property
    def level(self) -> Level:
        """MUST if the specification makes the demand, else what its ground supports."""
        return LEVELS[self.ground.kind]


def _read(document: str) -> Iterator[Clause]:
    """Yield the clauses of `clauses.md`; raises `ValueError` for a sentence that is not there."""
    for part in document.split("\n## ")[1:]:
        clause_id, text, kept_by, ground = part.split("\n", 3)
        yield Clause(clause_id, text, kept_by.removeprefix("kept by "), read_ground(ground))


CLAUSES: tuple[Clause, ...] = tuple(
    _read(files(__package__).joinpath("clauses.md").read_text(encoding="utf-8"))
)
