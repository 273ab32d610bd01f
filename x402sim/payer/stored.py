"""Unfinished payments in a folder: a payer that starts again sends them again.

A payment is written before it is sent. When the goods were read to the end, the file is removed, or
has the answer of `pay`, for waiting starts of the same command. While a payer pays or reads, no
other pays for the same purchase from the folder: the system's lock on a second file sees to that.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from x402sim.clock import stopwatch
from x402sim.payer.core import PaymentFailed
from x402sim.payer.purchases import Unfinished

LOCK_POLL_S = 0.05
"""Seconds between a waiting process's requests for the lock."""

if sys.platform == "win32":
    import msvcrt

    def lock(file: int) -> None:
        """Lock a file for this opening of it alone; raises `OSError` if it is locked."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

    def unlock(file: int) -> None:
        """Let go of the lock."""
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def lock(file: int) -> None:
        """Lock a file for this opening of it alone; raises `OSError` if it is locked."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def unlock(file: int) -> None:
        """Let go of the lock, also if a forked process has the same opening of the file."""
        fcntl.flock(file, fcntl.LOCK_UN)


class NotSynced(OSError):
    """A folder was changed, and a power cut may still undo that."""


def write_whole(file: Path, data: bytes) -> None:
    """Write a file whole, to the disk, readable by its owner only.

    A payment id is proof of payment for anyone who has it. Raises `NotSynced`, and another
    `OSError` if the file is as before.
    """
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)  # of a start that was killed; a link would lead elsewhere
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)
    _sync(file.parent)  # the new name is on the disk, too, before anything is sent


def _sync(folder: Path) -> None:
    """Write the names in a folder to the disk, where the system can; raises `NotSynced`."""
    if os.name != "posix":
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        raise NotSynced(*error.args) from error


def _make(folder: Path) -> None:
    """Make a folder that is on the disk, too, or none: its next user would not write its name."""
    if folder.is_dir() or folder == folder.parent:  # a drive that is missing
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    try:
        _sync(folder.parent)
    except NotSynced:
        with suppress(OSError):  # another payer has a file in it already
            folder.rmdir()
        raise


class Bought(msgspec.Struct, kw_only=True):
    """A finished purchase: the answer, the payment as in JSON, and the time (Unix seconds).

    Until the answer was `printed`, the next start of `pay` prints the answer, and buys nothing.
    """

    at_s: float
    status: int
    body: bytes
    payment: dict[str, Any]
    printed: bool = True


class Record(msgspec.Struct, kw_only=True):
    """The content of a file: the unfinished payments of a purchase, or the answer bought.

    `network` is the name of the network that `pay` has signed for.
    """

    url: str
    unfinished: Unfinished
    network: str = ""
    bought: Bought | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is unfinished, and nothing bought."""
        return not self.unfinished.payments and self.bought is None


class Taken(PaymentFailed):
    """Another payer holds the file; nothing was signed."""


class NotStored(PaymentFailed):
    """The file could not be written, and is as before."""


class Stored:
    """A purchase in a folder, which is made if needed: a file, and the lock on a second file.

    `name` is the beginning of the file's name, and `key` has the purchase. Other payers may change
    the file, except between `take` and the end of the last use. Errors name the `option` that has
    given the folder.
    """

    record: Record
    """The content of the file, as read or written last; only while the file is held."""

    def __init__(self, folder: Path, name: str, key: str, option: str = "state_dir") -> None:
        self._file = folder / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        self._option = option
        self._lock = 0
        self._users = 0
        """The number of paying flows and of bodies in reading; each holds the file."""
        self._changing = threading.Lock()  # a body may end in any thread
        self._pid = os.getpid()

    def take(self, most_s: float = 0) -> bool:
        """Hold the file, and read the record; return False if the file was ours already.

        Waits at most `most_s` seconds for another payer. Raises `Taken`, and `PaymentFailed` for a
        folder that cannot be written or a file that cannot be read.
        """
        with self._changing:
            if is_first := not self._users:
                self._open(most_s)
            self._users += 1
            return is_first

    def release(self) -> None:
        """End a use of the file without writing."""
        with self._changing:
            self._let_go()

    def hold(self) -> None:
        """Hold the file once more: it is ours already."""
        with self._changing:
            self._users += 1

    @contextmanager
    def alone(self, most_s: float) -> Iterator[None]:
        """Hold the file until the end of the block, or of this process; raises as `take`."""
        self.take(most_s)
        try:
            yield
        finally:
            self.release()

    def _open(self, most_s: float) -> None:
        try:
            _make(self._file.parent)
            path = self._file.with_suffix(".lock")
            taken = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed("cannot be written", error) from error
        try:
            self._wait(taken, most_s)
            self.record = Record(url="", unfinished=Unfinished())
            if self._file.exists():
                self.record = msgspec.json.decode(self._file.read_bytes(), type=Record)
        except (OSError, msgspec.DecodeError) as error:
            os.close(taken)
            may = "It may have an authorization that can still be used: remove it only if you may "
            raise self._failed("cannot be read", error, f"{may}pay twice") from error
        except BaseException:
            os.close(taken)
            raise
        self._lock = taken

    def _wait(self, taken: int, most_s: float) -> None:
        elapsed_s = stopwatch()
        while True:
            try:
                lock(taken)
                return
            except (BlockingIOError, PermissionError) as error:
                if elapsed_s() >= most_s:
                    raise Taken(
                        f"{self._option}: another payer is buying the same, from "
                        f"{self._file.parent}; nothing was signed for this request",
                        "Repeat the request later, or give each payer a folder of its own",
                    ) from error
            threading.Event().wait(LOCK_POLL_S)

    def write(self, record: Callable[[], Record], *, is_over: bool = False) -> None:
        """Write the record of now, or remove the file if the record is empty; let go of the file
        if this use of it `is_over`.

        Does nothing in a fork: its copy may be old. Raises `NotStored`, or another `PaymentFailed`
        if the file may have the record.
        """
        if os.getpid() != self._pid:
            return
        with self._changing:
            try:
                self.record = record()
                if self.record.is_empty:
                    with suppress(FileNotFoundError):
                        self._file.unlink()
                        _sync(self._file.parent)  # it would come back after a power cut
                else:
                    write_whole(self._file, msgspec.json.format(msgspec.json.encode(self.record)))
            except OSError as error:
                failed = self._failed("cannot be written", error)
                raise failed if isinstance(error, NotSynced) else NotStored(failed.why) from error
            finally:
                if is_over:
                    self._let_go()

    def _let_go(self) -> None:
        self._users -= 1
        if not self._users:
            unlock(self._lock)
            os.close(self._lock)

    def _failed(self, what: str, error: Exception, todo: str = "") -> PaymentFailed:
        return PaymentFailed(f"{self._option}: {self._file} {what}: {error}", todo)
