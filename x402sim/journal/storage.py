"""The storage of a journal: in memory, or in a file that is read when asked.

A file holds what `Journal.ndjson` would return. In memory, a journal on disk keeps only where some
of its lines begin, so that a run can have any number of events.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

from x402sim.journal.columns import Batch, Texts
from x402sim.journal.entries import HEADER, Entry, line, read_line, require_version, tag_of

EVERY = 1024
"""A journal in memory makes columns of so many entries at once; one on disk knows where each of so
many lines begins."""
_BUFFER = 1 << 20


class InMemory:
    """Entries in memory, as columns but for the newest; with `limit`, only the newest."""

    def __init__(self, limit: int | None = None) -> None:
        self._batches: list[Batch] = []
        self._newest: list[Entry] | deque[Entry] = [] if limit is None else deque(maxlen=limit)
        self._texts = Texts()

    def append(self, entry: Entry) -> None:
        """Add an entry."""
        self._newest.append(entry)
        if len(self._newest) == EVERY:
            self._make_columns()

    def _make_columns(self) -> None:
        if self._newest and isinstance(self._newest, list):
            self._batches.append(Batch(self._newest, self._texts))
            self._newest = []

    def __len__(self) -> int:
        return sum(map(len, self._batches)) + len(self._newest)

    def __iter__(self) -> Iterator[Entry]:
        for batch in self._batches:
            yield from batch
        yield from self._newest

    def of(self, names: frozenset[str]) -> Iterator[Entry]:
        """Yield the entries whose events have one of these names."""
        for batch in self._batches:
            yield from batch.of(names)
        yield from (each for each in self._newest if each.event.__struct_config__.tag in names)

    def batches(self) -> tuple[Texts, list[Batch]]:
        """Return all entries as columns, and their texts."""
        self._make_columns()
        newest = Batch(list(self._newest), self._texts)  # empty, unless there is a limit
        return self._texts, [*self._batches, newest]

    def since(self, seq: int) -> list[Entry]:
        """Return the entries numbered `seq` or more; it reads few others."""
        found: list[Entry] = []
        for part in (self._newest, *reversed(self._batches)):
            entries = list(part)
            found[:0] = newer = [entry for entry in entries if entry.seq >= seq]
            if len(newer) < len(entries):
                break
        return found

    def lines(self) -> Iterator[bytes]:
        """Yield the header, and each entry as a line."""
        yield HEADER
        for entry in self:
            yield line(entry) + b"\n"

    def close(self) -> None:
        """Do nothing: there is no file."""


class OnDisk:
    """Entries in a file, which is written as they come and read anew by every reader.

    A file that is opened to be read is not changed. Raises `OSError`, and `ValueError` for a file
    that is no journal.
    """

    def __init__(self, file: Path, *, is_new: bool) -> None:
        self.file = file.resolve()
        self._writer: IO[bytes] | None = None
        self._count = 0
        self._end = 0
        self._begins = array("q")
        if is_new:
            self._writer = self.file.open("wb", buffering=_BUFFER)
            self._end = self._writer.write(HEADER)
            return
        with self.file.open("rb", buffering=_BUFFER) as reader:
            header = reader.readline()
            require_version(header)
            self._end = len(header)
            for text in reader:
                self._note(len(text))

    def _note(self, length: int) -> None:
        if self._count % EVERY == 0:
            self._begins.append(self._end)
        self._count += 1
        self._end += length

    def __len__(self) -> int:
        return self._count

    def append(self, entry: Entry) -> None:
        """Write an entry; raises `ValueError` after `close`, or for a file opened to be read."""
        if self._writer is None:
            raise ValueError(f"{self.file} is closed: nothing more can be recorded in it")
        self._note(self._writer.write(line(entry) + b"\n"))

    def __iter__(self) -> Iterator[Entry]:
        return (read_line(number, text) for number, text in self._texts(0))

    def batches(self) -> tuple[Texts, list[Batch]]:
        """Return all entries as columns, and their texts."""
        texts, entries, batches = Texts(), iter(self), []
        while batch := list(islice(entries, EVERY)):
            batches.append(Batch(batch, texts))
        return texts, batches

    def of(self, names: frozenset[str]) -> Iterator[Entry]:
        """Yield the entries whose events have one of these names; other lines are not decoded."""
        for number, text in self._texts(0):
            name = tag_of(text)
            if name is None or name in names:
                entry = read_line(number, text)
                if entry.event.__struct_config__.tag in names:
                    yield entry

    def since(self, seq: int) -> list[Entry]:
        """Return the entries numbered `seq` or more; it reads few others."""
        block = max(0, min(seq, self._count) // EVERY)
        found = (read_line(number, text) for number, text in self._texts(block))
        return [entry for entry in found if entry.seq >= seq]

    def lines(self) -> Iterator[bytes]:
        """Yield the header, and each entry as a line."""
        yield HEADER
        for _, text in self._texts(0):
            yield text

    def close(self) -> None:
        """Write what is left, and close the file; it can still be read."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _texts(self, block: int) -> Iterator[tuple[int, bytes]]:
        """Yield the lines so far from a block of lines on, each with its number in the file."""
        if self._writer is not None:
            self._writer.flush()
        end, first = self._end, block * EVERY
        at = self._begins[block] if block < len(self._begins) else end
        with self.file.open("rb", buffering=_BUFFER) as reader:
            reader.seek(at)
            for number, text in enumerate(reader, first + 2):
                if at >= end:
                    break
                at += len(text)
                yield number, text
