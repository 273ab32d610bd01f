"""The journal: every report is made from this record.

A journal holds entries in order: a number, a moment, and an event of `x402sim.events`. A file is
NDJSON. The first line names format and version, and each further line is an entry: `seq`, `at_ms`,
then the fields of the event in the order of the declaration: equal runs have equal bytes.
"""

import hashlib
import platform
import re
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from inspect import Parameter, signature
from io import BytesIO
from itertools import chain, count, dropwhile, islice, repeat, starmap, takewhile
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, TypeVar, Union, cast, get_args

import msgspec
from msgspec.structs import FieldInfo, astuple

from x402sim.events import KINDS, BaseEvent, Event, ExchangeEvent, name_of
from x402sim.version import VERSION as X402SIM_VERSION

VERSION = 6
"""The version of the format; a change of an event, a field or the order changes the version."""
MAX_BRACKETS = 1000
"""The most arrays and objects of a line, more than an event has: the decoder calls itself for each
level, and a hostile file with more levels could overflow the stack."""
HEADER = b'{"journal":"x402sim","version":%d}\n' % VERSION
"""The first line of every journal, and a part of the hash."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An event in a journal: `seq` counts from 0, `at_ms` is Unix milliseconds."""

    seq: int
    at_ms: int
    event: Event


class _Number(msgspec.Struct, frozen=True, gc=False):
    seq: int
    at_ms: int


_encoder = msgspec.json.Encoder(order="deterministic")
_decode_number = msgspec.json.Decoder(_Number).decode
_decode_event = msgspec.json.Decoder(Event).decode
_KINDS: dict[str, type[Event]] = {name_of(kind): kind for kind in KINDS}
_TAG = re.compile(rb'\{"seq":\d+,"at_ms":\d+,"event":"([a-z ]+)"')
_BEFORE, _ENOUGH = b',"event":"', 14
"""The bytes before an event's name, and the number of the name's characters in `_named`."""


def line(entry: Entry) -> bytes:
    """Return an entry as one JSON object: seq, at_ms, and the event's fields as declared."""
    return b'{"seq":%d,"at_ms":%d,' % (entry.seq, entry.at_ms) + _encoder.encode(entry.event)[1:]


def read_line(number: int, text: bytes) -> Entry:
    """Return the entry in a line; raises `ValueError` naming the line."""
    if _brackets(text) > MAX_BRACKETS:
        raise ValueError(f"line {number} is no entry of a journal: it is nested too deeply")
    try:
        at = _decode_number(text)
        return Entry(at.seq, at.at_ms, _decode_event(text))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"line {number} is no entry of a journal: {error}") from error


def _is_torn(text: bytes) -> bool:
    """Return whether a last line was cut off, as by the kill of a writing process."""
    if text.endswith(b"\n"):
        return False
    try:
        read_line(0, text)
    except ValueError:
        return True
    return False


def tag_of(text: bytes) -> str | None:
    """Return the name of a line's event without decoding; None for a line of another writer."""
    found = _TAG.match(text)
    return found.group(1).decode() if found else None


def _names(lines: list[bytes]) -> set[str | None]:
    """Return the names of the events of some lines, as `tag_of`, and perhaps more names.

    To compare a few bytes at the same place of each line is faster. A superfluous name costs a
    reader a look at a block without the event.
    """
    first = _TAG.match(lines[0])
    if first:  # other lines are as long up to the name, except for a number with one more digit
        begin, end = first.start(1) - len(_BEFORE), first.start(1) + _ENOUGH
        found = {_named(part) for part in {text[begin:end] for text in lines}}
        if None not in found:
            return set().union(*filter(None, found))
    return set(map(tag_of, lines))


@lru_cache(1024)
def _named(part: bytes) -> frozenset[str] | None:
    """Return the possible names in a part of a line, from `_BEFORE` on; None for another part."""
    before, name = part[: len(_BEFORE)], part[len(_BEFORE) :].partition(b'"')[0].decode("latin-1")
    is_whole = len(name) < _ENOUGH
    found = (kind for kind in _KINDS if (kind == name if is_whole else kind.startswith(name)))
    return (frozenset(found) or None) if before == _BEFORE else None


