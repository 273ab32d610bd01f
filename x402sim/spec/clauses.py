"""The clauses of the service's specification: each is a sentence in our words, with its code.

The clauses are in `clauses.md`. `kept_by` names the function or class that implements a clause: its
docstring cites the id, and the tests marked with the id fail without it. `ground` quotes the
sentences of the specification from which the clause follows.
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
"""The highest level that a ground supports: the level of a demand unless it names a lower one."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause: the id, the text, the implementing code, and the ground."""

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
        """The level that its ground supports: MUST if the specification states or implies it."""
        return LEVELS[self.ground.kind]


def _read(document: str) -> Iterator[Clause]:
    """Yield the clauses of `clauses.md`; raises `ValueError` if it quotes an unknown sentence."""
    for part in document.split("\n## ")[1:]:
        clause_id, text, kept_by, ground = part.split("\n", 3)
        yield Clause(clause_id, text, kept_by.removeprefix("kept by "), read_ground(ground))


CLAUSES: tuple[Clause, ...] = tuple(
    _read(files(__package__).joinpath("clauses.md").read_text(encoding="utf-8"))
)
