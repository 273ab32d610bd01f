"""What happened? The one record every report is made from.

An event is a moment, an actor, what it did, and the facts. Events are kept in order
and written as one canonical JSON object a line, so that equal runs have equal bytes.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One thing that happened: `seq` counts from 0, `at_ms` is Unix milliseconds."""

    seq: int
    at_ms: int
    actor: str
    event: str
    data: dict[str, Any]


class Journal:
    """Events in order; with `limit`, only the newest are kept."""

    def __init__(self, limit: int | None = None) -> None:
        self._events: deque[Event] = deque(maxlen=limit)
        self._next = 0
        self.listeners: list[Callable[[Event], None]] = []
        """Called with every event as it happens; they may record events of their own."""

    @classmethod
    def load(cls, ndjson: bytes) -> "Journal":
        """Return the journal that `ndjson()` wrote; raises `ValueError` naming the line."""
        journal = cls()
        for number, line in enumerate(ndjson.splitlines(), 1):
            try:
                journal._events.append(msgspec.json.decode(line, type=Event))
            except msgspec.MsgspecError as error:
                raise ValueError(f"line {number} is no event of a journal: {error}") from error
        if journal._events:
            journal._next = journal._events[-1].seq + 1
        return journal

    def record(self, at_ms: int, actor: str, event: str, **data: Any) -> None:
        """Append one event."""
        happened = Event(self._next, at_ms, actor, event, data)
        self._events.append(happened)
        self._next += 1
        for listener in self.listeners:
            listener(happened)

    def merge(self, others: Iterable[Event]) -> None:
        """Take in another journal's events, each at its time, and number all anew."""
        events = sorted([*self._events, *others], key=lambda event: event.at_ms)
        self._events.clear()
        self._next = 0
        for event in events:
            self._events.append(msgspec.structs.replace(event, seq=self._next))
            self._next += 1

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    @property
    def length(self) -> int:
        """How many events were ever recorded, the forgotten ones included."""
        return self._next

    def __len__(self) -> int:
        return len(self._events)

    def since(self, seq: int) -> list[Event]:
        """Return the kept events numbered `seq` or more."""
        return [event for event in self._events if event.seq >= seq]

    def ndjson(self) -> bytes:
        """Return the kept events as canonical JSON, one a line."""
        encoder = msgspec.json.Encoder(order="deterministic")
        return b"".join(encoder.encode(event) + b"\n" for event in self._events)

    def sha256(self) -> str:
        """Return the hash of `ndjson()`, in hex."""
        return hashlib.sha256(self.ndjson()).hexdigest()