def _brackets(text: bytes) -> int:
    """Return an upper limit of the depth of JSON, which the decoder recurses into."""
    return text.count(b"[") + text.count(b"{")


def require_version(header: bytes) -> None:
    """Raise `ValueError` unless a line is the first of a journal of our version."""
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


class Maker(msgspec.Struct, frozen=True, omit_defaults=True):
    """What made a journal: the versions of x402sim and of Python, and the scenario's file.

    `source` is what `x402sim run` takes to play a scenario of the user again, "FILE.py:function".
    It is empty for a scenario without a file, and None for a shipped or an unknown one.
    """

    x402sim: str
    python: str
    source: str | None = None

    def __str__(self) -> str:
        """Return "x402sim 0.1.0, Python 3.11.7"."""
        return f"x402sim {self.x402sim}, Python {self.python}"


BUNDLE = "bundle.json"
"""The file in the folder of a saved run with the options to repeat the run, and the versions."""
OURS = Maker(X402SIM_VERSION, platform.python_version())


def _maker_file(journal: Path) -> Path:
    """Return the file that says what made a journal: `run.ndjson.made.json`."""
    return journal.with_name(f"{journal.name}.made.json")


class _Bundle(msgspec.Struct, tag_field="bundle", tag="run"):
    """The part of a saved run's `bundle.json` that says what made the journal."""

    versions: dict[str, str]
    source: str | None = None


def read_maker(journal: Path) -> Maker | None:
    """Return what made a journal's file, from the file beside it or the bundle, or None."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(_maker_file(journal).read_bytes(), type=Maker)
    with suppress(OSError, msgspec.MsgspecError, KeyError):
        bundle = msgspec.json.decode(journal.with_name(BUNDLE).read_bytes(), type=_Bundle)
        return Maker(bundle.versions["x402sim"], bundle.versions["Python"], bundle.source)
    return None


def write_maker(journal: Path, maker: Maker | None) -> None:
    """Write beside a journal what made it; None removes an older file that says so.

    Nothing is written beside /dev/null, a pipe, or anything but a regular file.
    """
    if not journal.is_file():
        return
    if maker is None:
        _maker_file(journal).unlink(missing_ok=True)
    else:
        _maker_file(journal).write_bytes(msgspec.json.encode(maker) + b"\n")


Columns = Mapping[str, Sequence[Any]]
"""The columns `seq`, `at_ms` and the fields of one kind of event: a column is an array of numbers,
or of the numbers of `Texts`; for other values, and beyond 63 bits, a list."""
ByName = Mapping[str, Columns]
"""The columns of some entries, by the names of the events."""
Wanted = frozenset[tuple[str, str]]
"""Wanted columns, as pairs of the event's and the column's name."""
NUMBERS = ("seq", "at_ms")
"""The columns of every event."""
_OF_EXCHANGES = frozenset(map(name_of, get_args(ExchangeEvent)))


class Texts(defaultdict[str | None, int]):
    """The number of each text, given at the first look-up; None is 0."""

    def __init__(self) -> None:
        super().__init__(count(1).__next__, {None: 0})
        self._all: list[str | None] = []
        self.made: Any = None
        """A reader's cache, made of `all` and valid until more texts come."""

    @property
    def all(self) -> list[str | None]:
        """The texts by number: a dictionary keeps the order of insertion."""
        new = list(islice(reversed(self), len(self) - len(self._all)))
        self._all += reversed(new)
        return self._all


