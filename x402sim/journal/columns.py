"""Entries as columns: a number for each field of an event, and each text only once.

An entry and its event take 270 bytes as objects, and a fifth of that here. Readers get the objects
that were recorded, or the columns themselves, which frames are made of.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from inspect import Parameter, signature
from itertools import chain, starmap
from operator import attrgetter
from typing import Any, get_args

import msgspec

from x402sim.events import KINDS, Event, name_of
from x402sim.journal.entries import Entry

Columns = Mapping[str, Sequence[Any]]
"""The columns `seq`, `at_ms` and the fields of one kind of event: a column is an array of numbers,
or of the numbers of `Texts`; a list of anything else, and of numbers beyond 63 bits."""


class Texts(dict[str | None, int]):
    """The number of each text; None is 0. `all` has them by number."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self.all: list[str | None] = [None]
        self.made: Any = None
        """What a reader has made of `all`, to use it again while there are no more."""

    def __missing__(self, text: str) -> int:
        number = self[text] = len(self.all)
        self.all.append(text)
        return number


class Batch:
    """Some entries in order, as columns for each name of an event."""

    def __init__(self, entries: Sequence[Entry], texts: Texts) -> None:
        self._texts, self._length = texts, len(entries)
        groups: dict[type[Event], list[int]] = {}
        for place, entry in enumerate(entries):
            groups.setdefault(type(entry.event), []).append(place)
        self.columns: dict[str, Columns] = {}
        self._places: dict[str, Sequence[int]] = {}
        """Where in the batch the entries of each name are."""
        for kind, places in groups.items():
            self.columns[name_of(kind)] = _columns([entries[each] for each in places], texts)
            self._places[name_of(kind)] = _numbers(places)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Entry]:
        return self.of(frozenset(self.columns))

    def of(self, names: frozenset[str]) -> Iterator[Entry]:
        """Yield the entries whose events have one of these names, in order."""
        known = names & self.columns.keys()
        if len(known) < 2:  # one kind is in order already
            return chain.from_iterable(map(self._entries, known))
        found: list[Entry | None] = [None] * self._length
        for name in known:
            deque(map(found.__setitem__, self._places[name], self._entries(name)), maxlen=0)
        return filter(None, found)

    def _entries(self, name: str) -> Iterator[Entry]:
        kind, columns = _kinds()[name], self.columns[name]
        is_text, texts = texts_of(name), self._texts.all.__getitem__
        fields = zip(*(
            map(texts, columns[field]) if field in is_text else columns[field]
            for field in kind.__struct_fields__
        ), strict=True)  # fmt: skip
        return map(Entry, columns["seq"], columns["at_ms"], _maker(name)(fields))


def _columns(entries: list[Entry], texts: Texts) -> Columns:
    events = [entry.event for entry in entries]
    kind = type(events[0])
    is_text = texts_of(name_of(kind))
    made: dict[str, Sequence[Any]] = {
        name: _numbers([getattr(entry, name) for entry in entries]) for name in ("seq", "at_ms")
    }
    for field in msgspec.structs.fields(kind):
        values = list(map(attrgetter(field.name), events))
        if field.name in is_text:
            made[field.name] = array("i", map(texts.__getitem__, values))
        else:
            made[field.name] = _numbers(values) if field.type is int else values
    return made


def _numbers(values: list[int]) -> Sequence[int]:
    """Return an array of the shortest numbers that hold all of these; the list if none do."""
    for kind in "hiq":
        with suppress(OverflowError, TypeError):
            return array(kind, values)
    return values


@cache
def _kinds() -> dict[str, type[Event]]:
    return {name_of(kind): kind for kind in KINDS}


@cache
def texts_of(name: str) -> frozenset[str]:
    """Return the fields of an event that are texts, or None."""
    fields = msgspec.structs.fields(_kinds()[name])
    return frozenset(field.name for field in fields if _is_text(field.type))


def _is_text(kind: Any) -> bool:
    is_one_of = bool(get_args(kind)) and all(isinstance(each, str) for each in get_args(kind))
    return is_one_of or kind in (str, str | None)


@cache
def _maker(name: str) -> Callable[[Iterable[tuple[Any, ...]]], Iterator[Event]]:
    """Return a function that makes events of their fields: by position if it can."""
    kind = _kinds()[name]
    if all(each.kind is not Parameter.KEYWORD_ONLY for each in signature(kind).parameters.values()):
        return lambda rows: starmap(kind, rows)
    names = kind.__struct_fields__
    return lambda rows: (kind(**dict(zip(names, row, strict=True))) for row in rows)
