"""Blocks and forks: what stands in the chain, what a reorganisation replaced, and what was lost.

A journal names a block by its number and its transactions: it has neither hashes nor blocks without
transactions. Of each reorganisation it has the depth, whatever was in the blocks.
"""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from x402sim.events import ChainReorganised, TransactionMined, TransactionUndone
from x402sim.journal import Entry, Journal
from x402sim.report.columns import flag, frame, integer, kinds
from x402sim.report.reading import Reading


@dataclass(slots=True)
class _Fork:
    """A reorganisation, and the blocks with transactions that it replaced."""

    entry: Entry
    number: int
    depth: int
    blocks: list["_Block"] = field(default_factory=list)


@dataclass(slots=True)
class _Block:
    """A block with transactions; `fork` is what replaced it, if the journal has that.

    Of its transactions, `again` were mined in a later block after it was `orphaned`.
    """

    entry: Entry
    n: int
    first: TransactionMined
    transactions: int = 0
    gas: int = 0
    orphaned: Entry | None = None
    fork: _Fork | None = None
    replaced_by: int | None = None
    again: int = 0

    @property
    def dropped(self) -> int:
        return self.transactions - self.again if self.orphaned else 0


def _followed(journal: Journal) -> tuple[list[_Block], list[_Fork]]:
    """Return all blocks with transactions and all reorganisations, in order."""
    blocks, forks = list[_Block](), list[_Fork]()
    newest, mined_in = dict[int, _Block](), dict[str, _Block]()
    fork: _Fork | None = None
    for entry in journal.of(ChainReorganised, TransactionMined, TransactionUndone):
        event = entry.event
        if isinstance(event, ChainReorganised):
            fork = _Fork(entry, len(forks) + 1, event.depth)
            forks.append(fork)
        elif isinstance(event, TransactionMined):
            fork, block = None, newest.get(event.block)
            if block is None or block.orphaned:
                before, block = block, _Block(entry, len(blocks) + 1, event)
                blocks.append(block)
                newest[event.block] = block
                if before:
                    before.replaced_by = block.n
            block.transactions += 1
            block.gas += event.gas
            if earlier := mined_in.get(event.tx_hash):
                earlier.again += 1
            mined_in[event.tx_hash] = block
        elif isinstance(event, TransactionUndone):
            undone = mined_in.get(event.tx_hash)
            if undone and undone.orphaned is None:
                undone.orphaned, undone.fork = entry, fork
                if fork:
                    fork.blocks.append(undone)
    return blocks, forks


_BLOCKS = kinds(
    "n block t_s at block_s transactions gas canonical orphaned_s fork depth replaced_by dropped",
    **dict.fromkeys(("n", "transactions", "fork", "depth", "replaced_by", "dropped"), integer),
    canonical=flag,
)


def blocks(journal: Journal) -> pd.DataFrame:
    """Return one row for each block that had transactions, also for those that were replaced.

    | column | dtype | meaning |
    | --- | --- | --- |
    | n | Int64 | its number in this frame, from 1: two blocks of different forks have the same `block` |
    | block | Int64 | its number in the chain |
    | t_s, at | float64, UTC | when it was mined |
    | block_s | float64 | the time that it has on the chain |
    | transactions, gas | Int64 | how many, and the gas that they used |
    | canonical | bool | whether it stands in the chain at the end |
    | orphaned_s | float64 | when it was replaced; NaN if it stands |
    | fork, depth | Int64 | the reorganisation that replaced it, a row of `forks`, and its depth; NA if it stands, or a snapshot or a node undid it |
    | replaced_by | Int64 | `n` of the next block with the same number; NA if that has no transaction |
    | dropped | Int64 | of its transactions, how many were never mined again |
    """  # noqa: E501 - a table
    reading = Reading(journal)

    def row(block: _Block) -> tuple[Any, ...]:
        orphaned, fork = block.orphaned, block.fork
        return (
            block.n, block.first.block, *reading.when(block.entry.at_ms),
            reading.since(block.first.block_time_s * 1000), block.transactions, block.gas,
            orphaned is None, reading.since(orphaned.at_ms) if orphaned else None,
            fork and fork.number, fork and fork.depth, block.replaced_by, block.dropped,
        )  # fmt: skip

    return frame(_BLOCKS, map(row, _followed(journal)[0]), reading.decimals)


_FORKS = kinds(
    "fork t_s at depth block blocks transactions dropped",
    **dict.fromkeys(("fork", "depth", "blocks", "transactions", "dropped"), integer),
)


def forks(journal: Journal) -> pd.DataFrame:
    """Return one row for each reorganisation, in order (all but t_s, at are Int64).

    | column | meaning |
    | --- | --- |
    | fork | its number, from 1 |
    | t_s, at | when it happened |
    | depth | how many of the newest blocks it replaced |
    | block | the lowest number of those blocks that had transactions; NA if none had |
    | blocks, transactions | how many of these blocks had transactions, and how many |
    | dropped | of those, how many were never mined again |
    """
    reading = Reading(journal)
    rows = (
        (
            fork.number,
            *reading.when(fork.entry.at_ms),
            fork.depth,
            min((block.first.block for block in fork.blocks), default=None),
            len(fork.blocks),
            sum(block.transactions for block in fork.blocks),
            sum(block.dropped for block in fork.blocks),
        )
        for fork in _followed(journal)[1]
    )
    return frame(_FORKS, rows, reading.decimals)
