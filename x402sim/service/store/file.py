"""The paths of a database; and a failed start leaves no file behind.

SQLite does not take every name for a file: SQLite would keep `:memory:` in memory, while the chain
of the same world went to a file of the same name, and would read `file:...` as a URI.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from x402sim.service.store.database import HELD

_MOST_BYTES = 200  # a name may have 255 bytes, and the files beside a database have longer names


def require_file(file: Path) -> None:
    """Raise `ValueError` unless a database can have a path: a file's, or a free path in a folder.

    The error names the obstacle, the wanted kind of path, and a remedy.
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
        if file.is_symlink():  # from Python 3.13 on, only `stat` finds a loop of links
            with suppress(FileNotFoundError):
                file.stat()
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
    """Let a `with` block open a database in a file; if the block fails, remove the new files.

    `beside` are the ends of the names of the block's other databases. Older files stay, as do files
    in use by another process. Raises `ValueError` as `require_file`.
    """
    if file is None:
        yield
        return
    require_file(file)
    opened = [file, *(file.with_name(file.name + end) for end in beside)]
    for path in opened:
        require_file(path)
    new = [path for path in opened if not path.exists()]
    if file in new:  # SQLite takes an empty file as a new database; the system names the obstacle
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
            locks = [path.with_name(path.name + HELD) for path in new]
            for path in (*new, *locks):
                for end in ("", "-wal", "-shm", "-journal"):  # the files of one database
                    with suppress(OSError):
                        path.with_name(path.name + end).unlink()
        raise
