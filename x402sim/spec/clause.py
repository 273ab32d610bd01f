"""The type of a clause of the specification."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["MUST", "SHOULD", "MAY"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause: its id, its level, its text, and the code that implements it."""

    id: str
    level: Level
    text: str
    kept_by: str

    @property
    def section(self) -> str:
        """The section of the specification."""
        return self.id.split("/")[0]
