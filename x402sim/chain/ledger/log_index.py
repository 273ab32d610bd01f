"""An index of blocks by the topics of their logs.

A node finds a log by its topics without reading every block; so does the ledger. The caller
filters again: a block that a reorganisation has replaced may still be in the index.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from x402sim.chain.base import Log, LogFilter
from x402sim.spilling import Spilling

Span = tuple[Sequence[int], int, int]
"""Numbers of blocks, and which of them: from one position to before another."""


class LogIndex:
    """The numbers of the blocks by each topic of their logs.

    Most topics, such as a nonce, are in one block only, so that an entry is a number if it can be.
    """

    def __init__(self) -> None:
        self._only = Spilling[bytes, int](bytes, int)
        self._several: dict[bytes, array[int]] = {}

    def add(self, logs: Iterable[Log]) -> None:
        """Add the logs of a transaction in the newest block."""
        for log in logs:
            for topic in log.topics:
                self._note(topic, log.block_number)

    def _note(self, topic: bytes, number: int) -> None:
        """Note that a topic is in the newest block, and in none of those that it replaces."""
        known = self._several.get(topic)
        if known is not None:
            while known and known[-1] >= number:
                known.pop()
            known.append(number)
            return
        first = self._only.get(topic, number)
        if first < number:
            self._several[topic] = array("I", (first, number))
            del self._only[topic]
        else:
            self._only[topic] = number

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
        lists = filter(None, map(self._of, dict.fromkeys(topics)))
        return [(known, bisect_left(known, first), bisect_left(known, last + 1)) for known in lists]

    def _of(self, topic: bytes) -> Sequence[int]:
        """Return all blocks of a topic."""
        known = self._several.get(topic)
        if known is not None:
            return known
        only = self._only.get(topic)
        return () if only is None else (only,)


def _size(spans: list[Span]) -> int:
    return sum(end - begin for _, begin, end in spans)


def passes(log: Log, wanted: LogFilter) -> bool:
    """Tell whether a log is one that is wanted, but for its block."""
    if wanted.addresses and log.address not in wanted.addresses:
        return False
    if len(wanted.topics) > len(log.topics):
        return False
    return all(
        not any_of or t in any_of for any_of, t in zip(wanted.topics, log.topics, strict=False)
    )
