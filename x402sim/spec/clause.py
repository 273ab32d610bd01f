"""The type of a clause of the specification."""

from dataclasses import dataclass
from typing import Literal

from x402sim.spec.ground import Ground, Kind

Level = Literal["MUST", "SHOULD", "MAY"]

LEVELS: dict[Kind, Level] = {
    Kind.EXPLICIT: "MUST",
    Kind.DERIVED: "MUST",
    Kind.OURS: "SHOULD",
    Kind.SILENT: "MAY",
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
