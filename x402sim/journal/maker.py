"""Which versions made a journal: in a file beside it, never in its lines, which are its hash."""

import platform
from pathlib import Path

import msgspec

from x402sim.version import VERSION


class Maker(msgspec.Struct, frozen=True):
    """The versions of x402sim and of Python that recorded a journal."""

    x402sim: str
    python: str

    def __str__(self) -> str:
        """Return "x402sim 0.1.0, Python 3.11.7"."""
        return f"x402sim {self.x402sim}, Python {self.python}"


OURS = Maker(VERSION, platform.python_version())


def file_of(journal: Path) -> Path:
    """Return the file that says who made a journal: `run.ndjson.made.json` of `run.ndjson`."""
    return journal.with_name(f"{journal.name}.made.json")


def read(journal: Path) -> Maker | None:
    """Return who made the journal in a file; None if that is not known."""
    try:
        return msgspec.json.decode(file_of(journal).read_bytes(), type=Maker)
    except (OSError, msgspec.MsgspecError):
        return None


def write(journal: Path, maker: Maker | None) -> None:
    """Write who made a journal beside it; if that is not known, no older file stays to say so.

    What is no file, such as /dev/null or a pipe, keeps no journal: beside it nothing is written.
    """
    if not journal.is_file():
        return
    if maker is None:
        file_of(journal).unlink(missing_ok=True)
    else:
        file_of(journal).write_bytes(msgspec.json.encode(maker) + b"\n")
