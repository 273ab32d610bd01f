"""The journal: the one record that every report is made from.

A journal holds entries in order: a number, a moment, and an event of `x402sim.events`.
Its file is NDJSON. The first line names the format and its version, and each further line
is one entry: `seq`, `at_ms`, then the fields of the event in the order of their
declaration, so that equal runs have equal bytes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from x402sim.events import Event, name_of
from x402sim.events.base import BaseEvent
from x402sim.journal.columns import Batch, Texts
from x402sim.journal.entries import HEADER, VERSION, Entry, line, read_line, require_version
from x402sim.journal.maker import OURS, Maker, read as read_maker, write as write_maker
from x402sim.journal.storage import InMemory, OnDisk

__all__ = ["HEADER", "OURS", "VERSION", "Entry", "EventType", "Journal", "Maker", "line"]

EventType = TypeVar("EventType", bound=BaseEvent)
"""The class of an event."""


class Journal:
    """Entries in order; with `limit`, only the newest are kept.

    With `file`, entries are written to that file as they come, and read from there: a run may have
    any number of events. A file that exists is overwritten, as is the file beside it that says
    which versions made it. Raises `OSError`.
    """

    def __init__(self, limit: int | None = None, *, file: Path | None = None) -> None:
        self._storage = _storage(limit, file)
        self._next = 0
        self.maker: Maker | None = OURS
        """The versions that recorded it; None if they are not known."""
        self.limit = limit
        """The most entries that are kept; None if all are."""
        self.listeners: list[Callable[[Entry], None]] = []
        """Called with every entry as it is recorded; they may record events of their own."""
        self.made: tuple[int, dict[Any, Any]] = 0, {}
        """What readers have made of so many entries, to use it again while there are no more."""

    def __repr__(self) -> str:
        """Return how many entries are kept, the first and the last; `list(journal)` has all."""
        last = self.since(self._next - 1)
        first = [next(iter(self))] if len(self) > 1 else []
        return f"<Journal of {len(self)} events: {' … '.join(map(str, first + last))}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Journal.load, (self.ndjson(), self.maker)

    @classmethod
    def load(cls, ndjson: bytes, maker: Maker | None = None) -> "Journal":
        """Return the journal that `ndjson()` wrote; `maker` has the versions that made it.

        Raises `ValueError` naming the version that was seen, or the line that is no entry.
        """
        header, *lines = ndjson.splitlines() or [b""]
        require_version(header)
        journal = cls()
        journal.maker = maker
        for number, text in enumerate(lines, 2):
            entry = read_line(number, text)
            journal._storage.append(entry)
            journal._next = entry.seq + 1
        return journal

    @classmethod
    def open(cls, file: Path) -> "Journal":
        """Return the journal in a file without reading its entries: readers do, when they read.

        Raises `OSError`, and `ValueError` for another format or version. A reader raises
        `ValueError` for a line that is no entry.
        """
        journal = cls()
        journal._storage, journal.maker = OnDisk(file, is_new=False), read_maker(file)
        journal._next = max((entry.seq + 1 for entry in journal.since(len(journal) - 1)), default=0)
        return journal

    @property
    def file(self) -> Path | None:
        """The file that the entries are in; None if they are in memory."""
        return self._storage.file if isinstance(self._storage, OnDisk) else None

    def record(self, at_ms: int, event: Event) -> None:
        """Append an event that happened at this moment, in Unix milliseconds."""
        entry = Entry(self._next, at_ms, event)
        self._storage.append(entry)
        self._next += 1
        for listener in self.listeners:
            listener(entry)

    def merge(self, others: Iterable[Entry]) -> None:
        """Add another journal's entries, each at its time, and number all again.

        Its clock may differ from ours by the error of the estimate, so an entry that would
        come before our first one, which began the run, comes right after it.
        """
        ours = list(self)
        first_ms = ours[0].at_ms if ours else 0
        added = [Entry(each.seq, max(each.at_ms, first_ms), each.event) for each in others]
        entries = sorted([*ours, *added], key=lambda entry: entry.at_ms)
        self.close()
        self._storage = _storage(self.limit, self.file)
        self._next, self.made = 0, (0, {})
        for each in entries:
            self._storage.append(Entry(self._next, each.at_ms, each.event))
            self._next += 1

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._storage)

    @property
    def length(self) -> int:
        """How many events were ever recorded, including those no longer kept."""
        return self._next

    def __len__(self) -> int:
        return len(self._storage)

    def of(self, *kinds: type[BaseEvent]) -> Iterator[Entry]:
        """Yield the entries whose events are of these kinds; from a file, it decodes no others."""
        return self._storage.of(frozenset(map(name_of, kinds)))

    def events(self, kind: type[EventType]) -> Iterator[EventType]:
        """Yield the events of a kind."""
        return (cast("EventType", entry.event) for entry in self.of(kind))

    def columns(self) -> tuple[Texts, list[Batch]]:
        """Return all entries as columns, in batches, and the texts in them."""
        return self._storage.batches()

    def since(self, seq: int) -> list[Entry]:
        """Return the kept entries numbered `seq` or more."""
        return self._storage.since(seq)

    def ndjson(self, since: int = 0) -> bytes:
        """Return the header, and the kept entries numbered `since` or more, one a line."""
        return HEADER + b"".join(line(entry) + b"\n" for entry in self.since(since))

    def sha256(self) -> str:
        """Return the hash of `ndjson()`, header included, in hex: what `sha256sum` prints."""
        digest = hashlib.sha256()
        for text in self._storage.lines():
            digest.update(text)
        return digest.hexdigest()

    def save(self, file: Path) -> None:
        """Write `ndjson()` to a file, and beside it who made it; raises `OSError`."""
        if file.resolve() == self.file:
            return
        with file.open("wb") as writer:
            writer.writelines(self._storage.lines())
        write_maker(file, self.maker)

    def close(self) -> None:
        """End recording: what is left goes to the file, if there is one; it can still be read."""
        self._storage.close()


def _storage(limit: int | None, file: Path | None) -> InMemory | OnDisk:
    if file is None:
        return InMemory(limit)
    storage = OnDisk(file, is_new=True)
    write_maker(file, OURS)
    return storage
