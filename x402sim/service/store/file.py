"""Which paths a database may have; and a start that failed leaves no file behind.

SQLite does not take every name for a file: it would keep `:memory:` in memory, while the chain of
the same world went to a file of that name, and it would read `file:...` as a URI.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from x402sim.service.store.database import HELD

_OF_ONE = ("", "-wal", "-shm", "-journal")
"""How the names of the files end that SQLite has for one database."""
_MOST_BYTES = 200
"""A name may have 255 bytes, and those of the files beside a database are longer."""


def require_file(file: Path) -> None:
    """Raise `ValueError` unless a path can be that of a database: a file, or one that can be made.

    The text says what is there, what is wanted, and what to do.
    """
    name = os.fspath(file)
    if name.startswith(("file:", ":memory:")):
        raise ValueError(
            f"{name}: a file is wanted, and this is SQLite's word for something else; write "
            f"{Path(name).absolute()} for a file of this name, or leave it out to keep all in "
            "memory"
        )
    if len(os.fsencode(file.name)) > _MOST_BYTES:
        raise ValueError(f"{name[:40]}...: a name of at most {_MOST_BYTES} bytes is wanted")
    try:
        folder = file.resolve().parent
        if not folder.is_dir():
            given = folder if file.is_symlink() else file.parent
            raise ValueError(f"{name}: there is no folder {given}")
        if file.exists() and not file.is_file():
            found = "a folder" if file.is_dir() else "something else"
            raise ValueError(f"{name}: a file is wanted, and this is {found}; name a file")
    except (OSError, RuntimeError) as error:  # such as a loop of links
        raise ValueError(f"{name[:50]}: a file is wanted: {error}; name another") from error


@contextmanager
def claimed(file: Path | None, beside: Sequence[str] = ()) -> Iterator[None]:
    """Let a `with` block open a database in a file; if the block fails, what it made is removed.

    `beside` are the ends of the names of more databases that the block opens. What was there before
    stays, and so does what another process uses. Raises `ValueError` for a path that cannot have a
    database.
    """
    if file is None:
        yield
        return
    require_file(file)
    opened = [file, *(file.with_name(file.name + end) for end in beside)]
    for each in opened:
        require_file(each)
    new = [each for each in opened if not each.exists()]
    if file in new:  # SQLite takes an empty file as a new database; the system says why it cannot
        try:
            os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o644))
        except OSError as error:
            raise ValueError(
                f"the database {file} cannot be made: {error.strerror}; name another file"
            ) from error
    try:
        yield
    except BaseException as error:
        is_used = isinstance(error, sqlite3.Error) and "locked" in str(error)
        if file in new and not is_used:
            locks = [each.with_name(each.name + HELD) for each in new]
            for each in (*new, *locks):
                for end in _OF_ONE:
                    with suppress(OSError):
                        each.with_name(each.name + end).unlink()
        raise
