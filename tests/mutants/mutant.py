"""What is one row: a defect, the clauses it breaks, and how it is made."""

from dataclasses import dataclass

from tests.mutants.change import Change, all_of
from x402sim.suite.check import DOCUMENT
from x402sim.world.assembly.recipe import Recipe

FEW = 6
"""How many other ids a defect may fail: more, and a failure would not lead to its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A deliberate defect of our own service.

    The checks of all `clauses` must fail ("kit/…" is a demand of the kit's own), and at
    most a `FEW` others, unless it is `broad`, for the reason given. `needs` names what it
    takes to see it: "world", "clock", or a need of the suite.
    """

    name: str
    kind: str
    clauses: tuple[str, ...]
    does: str
    changes: tuple[Change, ...]
    needs: tuple[str, ...]
    broad: str

    @property
    def check_ids(self) -> frozenset[str]:
        """The ids that must fail."""
        return frozenset(c if c.startswith("kit/") else f"{DOCUMENT}/{c}" for c in self.clauses)

    def recipe(self, honest: Recipe) -> Recipe:
        """Return the recipe of a world with the defective service."""
        return all_of(*self.changes)(honest)


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of defects; called, it makes one of them."""

    name: str

    def __call__(
        self,
        name: str,
        clauses: str,
        does: str,
        *changes: Change,
        needs: str = "",
        broad: str = "",
    ) -> Mutant:
        """Make a row; `clauses` and `needs` are written with spaces between them."""
        return Mutant(
            name=name,
            kind=self.name,
            clauses=tuple(clauses.split()),
            does=does,
            changes=changes,
            needs=tuple(needs.split()),
            broad=broad,
        )
