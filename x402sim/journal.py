"""What happened? The one record every report is made from.

A journal holds entries in order: a number, a moment, and an event of `x402sim.events`.
Its file is NDJSON. The first line names the format and its version, and each further line
is one entry: `seq`, `at_ms`, then the fields of the event in the order of their
declaration, so that equal runs have equal bytes.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec

from x402sim.events import Event

VERSION = 4
"""Of the format; it changes when an event, a field or their order does."""
MAX_BRACKETS = 1000
"""More arrays and objects than a line has, and few enough for a small stack."""
HEADER = b'{"journal":"x402sim","version":%d}\n' % VERSION
"""The first line of every journal; it is part of the hash."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event in its journal: `seq` counts from 0, `at_ms` is Unix milliseconds."""

    seq: int
    at_ms: int
    event: Event


class _Number(msgspec.Struct, frozen=True, gc=False):
    seq: int
    at_ms: int


_encoder = msgspec.json.Encoder(order="deterministic")
_decode_number = msgspec.json.Decoder(_Number).decode
_decode_event = msgspec.json.Decoder(Event).decode


class Journal:
    """Entries in order; with `limit`, only the newest are kept."""

    def __init__(self, limit: int | None = None) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._next = 0
        self.listeners: list[Callable[[Entry], None]] = []
        """Called with every entry as it is recorded; they may record events of their own."""

    @classmethod
    def load(cls, ndjson: bytes) -> "Journal":
        """Return the journal that `ndjson()` wrote.

        Raises `ValueError` naming the version that was seen, or the line that is no entry.
        """
        header, *lines = ndjson.splitlines() or [b""]
        _require_version(header)
        journal = cls()
        for number, line in enumerate(lines, 2):
            if _brackets(line) > MAX_BRACKETS:
                raise ValueError(f"line {number} is no entry of a journal: it is nested too deeply")
            try:
                at = _decode_number(line)
                journal._entries.append(Entry(at.seq, at.at_ms, _decode_event(line)))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ValueError(f"line {number} is no entry of a journal: {error}") from error
        if journal._entries:
            journal._next = journal._entries[-1].seq + 1
        return journal

    def record(self, at_ms: int, event: Event) -> None:
        """Append an event that happened at this moment, in Unix milliseconds."""
        entry = Entry(self._next, at_ms, event)
        self._entries.append(entry)
        self._next += 1
        for listener in self.listeners:
            listener(entry)

    def merge(self, others: Iterable[Entry]) -> None:
        """Add another journal's entries, each at its time, and number all again.

        Its clock may differ from ours by the error of the estimate, so an entry that would
        come before our first one, which began the run, comes right after it.
        """
        first_ms = self._entries[0].at_ms if self._entries else 0
        added = [Entry(each.seq, max(each.at_ms, first_ms), each.event) for each in others]
        entries = sorted([*self._entries, *added], key=lambda entry: entry.at_ms)
        self._entries.clear()
        self._entries.extend(Entry(n, each.at_ms, each.event) for n, each in enumerate(entries))
        self._next = len(entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def length(self) -> int:
        """How many events were ever recorded, including those no longer kept."""
        return self._next

    def __len__(self) -> int:
        return len(self._entries)

    def since(self, seq: int) -> list[Entry]:
        """Return the kept entries numbered `seq` or more."""
        newest_first = takewhile(lambda entry: entry.seq >= seq, reversed(self._entries))
        return list(newest_first)[::-1]

    def ndjson(self, since: int = 0) -> bytes:
        """Return the header, and the kept entries numbered `since` or more, one a line."""
        return HEADER + b"".join(line(entry) + b"\n" for entry in self.since(since))

    def sha256(self) -> str:
        """Return the hash of `ndjson()`, header included, in hex: what `sha256sum` prints."""
        return hashlib.sha256(self.ndjson()).hexdigest()


def line(entry: Entry) -> bytes:
    """Return an entry as one JSON object: seq, at_ms, and the event's fields as declared."""
    return b'{"seq":%d,"at_ms":%d,' % (entry.seq, entry.at_ms) + _encoder.encode(entry.event)[1:]


def _brackets(text: bytes) -> int:
    """Return an upper limit of the depth of JSON: the decoder recurses as deep as it goes."""
    return text.count(b"[") + text.count(b"{")


def _require_version(header: bytes) -> None:
    """Raise `ValueError` unless this is the first line of a journal of our version."""
    wanted = f"version {VERSION} is needed"
    try:
        parsed: Any = None if _brackets(header) > MAX_BRACKETS else msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        parsed = None
    match parsed:
        case {"journal": "x402sim", "version": version}:
            if version != VERSION:
                raise ValueError(f"this journal has version {version!r}; {wanted}")
        case {"seq": _, "at_ms": _}:
            raise ValueError(f"this journal has version 1 (it has no header line); {wanted}")
        case _:
            raise ValueError(f"this is no journal: its first line is not {HEADER.decode().strip()}")
