"""The tables, and the one connection to them.

A file carries the version of its tables. Tables of the version before are migrated when the file is
opened, unless a service runs on it; any other version is refused with an error that says what to
do. A statement that fails because the disk is full or the file is locked raises
`sqlite3.OperationalError` and changes nothing. It works again when the cause is gone.
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
"""Seconds to wait for another connection's lock; the event loop waits too."""
SCHEMA_VERSION = 11
_BEFORE = SCHEMA_VERSION - 1
_TABLES = ("reputation", "refunds", "debits", "sessions", "payments")
_COUNT_TAKEN_BACK = (
    "CREATE TEMP TRIGGER taken_back AFTER UPDATE OF state ON main.payments "
    "WHEN old.state = 'settled' AND new.state != 'settled' "
    "BEGIN SELECT count_taken_back(old.attempt); END"
)

Waiting = Literal["payments", "refunds"]
"""A table whose rows may wait: if work on a row has failed, until `look_s`, longer each time.

The waits are stored, so that to find what is due costs the same however many rows wait.
"""


class Backoff(NamedTuple):
    """Until when a row waits, and the seconds of this wait; 0 if its work has not failed."""

    until_s: float
    wait_s: float


def after_failure(last_s: float, bounds_s: tuple[float, float], now_s: float) -> Backoff:
    """Return the wait after a failure: twice the last one, between the first and the longest."""
    first_s, longest_s = bounds_s
    wait_s = min(longest_s, max(first_s, 2 * last_s))
    return Backoff(now_s + wait_s, wait_s)


@cache
def _statements(name: str) -> tuple[str, ...]:
    """Return the statements of a file; `executescript` would commit before it begins."""
    found, statement = [], ""
    for line in (files(__package__) / name).read_text("utf-8").splitlines():
        statement += f"{line}\n"
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return tuple(found)


@cache
def _tables() -> bytes:
    """Return a database with all tables and no rows: to copy it takes a tenth of the statements."""
    with closing(opened(":memory:")) as made:
        for statement in (*_statements("schema.sql"), f"PRAGMA user_version = {SCHEMA_VERSION}"):
            made.execute(statement)
        return made.serialize()


def opened(file: Path | str, timeout_s: float = LOCK_TIMEOUT_S) -> sqlite3.Connection:
    """Return a connection that one thread uses.

    Another one may close it: the thread that collects an owner which nobody has closed.
    """
    return sqlite3.connect(file, timeout=timeout_s, isolation_level=None, check_same_thread=False)


def lock_of(file: Path, number: int) -> sqlite3.Connection | None:
    """Lock a number for this process, which uses a database file; None if another one has it.

    The lock is on a file of the number beside the database (`served.Processes`).
    """
    lock = opened(f"{file}.process{number}", timeout_s=0)
    try:
        lock.execute("BEGIN EXCLUSIVE")
        return lock
    except sqlite3.OperationalError as failure:
        lock.close()
        if failure.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            raise
        return None


def _is_served(file: Path) -> bool:
    """Tell whether a process that has a number uses a database file."""
    before = f"{file.name}.process"
    names = (each.name for each in file.parent.iterdir())
    numbers = (each.removeprefix(before) for each in names if each.startswith(before))
    for number in numbers:
        if number.isdecimal():
            if (lock := lock_of(file, int(number))) is None:
                return True
            lock.close()
    return False


