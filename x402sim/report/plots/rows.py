"""The rows of the sequence diagram.

To keep it short, an exchange of the service's in which nothing else happens is one row,
exchanges that are repeated (one, or two in turn) are drawn once, with a count, and so are
reads of the chain that follow one another. A payer's exchanges have two rows each unless they
are many.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from x402sim.report.exchanges import exchanges_of
from x402sim.report.reading import Reading
from x402sim.report.trace import CHAIN, TraceLine, lines

MANY = 3
"""Equal exchanges of a payer in a row, to be drawn as one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a line, its answer if it shows a whole exchange, and how often that came."""

    line: TraceLine
    times: int = 1
    answer: TraceLine | None = None
    are_reads: bool = False

    @property
    def text(self) -> str:
        """What is written on it."""
        if self.are_reads:
            return f"{self.times} chain reads"
        count = f"{self.times}\N{MULTIPLICATION SIGN} " if self.times > 1 else ""
        return count + self.line.text + (f": {self.answer.text}" if self.answer else "")

    @property
    def outcome(self) -> str | None:
        """What its exchange came to, if it shows the answer."""
        return (self.answer or self.line).outcome

    @property
    def name(self) -> str:
        """What it is, and of which exchange: the id of its arrow in the picture."""
        return f"{'exchange' if self.answer else self.line.kind} {self.line.exchange}"


class Numbers(dict[str, str]):
    """Short names as ids appear: #1 of a payment, s1 of a session, a1 of an authorization."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = Counter[str]()

    def __missing__(self, name: str) -> str:
        sign = "#" if name.startswith("pay_") else "s" if name.startswith("session_") else "a"
        self._counts[sign] += 1
        self[name] = f"{sign}{self._counts[sign]}"
        return self[name]


def rows(reading: Reading, *, fold: bool = True, words: Callable[[str], str] = str) -> list[Row]:
    """Return the rows of the diagram; what an answer says anyway has no row of its own.

    `fold` makes one row of reads of the chain that follow one another; `words` gives other words
    for a name or a text.
    """
    came_to = exchanges_of(reading.journal).outcomes
    told = [
        replace(
            each,
            text=words(each.text),
            outcome=None if each.kind == "request" else came_to.get(each.exchange),
        )
        for each in lines(reading, Numbers().__getitem__, words)
        if not each.in_answer
    ]
    paired = _paired(told)
    return list(_folded(_reads(paired, reading.services) if fold else paired, reading.services))


def excerpt(every: list[Row], exchange: int, count: int) -> list[Row]:
    """Return at most so many rows, the last ones among them, and those around an exchange.

    Rows like "… 12 rows left out …" stand for the others.
    """
    if len(every) <= count:
        return every
    last = len(every) - max(1, count // 4)
    begins = max(
        (n for n, row in enumerate(every) if 0 < (row.line.exchange or 0) <= exchange), default=0
    )
    length = count - (len(every) - last) - 1
    first = 0 if begins < length else min(begins - length // 2, last - length + 1)
    length -= first > 0
    end = min(first + length, last)
    return [*_gap(every[:first]), *every[first:end], *_gap(every[end:last]), *every[last:]]


def _gap(left_out: list[Row]) -> list[Row]:
    if not left_out:
        return []
    text = f"… {len(left_out)} rows left out …"
    return [Row(replace(left_out[0].line, kind="world", left="world", right=None, text=text))]


def _reads(paired: list[Row], services: Collection[str]) -> list[Row]:
    """Return rows; a service's good reads of the chain that follow one another are one of them."""

    def reader(row: Row) -> tuple[object, ...]:
        line, answer = row.line, row.answer
        is_read = line.left in services and line.right == CHAIN and "_send" not in line.text
        is_good = answer is not None and answer.text == "200" and answer.outcome == "served"
        return (line.left,) if is_read and is_good else (line.seq, line.kind)

    groups = [list(group) for _, group in groupby(paired, reader)]
    return [
        replace(first, times=1 + len(more), are_reads=True) if more else first
        for first, *more in groups
    ]


def _paired(lines: list[TraceLine]) -> list[Row]:
    """Return rows; a request that is followed by its answer is one of them."""
    paired: list[Row] = []
    for line in lines:
        before = paired[-1].line if paired and paired[-1].answer is None else None
        is_answer = before is not None and (before.kind, line.kind) == ("request", "answer")
        if before is not None and is_answer and before.exchange == line.exchange:
            paired[-1] = Row(before, answer=line)
        else:
            paired.append(Row(line))
    return paired


def _folded(paired: list[Row], services: Collection[str]) -> Iterator[Row]:
    """Yield rows, with what is repeated drawn once and counted."""
    n = 0
    while n < len(paired):
        period, times = _repeats(paired, n, services)
        if times > 1:
            yield from (replace(row, times=row.times * times) for row in paired[n : n + period])
        else:
            yield from _apart(paired[n], services)
        n += period * times


def _repeats(paired: list[Row], start: int, services: Collection[str]) -> tuple[int, int]:
    """Return how many rows from here on are repeated, and how many times they come."""
    for period in (1, 2):
        block = paired[start : start + period]
        looks, times, end = list(map(_looks, block)), 1, start + period
        while looks == list(map(_looks, paired[end : end + period])):
            times, end = times + 1, end + period
        is_service = all(row.line.left in services for row in block)
        if times >= (2 if is_service else MANY):
            return period, times
    return 1, 1


def _looks(row: Row) -> tuple[object, ...]:
    """Return what rows that look the same have in common; only whole exchanges do."""
    return (row.line.left, row.line.right, row.text) if row.answer else (row.line.seq,)


def _apart(row: Row, services: Collection[str]) -> Iterator[Row]:
    """Yield a row by itself; a payer's exchange as the two messages it is."""
    if row.answer is None or row.line.left in services:
        yield row
    else:
        yield from (Row(row.line), Row(row.answer))