class Batch:
    """Some entries in order, as columns for each name of an event."""

    def __init__(self, entries: Sequence[Entry], texts: Texts) -> None:
        self._texts, self._length = texts, len(entries)
        self.last = entries[-1].seq if entries else -1
        """The number of the last entry."""
        events = [entry.event for entry in entries]
        groups: dict[type[Any], list[int]] = {}
        for place, event in enumerate(events):
            groups.setdefault(type(event), []).append(place)
        self.columns: dict[str, Columns] = {}
        self._places: dict[str, Sequence[int]] = {}
        """The places of each name's entries in the batch."""
        for kind, places in groups.items():
            name, numbered = name_of(kind), [entries[place] for place in places]
            named = [events[place] for place in places]
            self.columns[name] = {
                field: _column(
                    each, map(attrgetter(field), numbered if field in NUMBERS else named), texts
                )
                for field, each in _fields(name).items()
            }
            self._places[name] = _numbers(places)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Entry]:
        return self.of(frozenset(self.columns))

    def of(self, names: frozenset[str]) -> Iterator[Entry]:
        """Yield the entries of these event names, in order."""
        known = names & self.columns.keys()
        if len(known) < 2:  # one kind is in order already
            return chain.from_iterable(map(self._entries, known))
        found: list[Entry | None] = [None] * self._length
        for name in known:
            deque(map(found.__setitem__, self._places[name], self._entries(name)), maxlen=0)
        return filter(None, found)

    def _entries(self, name: str) -> Iterator[Entry]:
        kind, columns = _KINDS[name], self.columns[name]
        is_text, texts = texts_of(name), self._texts.all.__getitem__
        fields = zip(*(
            map(texts, columns[field]) if field in is_text else columns[field]
            for field in kind.__struct_fields__
        ), strict=True)  # fmt: skip
        return map(Entry, columns["seq"], columns["at_ms"], _maker(name)(fields))


def _column(kind: Any, values: Iterable[Any], texts: Texts) -> Sequence[Any]:
    """Return a column of a kind in `_fields`."""
    if kind is str:
        return array("i", map(texts.__getitem__, values))
    return _numbers(list(values)) if kind is int else list(values)


def _read_columns(rows: list[Any], texts: Texts, without: frozenset[str]) -> ByName:
    groups = defaultdict[Any, list[Any]](list)
    deque(map(list.append, map(groups.__getitem__, map(type, rows)), rows), maxlen=0)
    found: dict[str, Columns] = {}
    for kind, every in groups.items():
        name, mine = kind.__struct_config__.tag, every
        if without and name in _OF_EXCHANGES and "actor" in kind.__struct_fields__:
            mine = [row for row in every if row.actor not in without]
        columns = zip(*map(astuple, mine), strict=True) if mine else repeat(())
        found[name] = {
            field: _column(_fields(name)[field], values, texts)
            for field, values in zip(kind.__struct_fields__, columns, strict=bool(mine))
        }
    return found


def _numbers(values: list[int]) -> Sequence[int]:
    """Return the shortest array for these numbers; the list if no array can hold them."""
    for kind in "hiq":
        with suppress(OverflowError, TypeError):
            return array(kind, values)
    return values


@cache
def _fields(name: str) -> dict[str, Any]:
    """Return the types of `seq`, `at_ms` and an event's fields; `str` also for optional texts."""
    fields = msgspec.structs.fields(_KINDS[name])
    kinds = {field.name: str if _is_text(field.type) else field.type for field in fields}
    return dict.fromkeys(NUMBERS, int) | kinds


@cache
def texts_of(name: str) -> frozenset[str]:
    """Return the text fields of an event, optional ones included."""
    return frozenset(field for field, kind in _fields(name).items() if kind is str)


@cache
def _rows(wanted: Wanted) -> "msgspec.json.Decoder[Any]":
    """Return a decoder of lines as rows: twice as fast as to make an entry and an event.

    A row has the wanted fields of an event, `seq` and `at_ms`.
    """
    numbers = [*msgspec.structs.fields(_Number)]
    kinds = [
        msgspec.defstruct(
            kind.__name__,
            [
                _defined(field)
                for field in (*numbers, *msgspec.structs.fields(kind))
                if (name, field.name) in wanted
            ],
            tag_field="event",
            tag=name,
            kw_only=True,
            gc=False,
        )
        for name, kind in _KINDS.items()
    ]
    return msgspec.json.Decoder(Union[tuple(kinds)])  # noqa: UP007 - of a list


def _defined(field: FieldInfo) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.name, field.type, msgspec.field(default_factory=field.default_factory)
    is_needed = field.default is msgspec.NODEFAULT
    return (field.name, field.type) if is_needed else (field.name, field.type, field.default)


def _is_text(kind: Any) -> bool:
    is_one_of = bool(get_args(kind)) and all(isinstance(value, str) for value in get_args(kind))
    return is_one_of or kind in (str, str | None)


