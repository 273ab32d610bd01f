"""The tables, and the one connection to them.

A file carries the version of the tables; another version is refused, with a remedy. One process
holds a file: a second process is refused. With a full disk or a locked file, a statement raises
`sqlite3.OperationalError` and changes nothing; without the cause, the statement works again.
"""

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import finalize

LOCK_TIMEOUT_S = 0.5
"""Seconds to wait for another connection's lock, together with the event loop."""
HELD = ".held"
"""The suffix of a lock file, after the database's name; SQLite uses `.lock` in places."""
SCHEMA_VERSION = 14
_TABLES = ("reputation", "refunds", "debits", "sessions", "payments")
_COUNT_TAKEN_BACK = (
    "CREATE TEMP TRIGGER taken_back AFTER UPDATE OF state ON main.payments "
    "WHEN old.state = 'settled' AND new.state != 'settled' "
    "BEGIN SELECT count_taken_back(old.attempt); END"
)

Waiting = Literal["payments", "refunds"]
"""A table with waiting rows: after failed work a row waits until `look_s`, longer each time.

The waits are stored and indexed: to find due rows costs the same with many waiting rows.
"""


class Backoff(NamedTuple):
    """The end of a row's wait, and the wait in seconds; 0 without a failure."""

    until_s: float
    wait_s: float


def after_failure(last_s: float, bounds_s: tuple[float, float], now_s: float) -> Backoff:
    """Return the wait after a failure: twice the last wait, between the first and the longest."""
    first_s, longest_s = bounds_s
    wait_s = min(longest_s, max(first_s, 2 * last_s))
    return Backoff(now_s + wait_s, wait_s)


@cache
def _statements() -> tuple[str, ...]:
    """Return the statements of schema.sql; `executescript` would commit first."""
    found, statement = [], ""
    for line in (files(__package__) / "schema.sql").read_text("utf-8").splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return tuple(found)


@cache
def _tables() -> bytes:
    """Return a database with all tables and no rows: a copy takes a tenth of the statements."""
    with closing(opened(":memory:")) as made:
        for statement in (*_statements(), f"PRAGMA user_version = {SCHEMA_VERSION}"):
            made.execute(statement)
        return made.serialize()


def opened(file: Path | str, timeout_s: float = LOCK_TIMEOUT_S) -> sqlite3.Connection:
    """Return a connection for one thread.

    Another thread may close the connection: the collector's, for an owner nobody has closed.
    """
    return sqlite3.connect(file, timeout=timeout_s, isolation_level=None, check_same_thread=False)


def _lock(file: Path) -> sqlite3.Connection:
    """Lock a database file for this process, by a lock on a second file.

    The operating system ends the lock with the process, even after a kill. Readers of the database
    are not locked out. Raises `sqlite3.OperationalError` if another process has the lock.
    """
    lock = opened(f"{file.resolve()}{HELD}", timeout_s=0)  # a link names the same database
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as failure:
        lock.close()
        if failure.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise sqlite3.OperationalError(
                "it is locked: another service has it open; stop that one, or name another file"
            ) from failure
        raise
    return lock


