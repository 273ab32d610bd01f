"""The storage of a journal: in memory, or in a file that is read when asked.

A file holds what `Journal.ndjson` would return. In memory, a journal on disk keeps only where some
of its lines begin, so that a run can have any number of events.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import IO

from x402sim.events import name_of
from x402sim.journal.entries import HEADER, Entry, line, read_line, require_version, tag_of

EVERY = 512
"""A journal on disk knows where each of so many lines begins."""
_BUFFER = 1 << 20


class InMemory:
    """Entries in memory; with `limit`, only the newest."""

    def __init__(self, limit: int | None = None) -> None:
        self.entries: list[Entry] | deque[Entry] = [] if limit is None else deque(maxlen=limit)
        self.append = self.entries.append
        self._places: dict[str, list[int]] = {}
        """Where the entries of each name are; of the first `_placed` entries."""
        self._placed = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def of(self, names: frozenset[str]) -> Iterator[Entry]:
        """Yield the entries whose events have one of these names."""
        if isinstance(self.entries, deque):  # the oldest leave, and all others have new places
            return (each for each in self.entries if each.event.__struct_config__.tag in names)
        for place in range(self._placed, len(self.entries)):
            name = name_of(type(self.entries[place].event))
            self._places.setdefault(name, []).append(place)
        self._placed = len(self.entries)
        places = sorted(chain.from_iterable(self._places.get(name, ()) for name in names))
        return map(self.entries.__getitem__, places)

    def since(self, seq: int) -> list[Entry]:
        """Return the entries numbered `seq` or more; it reads no others."""
        newest_first = takewhile(lambda entry: entry.seq >= seq, reversed(self.entries))
        return list(newest_first)[::-1]

    def lines(self) -> Iterator[bytes]:
        """Yield the header, and each entry as a line."""
        yield HEADER
        for entry in self.entries:
            yield line(entry) + b"\n"

    def replace(self, entries: Iterable[Entry]) -> None:
        """Keep these entries instead."""
        kept = list(entries)
        self.entries.clear()
        self.entries.extend(kept)
        self._places.clear()
        self._placed = 0

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
            self._begin()
        else:
            self._survey()

    def _begin(self) -> None:
        self._writer = self.file.open("wb", buffering=_BUFFER)
        self._end = self._writer.write(HEADER)
        self._count = 0
        del self._begins[:]

    def _survey(self) -> None:
        """Count the lines of a file that exists, and note where they begin."""
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

    def replace(self, entries: Iterable[Entry]) -> None:
        """Write the file anew with these entries."""
        kept = list(entries)
        self.close()
        self._begin()
        for entry in kept:
            self.append(entry)

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
