"""All movements of tokens in a journal as columns: those made, and those undone."""

from collections.abc import Callable
from itertools import repeat
from operator import itemgetter
from typing import Any

import numpy as np

from x402sim.events import AuthorizationConsumed, TransactionUndone, Transfer
from x402sim.report.columns import Table, exact, tables
from x402sim.report.reading import Reading


class Movements:
    """Tokens that moved or (`is_undone`) moved back, in order.

    `transfers` has them as the journal does, and `rows` says which of these each movement is.
    `uses` are of authorizations, with the same numbers of texts.
    """

    def __init__(self, reading: Reading) -> None:
        kinds = Transfer, TransactionUndone, AuthorizationConsumed
        self.transfers, undone, self.uses = tables(reading.journal, *kinds)
        self.rows: Any = np.arange(len(self.transfers["seq"]))
        self.at_ms, self.is_undone = self.transfers["at_ms"], np.zeros(len(self.rows), "bool")
        if len(undone["seq"]) and len(self.rows):
            self._undo(undone)

    def _undo(self, undone: Table) -> None:
        """Add what moves back when a transaction is undone: all that it had moved until then."""
        names = "seq", "at_ms", "tx_hash"
        made, back = ([each[name].tolist() for name in names] for each in (self.transfers, undone))
        happened = [
            *zip(*made, self.rows.tolist(), strict=True),
            *zip(*back, repeat(None), strict=False),
        ]
        found: list[tuple[int, int, bool]] = []
        standing: dict[int, list[int]] = {}
        for _, at_ms, tx, row in sorted(happened, key=itemgetter(0)):
            if row is not None:
                standing.setdefault(tx, []).append(row)
                found.append((row, at_ms, False))
            else:
                found += [(each, at_ms, True) for each in standing.pop(tx, ())]
        self.rows, self.at_ms, self.is_undone = map(np.array, zip(*found, strict=True))

    def told(self, name: str, tell: Callable[[str], Any]) -> Any:
        """Return what a function tells of a text of each movement, as an array of objects."""
        return self.transfers.told(name, tell)[self.rows]

    @property
    def amounts_base(self) -> Any:
        """How much the recipient has more by each movement, negative if it was undone: an array."""
        return exact((self.told("amount_base", int) * (1 - 2 * self.is_undone)).tolist())
