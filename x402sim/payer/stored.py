"""Unfinished payments in a folder: a payer that starts again sends them again.

A payment is written before it is sent, and its file is removed when the goods were read to the end.
While a payer pays or reads, no other pays for the same resource from the folder.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from x402sim.payer.core import PaymentFailed
from x402sim.payer.purchases import Unfinished

if sys.platform == "win32":
    import msvcrt

    def lock(file: int) -> None:
        """Lock a file for this opening of it alone; raises `OSError` if it is locked."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def lock(file: int) -> None:
        """Lock a file for this opening of it alone; raises `OSError` if it is locked."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_whole(file: Path, data: bytes) -> None:
    """Write a file whole, to the disk, readable by its owner only; raises `OSError`.

    A payment id is proof of payment for anyone who has it.
    """
    new = file.with_suffix(".new")
    new.unlink(missing_ok=True)  # of a start that was killed; a link would lead elsewhere
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


class Stored:
    """The unfinished payments of one payer for one resource, in a folder, which is made if needed.

    `name` has the payer and the resource. Other payers may change the file, except between `take`
    and the end of the last use.
    """

    def __init__(self, folder: Path, name: Sequence[str]) -> None:
        self._file = folder / f"auth-{hashlib.sha256(repr(name).encode()).hexdigest()[:32]}.json"
        self._lock = 0
        self._users = 0
        """The flows that pay, and the bodies that are read, each of which holds the file."""
        self._changing = threading.Lock()  # a body may end in any thread

    def take(self) -> Unfinished | None:
        """Hold the file; return what was left unfinished, or None if the file was ours already.

        Raises `PaymentFailed` if another payer has the file, or for a file that cannot be read.
        """
        with self._changing:
            left = None if self._users else self._opened()
            self._users += 1
            return left

    def hold(self) -> None:
        """Hold the file once more: it is ours already."""
        with self._changing:
            self._users += 1

    def _opened(self) -> Unfinished:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            path = self._file.with_suffix(".lock")
            taken = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed("cannot be written", error) from error
        try:
            lock(taken)
            left = Unfinished()
            if self._file.exists():
                left = msgspec.json.decode(self._file.read_bytes(), type=Unfinished)
        except (BlockingIOError, PermissionError) as error:
            os.close(taken)
            raise PaymentFailed(
                f"state_dir: another payer is buying the same, from {self._file.parent}; nothing "
                "was signed for this request",
                "Repeat the request later, or give each payer a folder of its own",
            ) from error
        except (OSError, msgspec.DecodeError) as error:
            os.close(taken)
            may = "It may have an authorization that can still be used: remove it only if you may "
            raise self._failed("cannot be read", error, f"{may}pay twice") from error
        self._lock = taken
        return left

    def write(self, unfinished: Callable[[], Unfinished], *, is_over: bool = False) -> None:
        """Write what is unfinished now, and let go of the file if this use of it `is_over`.

        Raises `PaymentFailed`.
        """
        with self._changing:
            try:
                if (found := unfinished()).payments:
                    write_whole(self._file, msgspec.json.format(msgspec.json.encode(found)))
                else:
                    self._file.unlink(missing_ok=True)
            except OSError as error:
                raise self._failed("cannot be written", error) from error
            finally:
                self._users -= is_over
                if not self._users:
                    os.close(self._lock)

    def _failed(self, what: str, error: Exception, todo: str = "") -> PaymentFailed:
        return PaymentFailed(f"state_dir: {self._file} {what}: {error}", todo)
