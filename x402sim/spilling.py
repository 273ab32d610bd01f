"""A mapping with the newest items in memory and older items in a temporary file.

For values needed by a simulation at any time, and hardly ever, such as used nonces: a million
payments take no more memory than ten thousand.
"""

import sqlite3
from collections.abc import Callable, Iterator, MutableMapping
from functools import cache
from itertools import islice
from typing import Any, TypeVar
from weakref import finalize

import msgspec

K = TypeVar("K")
V = TypeVar("V")
_ABSENT: Any = object()
KEPT = 2048
"""The number of newest items in memory. The older half of twice as many is written at once: items
sorted by key fill SQLite's pages in order."""
_CACHE_KB = 256
_MARKS = 1 << 22
_encode_key = msgspec.msgpack.Encoder().encode
_encode = msgspec.json.Encoder().encode


class Spilling(MutableMapping[K, V]):
    """A mapping from one type of keys, such as bytes, to one type of JSON values.

    A changed value must be set again. Reading and writing raise `sqlite3.Error` with a full disk.
    The file is deleted with the mapping.
    """

    __slots__ = ("__weakref__", "_file", "_key", "_marks", "_newest", "_value")

    def __init__(self, key: Any, value: Any) -> None:
        self._newest: dict[K, V] = {}
        """Items not written yet; for a key in the file, too, this value counts."""
        self._key, self._value = _decoders(key, value)
        self._file: sqlite3.Connection | None = None
        self._marks = bytearray()
        """A bit for each of `_MARKS` hashes, set if a key of the hash is in the file. Most keys
        looked up were never set, such as a new nonce: with a million keys in the file, SQLite
        is asked about a fifth of the look-ups."""

    def __getitem__(self, key: K) -> V:
        found = self._newest.get(key, _ABSENT)
        if found is _ABSENT and (found := self.get(key, _ABSENT)) is _ABSENT:
            raise KeyError(key)
        value: V = found
        return value

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or the default."""
        found = self._newest.get(key, _ABSENT)
        if found is not _ABSENT:
            return found
        if self._file is None or not self._marks[(at := hash(key) % _MARKS) >> 3] >> (at & 7) & 1:
            return default
        sql = "SELECT value FROM items WHERE key = ?"
        row = self._file.execute(sql, (_encode_key(key),)).fetchone()
        return default if row is None else self._value(row[0])

    def __contains__(self, key: object) -> bool:
        return self.get(key, _ABSENT) is not _ABSENT  # type: ignore[arg-type]

    def __setitem__(self, key: K, value: V) -> None:
        self._newest[key] = value
        if len(self._newest) > 2 * KEPT:
            self._spill()

    def __delitem__(self, key: K) -> None:
        found = self._newest.pop(key, _ABSENT) is not _ABSENT
        if self._file is not None:
            gone = self._file.execute("DELETE FROM items WHERE key = ?", (_encode_key(key),))
            found |= bool(gone.rowcount)
        if not found:
            raise KeyError(key)

    def __iter__(self) -> Iterator[K]:
        if self._file is not None:
            keys = [self._key(key) for (key,) in self._file.execute("SELECT key FROM items")]
            yield from (key for key in keys if key not in self._newest)
        yield from self._newest

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _spill(self) -> None:
        """Write the older half of the items in memory."""
        if self._file is None:
            # a file without a name; another thread may close the world than has played it
            self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            finalize(self, self._file.close)
            self._marks = bytearray(_MARKS // 8)
            for pragma in (
                "journal_mode=OFF",
                "synchronous=OFF",
                f"cache_size=-{_CACHE_KB}",
                "page_size=16384",
            ):
                self._file.execute(f"PRAGMA {pragma}")
            self._file.execute("CREATE TABLE items(key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
            self._file.execute("BEGIN")  # never committed: nothing of it outlives the process
        older = list(islice(self._newest, KEPT))
        values = map(_encode, map(self._newest.__getitem__, older))
        rows = sorted(zip(map(_encode_key, older), values, strict=True))
        self._file.executemany("INSERT OR REPLACE INTO items VALUES (?, ?)", rows)
        for key in older:
            del self._newest[key]
            at = hash(key) % _MARKS
            self._marks[at >> 3] |= 1 << (at & 7)


@cache
def _decoders(key: Any, value: Any) -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    return msgspec.msgpack.Decoder(key).decode, msgspec.json.Decoder(value).decode