@cache
def _maker(name: str) -> Callable[[Iterable[tuple[Any, ...]]], Iterator[Event]]:
    """Return a maker of events from field values: by position where possible."""
    kind = _KINDS[name]
    if all(
        parameter.kind is not Parameter.KEYWORD_ONLY
        for parameter in signature(kind).parameters.values()
    ):
        return lambda rows: starmap(kind, rows)
    names = kind.__struct_fields__
    return lambda rows: (kind(**dict(zip(names, row, strict=True))) for row in rows)


EVERY = 1024
"""The entries of a block: in memory a block becomes columns together; on disk the journal knows the
beginning of each block of lines."""
_BUFFER = 1 << 20
_LARGE_BYTES = 64 << 20


class _InMemory:
    """Entries in memory, as columns except the newest; with `limit`, only the newest."""

    def __init__(self, limit: int | None = None) -> None:
        self._batches: list[Batch] = []
        self._newest: list[Entry] | deque[Entry] = [] if limit is None else deque(maxlen=limit)
        self._texts = Texts()

    def append(self, entry: Entry) -> None:
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

    def of(self, names: frozenset[str], since: int, holding: bytes) -> Iterator[Entry]:
        later = [batch for batch in self._batches if batch.last >= since]
        parts = chain.from_iterable(batch.of(names) for batch in later)
        newest = (entry for entry in self._newest if entry.event.__struct_config__.tag in names)
        return dropwhile(lambda entry: entry.seq < since, chain(parts, newest))

    def columns(
        self, wanted: Wanted, texts: Texts | None, without: frozenset[str]
    ) -> tuple[Texts, list[ByName]]:
        self._make_columns()
        newest = Batch(list(self._newest), self._texts)  # empty without a limit
        return self._texts, [batch.columns for batch in (*self._batches, newest)]

    def since(self, seq: int) -> list[Entry]:
        found: list[Entry] = []
        for part in (self._newest, *reversed(self._batches)):
            entries = list(part)
            found[:0] = newer = [entry for entry in entries if entry.seq >= seq]
            if len(newer) < len(entries):
                break
        return found

    def pieces(self) -> Iterator[bytes]:
        yield HEADER
        for entry in self:
            yield line(entry) + b"\n"

    def digest(self) -> "hashlib._Hash | None":
        return None  # it is hashed on demand only

    def flush(self) -> None:
        """Do nothing without a file."""

    def close(self) -> None:
        """Do nothing without a file."""