class Database:
    """One SQLite connection. Without a `file` the database lives as long as its process.

    SQLite keeps 512 KB of it in memory then, and the rest in a temporary file: each commit walks
    the changed pages in memory, and took twice as long with 2 MB of them. The journal by which it
    undoes a transaction is in memory, too: in a file, it would write each changed page once more.

    Raises `sqlite3.Error` if the file is damaged, locked or of another version.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._taken_back = file, [0]
        self._connection = opened(file or "")
        self._end = finalize(self, self._connection.close)
        """Closes the connection, also if nobody has: Python 3.13 warns of that."""
        self._writer = self._connection.cursor()
        """For statements that return no rows: a cursor for each would take longer."""
        self._transaction = _Transaction(self._writer)
        try:
            self._require_version()  # a file that is refused is not changed
            self.execute(f"PRAGMA journal_mode={'WAL' if file else 'MEMORY'}")
            if file is None:
                self.execute("PRAGMA cache_size=-512")
            self._open()
        except sqlite3.Error:
            self._end()
            raise

    def _open(self) -> None:
        self.execute("PRAGMA synchronous=FULL")
        self.execute("PRAGMA foreign_keys=ON")
        if self._file is None:
            with closing(opened(":memory:")) as made:
                made.deserialize(_tables())
                made.backup(self._connection)
        else:
            self._check_or_make(self._file)
        self.define("count_taken_back", partial(_count, self._taken_back))
        self.execute(_COUNT_TAKEN_BACK)

    def _check_or_make(self, file: Path) -> None:
        """Check what is in the file, or make the tables if it is new."""
        (health,) = self.one("PRAGMA quick_check(1)")
        if health != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {health}")
        with self.transaction():  # a kill leaves all tables and their version, or nothing
            if (version := self._require_version()) != SCHEMA_VERSION:
                if version is not None and _is_served(file):
                    raise sqlite3.DatabaseError(
                        f"its tables are of version {version}, and a service that is running has "
                        "it open: stop each service on it first, then its tables are changed to "
                        f"version {SCHEMA_VERSION} as the first one starts"
                    )
                made_by = "schema.sql" if version is None else f"from_{version}.sql"
                for statement in _statements(made_by):
                    self.execute(statement)
                self.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _require_version(self) -> int | None:
        """Return the version of the tables; None if there are none.

        Raises `sqlite3.DatabaseError` if this x402sim cannot read them.
        """
        if self.one("SELECT 1 FROM sqlite_master") is None:
            return None
        (version,) = self.one("PRAGMA user_version")
        if version not in (_BEFORE, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(
                f"its tables are of version {version}, this x402sim reads versions {_BEFORE} and "
                f"{SCHEMA_VERSION}: use a new file, or the x402sim that wrote this one"
            )
        return int(version)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Execute one statement."""
        return self._connection.execute(sql, values)

    def one(self, sql: str, *values: Any) -> Any:
        """Return the first row of a query, or None."""
        return self._connection.execute(sql, values).fetchone()

    def changed(self, sql: str, *values: Any) -> bool:
        """Execute one statement; return whether it changed exactly one row."""
        return self._writer.execute(sql, values).rowcount == 1

    def version(self) -> tuple[int, int]:
        """Return a value that changes whenever a settled payment may not be settled any more.

        It counts the payments that this connection has undone. Any change by another connection
        changes it too, because that may have undone one.
        """
        elsewhere = 0 if self._file is None else int(self.one("PRAGMA data_version")[0])
        return self._taken_back[0], elsewhere

    def define(self, name: str, function: Callable[[Any], Any]) -> None:
        """Let statements call a function of one value."""
        self._connection.create_function(name, 1, function)

    def end_waits(self, table: Waiting) -> None:
        """Make everything due at once that waits in a table, as a start of the service does."""
        waits = "status = 'pending' AND look_s > 0"
        if self.one(f"SELECT 1 FROM {table} WHERE {waits} LIMIT 1"):
            self.execute(f"UPDATE {table} SET look_s = 0, wait_s = 0 WHERE {waits}")

    def put_off(self, table: Waiting, waits: Mapping[int, Backoff]) -> None:
        """Record until when each of these rows waits, by their numbers."""
        if waits:
            sql = f"UPDATE {table} SET look_s = ?, wait_s = ? WHERE rowid = ?"
            with self.transaction():
                self._connection.executemany(sql, [(*wait, row) for row, wait in waits.items()])

    def transaction(self) -> "_Transaction":
        """Commit every statement in a `with` block, or none of them."""
        return self._transaction

    def close(self) -> None:
        """Close the connection."""
        self._end()

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
            for table in (*_TABLES, "served", "matched", "answering", "answers"):
                self.execute(f"DELETE FROM {table}")

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        return {t: self.one(f"SELECT count(*) FROM {t}")[0] for t in _TABLES}


class _Transaction:
    """The statements of a `with` block; a generator would take a third of a small transaction."""

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
    """Count; a function of its own, because SQLite keeps it, and it must not keep the database."""
    counted[0] += 1


def _raise_if_locked(status: int, _: int, __: int) -> None:
    """End a backup that meets a lock, as `sqlite3` would try again for ever."""
    if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = status
        raise error
