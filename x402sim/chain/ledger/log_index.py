"""An index of blocks by the topics of their logs.

A node finds a log by its topics without reading every block; so does the ledger. The caller
filters again: a block that a reorganisation has replaced may still be in the index.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from x402sim.chain.base import Log, LogFilter

Blocks: TypeAlias = "int | array[int]"
"""The number of the only block, or the numbers of several, oldest first."""
Span = tuple[Sequence[int], int, int]
"""Numbers of blocks, and which of them: from one position to before another."""


class LogIndex:
    """The numbers of the blocks by each topic of their logs.

    Most topics, such as a nonce, are in one block only, so that an entry is a number if it can be.
    """

    def __init__(self) -> None:
        self._blocks: dict[bytes, Blocks] = {}

    def add(self, logs: Iterable[Log]) -> None:
        """Add the logs of a transaction in the newest block."""
        for log in logs:
            for topic in log.topics:
                known = self._blocks.get(topic)
                self._blocks[topic] = _with(known, log.block_number)

    def blocks(self, wanted: LogFilter, first: int, last: int) -> Sequence[int]:
        """Return the blocks of this range that can have what is wanted, oldest first.

        It looks up the rarest of the wanted topics, and reads no list but that one's.
        """
        choices = [self._spans(accepted, first, last) for accepted in wanted.topics if accepted]
        rarest = min(choices, key=_size, default=None)
        if rarest is None or _size(rarest) > last - first:
            return range(first, last + 1)
        found = {n for known, begin, end in rarest for n in known[begin:end]}
        return sorted(found)

    def _spans(self, topics: tuple[bytes, ...], first: int, last: int) -> list[Span]:
        """Return where the blocks of these topics that are in a range begin and end."""
        every = [self._blocks[topic] for topic in dict.fromkeys(topics) if topic in self._blocks]
        lists = [(known,) if isinstance(known, int) else known for known in every]
        return [(known, bisect_left(known, first), bisect_left(known, last + 1)) for known in lists]


def _size(spans: list[Span]) -> int:
    return sum(end - begin for _, begin, end in spans)


def _with(known: "Blocks | None", number: int) -> Blocks:
    """Return the blocks of a topic with the newest one, and without those that it replaces."""
    if known is None or known == number:
        return number
    if isinstance(known, int):
        return number if known > number else array("q", (known, number))
    while known and known[-1] >= number:
        known.pop()
    known.append(number)
    return known


def passes(log: Log, wanted: LogFilter) -> bool:
    """Tell whether a log is one that is wanted, but for its block."""
    if wanted.addresses and log.address not in wanted.addresses:
        return False
    if len(wanted.topics) > len(log.topics):
        return False
    return all(
        not any_of or t in any_of for any_of, t in zip(wanted.topics, log.topics, strict=False)
    )