class _OnDisk:
    """Entries in a file, written as they come and read anew by every reader.

    An index has the kinds of events of each block of lines: a reader of one kind skips all other
    blocks. A file opened for reading is not changed. Raises `OSError`, and `ValueError` for another
    kind of file.
    """

    def __init__(self, file: Path, *, is_new: bool) -> None:
        self.file = file.resolve()
        self._writer: IO[bytes] | None = None
        self._digest = hashlib.sha256(HEADER) if is_new else None
        """The hash of the lines written here: saves a reading of the file."""
        self._count = 0
        self._end = 0
        self._longest = 0
        """The bytes of the longest line."""
        self.is_torn = False
        """Whether the last line was cut off, and is left out."""
        self._begins = array("q")
        self._blocks: dict[str | None, array[int]] = {}
        """The blocks with events of each name, or with lines of unknown names."""
        self._newest: list[bytes] = []
        """The newest lines, which are written and noted together."""
        self._names: set[str] = set()
        """The names of their events."""
        if is_new:
            self._writer = self.file.open("wb")
            self._end = self._writer.write(HEADER)
            return
        with self.file.open("rb", buffering=_BUFFER) as reader:
            header = reader.readline()
            require_version(header)
            self._end = len(header)
            while lines := list(islice(reader, EVERY)):
                if _is_torn(lines[-1]):
                    lines.pop()
                    self.is_torn = True
                lengths = list(map(len, lines))
                if lines:
                    self._note(_names(lines), len(lines), sum(lengths), max(lengths))

    def _note(self, names: Iterable[str | None], count: int, length: int, longest: int) -> None:
        """Add `count` lines to the newest block, and the events' names."""
        if longest > self._longest:
            self._longest = longest
        block, place = divmod(self._count, EVERY)
        if place == 0:
            self._begins.append(self._end)
        for name in names:
            blocks = self._blocks.setdefault(name, array("i"))
            if not blocks or blocks[-1] != block:
                blocks.append(block)
        self._count += count
        self._end += length

    def __len__(self) -> int:
        return self._count + len(self._newest)

    def append(self, entry: Entry) -> None:
        """Write an entry; raises `ValueError` after `close`, or for a file opened to be read."""
        if self._writer is None:
            raise ValueError(f"{self.file} is closed: nothing more can be recorded in it")
        self._newest.append(line(entry))
        self._names.add(name_of(entry.event))
        if len(self) % EVERY == 0:
            self._write()

    def _write(self) -> None:
        """Write the newest lines, all of one block."""
        if self._writer is None or self._digest is None or not self._newest:
            return
        text = b"\n".join([*self._newest, b""])
        self._writer.write(text)
        self._digest.update(text)
        longest = max(map(len, self._newest)) + 1
        self._note(self._names, len(self._newest), len(text), longest)
        self._newest, self._names = [], set()

    def __iter__(self) -> Iterator[Entry]:
        return starmap(read_line, self._texts(self._all_since(0)))

    def _all_since(self, seq: int) -> range:
        """Return the blocks of the entries numbered `seq` or more."""
        self.flush()
        return range(max(0, min(seq, self._count) // EVERY), len(self._begins))

    def columns(
        self, wanted: Wanted, texts: Texts | None, without: frozenset[str]
    ) -> tuple[Texts, list[ByName]]:
        self.flush()
        texts, found = Texts() if texts is None else texts, list[ByName]()
        names = {None, *(name for name, _ in wanted)}
        blocks = sorted({block for name in names for block in self._blocks.get(name, ())})
        for first, text in self._read(blocks):
            rows = self._rows(first, text, wanted)
            if rows is None:
                entries = list(map(read_line, count(first), BytesIO(text)))
                found.append(Batch(entries, texts).columns)
            else:
                found.append(_read_columns(rows, texts, without))
        return texts, found

    def _rows(self, first: int, text: bytes, wanted: Wanted) -> list[Any] | None:
        """Return the lines of a block as rows; None if any line may be no entry."""
        deep = self._longest > MAX_BRACKETS  # few lines have so many bytes, let alone brackets
        if not deep or max(map(_brackets, BytesIO(text))) <= MAX_BRACKETS:
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                rows = _rows(wanted).decode_lines(text)
                # the decoder skips blank lines; `read_line` refuses a blank line by name
                if len(rows) == min(EVERY, self._count + 2 - first):
                    return rows
        return None

    def of(self, names: frozenset[str], since: int, holding: bytes) -> Iterator[Entry]:
        later = self._all_since(since)
        blocks = set[int]().union(*(self._blocks.get(name, ()) for name in (None, *names)))
        wanted = sorted(blocks.intersection(later))
        is_ours = None not in self._blocks  # else a line may be spelled otherwise
        lines = self._holding(holding, wanted) if holding and is_ours else self._texts(wanted)
        for number, text in lines:
            name = tag_of(text)
            if name is None or name in names:
                entry = read_line(number, text)
                if entry.seq >= since and entry.event.__struct_config__.tag in names:
                    yield entry

    def since(self, seq: int) -> list[Entry]:
        found = starmap(read_line, self._texts(self._all_since(seq)))
        return [entry for entry in found if entry.seq >= seq]

    def pieces(self) -> Iterator[bytes]:
        yield HEADER
        self.flush()
        begin, end = next(iter(self._begins), self._end), self._end
        with self.file.open("rb") as reader:
            reader.seek(begin)
            while piece := reader.read(min(_BUFFER, end - reader.tell())):
                yield piece

    def digest(self) -> "hashlib._Hash | None":
        """Return the hash of a file written here, else None."""
        self._write()
        return self._digest

    def flush(self) -> None:
        self._write()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write the rest, and close the file; readers still work."""
        self._write()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _read(self, blocks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield these blocks so far, each after the number of the first line in the file."""
        self.flush()
        bounds = [*self._begins, self._end]
        with self.file.open("rb") as reader:
            for block in blocks:
                begin, end = bounds[block : block + 2]
                reader.seek(begin)
                yield block * EVERY + 2, reader.read(end - begin)

    def _texts(self, blocks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of these blocks, each after the line's number in the file."""
        return chain.from_iterable(enumerate(BytesIO(text), at) for at, text in self._read(blocks))

    def _holding(self, part: bytes, blocks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines with this part in these blocks, each after the block's first number."""
        for number, text in self._read(blocks):
            end = 0
            while (found := text.find(part, end)) >= 0:
                begin, end = text.rfind(b"\n", 0, found) + 1, text.find(b"\n", found) + 1
                end = end or len(text)
                yield number, text[begin:end]


EventType = TypeVar("EventType", bound=BaseEvent)
"""The class of an event."""


class Journal:
    """Entries in order; with `limit`, only the newest are kept.

    With `file`, entries are written to the file as they come, and read from there: a run may have
    any number of events. An existing file is overwritten, as is the file beside the journal that
    says what made it. Raises `OSError`.
    """

    def __init__(self, limit: int | None = None, *, file: Path | None = None) -> None:
        self._storage = _storage(limit, file)
        self._next = 0
        self._has_ended = False
        self.maker: Maker | None = OURS
        """What made the entries; None if unknown. `played` says more."""
        self.is_torn = False
        """Whether the file ended in the middle of a line; the line is left out."""
        self.limit = limit
        """The most kept entries; None for all."""
        self.listeners: list[Callable[[Entry], None]] = []
        """Called with every new entry; listeners may record events, too."""
        self.made: tuple[int, dict[Any, Any]] = 0, {}
        """The readers' cache: the number of entries read, and the results."""

    def __repr__(self) -> str:
        """Return the number of kept entries, the first and the last; `list(journal)` has all."""
        last = self.since(self._next - 1)
        first = [next(iter(self))] if len(self) > 1 else []
        return f"<Journal of {len(self)} events: {' … '.join(map(str, first + last))}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Journal.load, (self.ndjson(), self.maker)

    @classmethod
    def load(cls, ndjson: bytes, maker: Maker | None = None) -> "Journal":
        """Return the journal written by `ndjson()`; `maker` says what made it.

        After a kill the last line may be cut off: then the line is left out (`is_torn`). Raises
        `ValueError` naming another version, or a line without an entry.
        """
        header, *lines = ndjson.splitlines(keepends=True) or [b""]
        require_version(header)
        is_torn = bool(lines) and _is_torn(lines[-1])
        kept = lines[:-1] if is_torn else lines
        journal = cls.made_of(read_line(number, text) for number, text in enumerate(kept, 2))
        journal.maker, journal.is_torn = maker, is_torn
        return journal

    @classmethod
    def made_of(cls, entries: Iterable[Entry]) -> "Journal":
        """Return a journal in memory of numbered entries."""
        journal = cls()
        for entry in entries:
            journal._storage.append(entry)
            journal._next = entry.seq + 1
        return journal

    @classmethod
    def open(cls, file: Path) -> "Journal":
        """Return the journal in a file; only readers read the entries.

        Raises `OSError`, and `ValueError` for another format or version. A reader raises
        `ValueError` for a line without an entry.
        """
        journal, on_disk = cls(), _OnDisk(file, is_new=False)
        journal._storage, journal.maker = on_disk, read_maker(file)
        journal.is_torn = on_disk.is_torn
        journal._next = max((entry.seq + 1 for entry in journal.since(len(journal) - 1)), default=0)
        return journal

    @classmethod
    def read(cls, file: Path) -> "Journal":
        """Return the journal in a file: in memory, or as `open` above 64 MiB.

        Raises `OSError`, and `ValueError` as `load` and `open` do.
        """
        if file.stat().st_size > _LARGE_BYTES:
            return cls.open(file)
        return cls.load(file.read_bytes(), read_maker(file))

    @property
    def file(self) -> Path | None:
        """The file of the entries; None in memory."""
        return self._storage.file if isinstance(self._storage, _OnDisk) else None

    def record(self, at_ms: int, event: Event) -> None:
        """Append an event at this moment, in Unix milliseconds."""
        if self._has_ended:
            return
        entry = Entry(self._next, at_ms, event)
        self._storage.append(entry)
        self._next += 1
        for listener in self.listeners:
            listener(entry)

    def played(self, source: str | None) -> None:
        """Say, and write beside the file, what is played; the entries and the hash stay."""
        self.maker = msgspec.structs.replace(OURS, source=source)
        if self.file is not None:
            write_maker(self.file, self.maker)

    def end(self) -> None:
        """Ignore further events, such as of requests cancelled by a closing world."""
        self._has_ended = True

    def merge(self, others: Iterable[Entry]) -> None:
        """Add another journal's entries, each at the entry's time, and number all again.

        The other clock may differ from ours by the error of the estimate, so an entry from before
        our first entry, the beginning of the run, comes right after the beginning.
        """
        ours = list(self)
        first_ms = ours[0].at_ms if ours else 0
        added = [Entry(entry.seq, max(entry.at_ms, first_ms), entry.event) for entry in others]
        entries = sorted([*ours, *added], key=lambda entry: entry.at_ms)
        self.close()
        self._storage = _storage(self.limit, self.file)
        self._next, self.made = 0, (0, {})
        for entry in entries:
            self._storage.append(Entry(self._next, entry.at_ms, entry.event))
            self._next += 1

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._storage)

    @property
    def length(self) -> int:
        """The number of events ever recorded, kept or not."""
        return self._next

    def __len__(self) -> int:
        return len(self._storage)

    def of(self, *kinds: type[BaseEvent], since: int = 0, holding: bytes = b"") -> Iterator[Entry]:
        """Yield the entries numbered `since` or more with events of these kinds.

        From a file, no others are decoded, and little else is read. If the lines of all wanted
        entries have a common part, `holding` finds the lines faster, perhaps among others.
        """
        return self._storage.of(frozenset(map(name_of, kinds)), since, holding)

    def between(self, first: int, end: int) -> Iterator[Entry]:
        """Yield the kept entries numbered `first` or more, and below `end`, reading few others."""
        return takewhile(lambda entry: entry.seq < end, self.of(*KINDS, since=first))

    def events(self, kind: type[EventType]) -> Iterator[EventType]:
        """Yield the events of a kind."""
        return (cast("EventType", entry.event) for entry in self.of(kind))

    def columns(
        self,
        wanted: Wanted,
        texts: Texts | None = None,
        *,
        without: frozenset[str] = frozenset(),
    ) -> tuple[Texts, list[ByName]]:
        """Return these columns in consecutive batches, and the texts; from memory all columns.

        A file is read with the `texts` of an earlier time, if given, and `without` the exchanges
        begun by these actors, if the column `actor` is wanted.
        """
        return self._storage.columns(wanted, texts, without)

    def since(self, seq: int) -> list[Entry]:
        """Return the kept entries numbered `seq` or more."""
        return self._storage.since(seq)

    def ndjson(self, since: int = 0) -> bytes:
        """Return the header, and the kept entries numbered `since` or more, line by line."""
        return HEADER + b"".join(line(entry) + b"\n" for entry in self.since(since))

    @property
    def is_hashed(self) -> bool:
        """Whether `sha256()` reads no file: for a journal in memory, or written here."""
        return not isinstance(self._storage, _OnDisk) or self._storage.digest() is not None

    def sha256(self) -> str:
        """Return the hash of `ndjson()`, header included, in hex, as `sha256sum`."""
        digest = self._storage.digest()
        if digest is None:
            digest = hashlib.sha256()
            for piece in self._storage.pieces():
                digest.update(piece)
        return digest.hexdigest()

    def save(self, file: Path) -> None:
        """Write `ndjson()` to a file, and beside it what made it; raises `OSError`."""
        if file.resolve() == self.file:
            return
        with file.open("wb") as writer:
            writer.writelines(self._storage.pieces())
        write_maker(file, self.maker)

    def flush(self) -> None:
        """Write all recorded entries to the file: a kill cannot lose them then."""
        self._storage.flush()

    def close(self) -> None:
        """End recording: the rest goes to the file, if any; readers still work."""
        self._storage.close()


def _storage(limit: int | None, file: Path | None) -> _InMemory | _OnDisk:
    if file is None:
        return _InMemory(limit)
    storage = _OnDisk(file, is_new=True)
    write_maker(file, OURS)
    return storage
