"""The log of a ledger's operations, in a SQLite file.

A row that cannot be written, because the disk is full, raises `ChainUnavailable`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from x402sim.chain.base import ChainError, ChainUnavailable


class OperationLog:
    """A SQLite table of operations, one msgpack row each, committed one by one."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None, timeout=0.5)
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")  # one process may write
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS operations(seq INTEGER PRIMARY KEY, op BLOB)"
            )
        except sqlite3.Error:
            self._db.close()
            raise

    def write(self, at_s: int, name: str, *arguments: Any) -> None:
        """Add an operation; raises `ChainUnavailable`, and `ChainError` for a number too large."""
        try:
            row = msgspec.msgpack.encode((at_s, name, arguments))
        except OverflowError as error:
            raise ChainError(f"{name}: {error}") from error
        with _explained():
            self._db.execute("INSERT INTO operations(op) VALUES (?)", (row,))

    def read(self) -> list[tuple[int, str, list[Any]]]:
        """Return the operations, oldest first; raises `ChainError` if the file is damaged."""
        rows = self._db.execute("SELECT op FROM operations ORDER BY seq")
        try:
            return [msgspec.msgpack.decode(row) for (row,) in rows]
        except msgspec.MsgspecError as error:
            raise ChainError(f"the chain file is damaged: {error}") from error

    def clear(self) -> None:
        """Delete every operation."""
        with _explained():
            self._db.execute("DELETE FROM operations")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit every operation inside, or none of them."""
        with _explained():
            self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            with _explained():
                self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an error of the file into one that callers of a chain expect."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ChainUnavailable(f"the chain file cannot be written: {error}") from error
