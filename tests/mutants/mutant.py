"""A row of the matrix: a defect of our own service, the clauses it breaks, and how it is made.

A row is a call of its `Kind`, such as `session("never-expires", …)`, or a decorator around the
only code of the defect, whose docstring is then the row's sentence.

A `Change` takes a world and returns another one. Nothing is patched: every change is a rule left
out, a setting, a decision, a wrapped collaborator (`changes.py`), or middleware around the
application (`middleware.py`), where only HTTP is seen, so that the service can be rewritten without
touching the mutants. `payments.py` has what defects of payment share.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.mutants.changes import Change, all_of
from x402sim import World
from x402sim.suite.service.case import DOCUMENT

FEW = 11
"""How many other ids a defect may fail: more, and a failure would not lead to its cause.

Five ids vary a good payment (spelling, window, balance) and fail with it, where all are refused.
"""
Code = TypeVar("Code", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Mutant:
    """A deliberate defect of our own service.

    The checks of all `clauses` must fail ("kit/…" is a demand of the kit's own), and at
    most a `FEW` others, unless it is `broad`, for the reason given.
    """

    name: str
    kind: str
    clauses: tuple[str, ...]
    does: str
    changes: tuple[Change, ...]
    broad: str

    @property
    def check_ids(self) -> frozenset[str]:
        return frozenset(c if c.startswith("kit/") else f"{DOCUMENT}/{c}" for c in self.clauses)

    def world(self, honest: World) -> World:
        """Return the options of a world with the defective service."""
        return all_of(*self.changes)(honest)


MUTANTS: dict[str, Mutant] = {}
"""Every defect, by its name; `tests.mutants.rows` has them all."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of defects; called, it adds one of them to `MUTANTS`."""

    name: str

    def __call__(
        self, name: str, clauses: str, does: str, *changes: Change, broad: str = ""
    ) -> None:
        """Add a row; `clauses` are written with spaces between them."""
        assert name not in MUTANTS, f"{name} comes twice"
        MUTANTS[name] = Mutant(name, self.name, tuple(clauses.split()), does, changes, broad)

    def defect(
        self,
        name: str,
        clauses: str,
        place: Callable[[Any], Change] = lambda change: change,
        broad: str = "",
    ) -> Callable[[Code], Code]:
        """Return a decorator that adds a row; `place` says where its code goes."""

        def add(code: Code) -> Code:
            does = " ".join((inspect.getdoc(code) or "").split())
            self(name, clauses, does, place(code), broad=broad)
            return code

        return add
