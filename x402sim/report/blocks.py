"""Blocks and forks: what stands in the chain, what a reorganisation replaced, and what was lost.

A journal names a block by its number and its transactions: it has neither hashes nor blocks without
transactions. Of each reorganisation it has the depth, whatever was in the blocks.
"""

from dataclasses import dataclass, field

import pandas as pd

from x402sim.events import ChainReorganised, TransactionMined, TransactionUndone
from x402sim.journal import Journal
from x402sim.report.columns import in_turn, tables
from x402sim.report.frame import Column, Form, alike, frame, moment
from x402sim.report.reading import once, reading_of


@dataclass(slots=True)
class _Fork:
    """A reorganisation, and the blocks with transactions that it `replaced`."""

    at_ms: int
    fork: int
    depth: int
    replaced: list["_Block"] = field(default_factory=list)


@dataclass(slots=True)
class _Block:
    """A block with transactions; `of_fork` is what replaced it, if the journal has that.

    `block_ms` is the time that it has on the chain. Of its transactions, `again` were mined in a
    later block after it was `orphaned`.
    """

    at_ms: int
    n: int
    block: int
    block_ms: int
    transactions: int = 0
    gas: int = 0
    orphaned_ms: int | None = None
    of_fork: _Fork | None = None
    replaced_by: int | None = None
    again: int = 0

    @property
    def dropped(self) -> int:
        return self.transactions - self.again if self.orphaned_ms is not None else 0


class _Chain:
    """Follows all blocks with transactions, and all reorganisations, in order."""

    def __init__(self, journal: Journal) -> None:
        self.blocks, self.forks = list[_Block](), list[_Fork]()
        self._newest, self._mined_in = dict[int, _Block](), dict[str, _Block]()
        self._fork: _Fork | None = None
        forked, mined, undone = tables(
            journal, ChainReorganised, TransactionMined, TransactionUndone
        )
        in_turn(
            forked.calls(self._forked),
            mined.calls(self._mined),
            undone.calls(self._undone),
        )

    def _forked(self, at_ms: int, depth: int) -> None:
        self._fork = _Fork(at_ms=at_ms, fork=len(self.forks) + 1, depth=depth)
        self.forks.append(self._fork)

    def _mined(self, at_ms: int, tx_hash: str, block: int, block_time_s: int, gas: int) -> None:
        self._fork, known = None, self._newest.get(block)
        if known is None or known.orphaned_ms is not None:
            before, n = known, len(self.blocks) + 1
            known = _Block(at_ms=at_ms, n=n, block=block, block_ms=block_time_s * 1000)
            self.blocks.append(known)
            self._newest[block] = known
            if before:
                before.replaced_by = n
        known.transactions += 1
        known.gas += gas
        if earlier := self._mined_in.get(tx_hash):
            earlier.again += 1
        self._mined_in[tx_hash] = known

    def _undone(self, at_ms: int, tx_hash: str) -> None:
        block = self._mined_in.get(tx_hash)
        if block and block.orphaned_ms is None:
            block.orphaned_ms, block.of_fork = at_ms, self._fork
            if self._fork:
                self._fork.replaced.append(block)


_followed = once(_Chain)


@frame(
    "One row for each block that had transactions, also for those that were replaced.",
    Column("n", "Int64", "its number in this frame, from 1: two blocks of different forks have the same `block`"),
    Column("block", "Int64", "its number in the chain"),
    moment("when it was mined"),
    Column("block_s", "float64", "the time that it has on the chain", "s"),
    Column("transactions", "Int64", "how many, and the gas that they used"),
    Column("gas", "Int64", "how many, and the gas that they used", "gas"),
    Column("canonical", "bool", "whether it stands in the chain at the end"),
    Column("orphaned_s", "float64", "when it was replaced; NaN if it stands", "s"),
    alike(("fork", "depth"), "Int64", "the reorganisation that replaced it, a row of `forks`, and its depth; NA if it stands, or a snapshot or a node undid it"),
    Column("replaced_by", "Int64", "`n` of the next block with the same number; NA if that has no transaction"),
    Column("dropped", "Int64", "of its transactions, how many were never mined again"),
)  # fmt: skip
def blocks(journal: Journal, form: Form) -> pd.DataFrame:
    return form.of_objects(
        _followed(journal).blocks,
        reading_of(journal),
        canonical=lambda each: each.orphaned_ms is None,
        fork=lambda each: each.of_fork and each.of_fork.fork,
        depth=lambda each: each.of_fork and each.of_fork.depth,
    )


@frame(
    "One row for each reorganisation, in order.",
    Column("fork", "Int64", "its number, from 1"),
    moment("when it happened"),
    Column("depth", "Int64", "how many of the newest blocks it replaced"),
    Column("block", "Int64", "the lowest number of those blocks that had transactions; NA if none had"),
    alike(("blocks", "transactions"), "Int64", "how many of these blocks had transactions, and how many"),
    Column("dropped", "Int64", "of those, how many were never mined again"),
)  # fmt: skip
def forks(journal: Journal, form: Form) -> pd.DataFrame:
    return form.of_objects(
        _followed(journal).forks,
        reading_of(journal),
        block=lambda fork: min((each.block for each in fork.replaced), default=None),
        blocks=lambda fork: len(fork.replaced),
        transactions=lambda fork: sum(each.transactions for each in fork.replaced),
        dropped=lambda fork: sum(each.dropped for each in fork.replaced),
    )