class Database:
    """One SQLite connection. Without a `file` the database lives as long as its process.

    SQLite then keeps 512 KB in memory, and the rest in a temporary file: each commit walks the
    changed pages in memory, and took twice as long with 2 MB. SQLite's rollback journal is in
    memory, too: in a file, each changed page would be written once more.

    Raises `sqlite3.Error` if the file is damaged, locked or of another version.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._taken_back = [0]
        self._connection = opened(file or "")
        self._ends = [finalize(self, self._connection.close)]
        """Close connection and lock if nobody has: Python 3.13 warns of open connections."""
        self._writer = self._connection.cursor()
        """For statements without rows: a cursor for each statement would take longer."""
        self._transaction = _Transaction(self._writer)
        try:
            self._has_tables()  # a refused file stays unchanged
            if file is not None:
                self._ends.append(finalize(self, _lock(file).close))
            self.execute(f"PRAGMA journal_mode={'WAL' if file else 'MEMORY'}")
            if file is None:
                self.execute("PRAGMA cache_size=-512")
            self.execute("PRAGMA synchronous=FULL")
            self.execute("PRAGMA foreign_keys=ON")
            if file is None:
                with closing(opened(":memory:")) as made:
                    made.deserialize(_tables())
                    made.backup(self._connection)
            else:
                self._check_or_make()
            self.define("count_taken_back", partial(_count, self._taken_back))
            self.execute(_COUNT_TAKEN_BACK)
        except sqlite3.Error:
            self.close()
            raise

    def _check_or_make(self) -> None:
        """Check the file's health and version, or make the tables of a new file."""
        (health,) = self.one("PRAGMA quick_check(1)")
        if health != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {health}")
        with self.transaction():  # a kill leaves all tables and their version, or nothing
            if not self._has_tables():
                for statement in _statements():
                    self.execute(statement)
                self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _has_tables(self) -> bool:
        """Tell whether the file has tables; raises `sqlite3.DatabaseError` for another version."""
        if self.one("SELECT 1 FROM sqlite_master") is None:
            return False
        (version,) = self.one("PRAGMA user_version")
        if version != SCHEMA_VERSION:
            raise sqlite3.DatabaseError(
                f"its tables are of version {version}, this x402sim reads version "
                f"{SCHEMA_VERSION}: use a new file, or the version of x402sim that wrote this file"
            )
        return True

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        return self._connection.execute(sql, values)

    def one(self, sql: str, *values: Any) -> Any:
        """Return the first row of a query, or None."""
        return self._connection.execute(sql, values).fetchone()

    def changed(self, sql: str, *values: Any) -> bool:
        """Execute a statement; return whether exactly one row has changed."""
        return self._writer.execute(sql, values).rowcount == 1

    def taken_back(self) -> int:
        """Return a number; the number changes whenever a settled payment may have been undone."""
        return self._taken_back[0]

    def define(self, name: str, function: Callable[[Any], Any]) -> None:
        """Let statements call a function of one argument."""
        self._connection.create_function(name, 1, function)

    def end_waits(self, table: Waiting) -> None:
        """Make all waiting rows of a table due at once, as a start of the service does."""
        waits = "status = 'pending' AND look_s > 0"
        if self.one(f"SELECT 1 FROM {table} WHERE {waits} LIMIT 1"):
            self.execute(f"UPDATE {table} SET look_s = 0, wait_s = 0 WHERE {waits}")

    def put_off(self, table: Waiting, waits: Mapping[int, Backoff]) -> None:
        """Record the waits of rows, by number."""
        if waits:
            sql = f"UPDATE {table} SET look_s = ?, wait_s = ? WHERE rowid = ?"
            with self.transaction():
                self._connection.executemany(sql, [(*wait, row) for row, wait in waits.items()])

    def transaction(self) -> "_Transaction":
        """Commit every statement in a `with` block, or none."""
        return self._transaction

    def close(self) -> None:
        """Close the connection, and give up the file."""
        for end in self._ends:
            end()

    def copy(self) -> sqlite3.Connection:
        """Return a copy of the whole database, in memory."""
        copy = opened(":memory:")
        self._connection.backup(copy, progress=_raise_if_locked)
        return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Replace the whole database with a copy."""
        self._taken_back[0] += 1
        copy.backup(self._connection, progress=_raise_if_locked)

    def clear(self) -> None:
        """Delete every row, but not the secrets."""
        self._taken_back[0] += 1
        with self.transaction():
            for table in (*_TABLES, "served", "matched", "answers", "usages"):
                self.execute(f"DELETE FROM {table}")

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        return {t: self.one(f"SELECT count(*) FROM {t}")[0] for t in _TABLES}


class _Transaction:
    """The statements of a `with` block; a generator would cost a third of a small transaction."""

    __slots__ = ("_connection", "_execute")

    def __init__(self, writer: sqlite3.Cursor) -> None:
        self._connection, self._execute = writer.connection, writer.execute

    def __enter__(self) -> None:
        self._execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                self._execute("ROLLBACK")


def _count(counted: list[int], _: int) -> None:
    """Count. SQLite keeps this function, so the function must not keep the database."""
    counted[0] += 1


def _raise_if_locked(status: int, _: int, __: int) -> None:
    """End a backup at a lock; `sqlite3` would try again for ever."""
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = status
        raise error
