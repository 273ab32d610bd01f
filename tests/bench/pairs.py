"""Compares rows with an earlier commit: the quick form of both, one after the other.

A busy machine slows both, so that a small loss shows.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.rows import OF_PAIRS, Row

HERE = Path(__file__).parents[2]
TRIES = 3
"""A row fails if so many pairs in a row are too far apart."""


@contextmanager
def files_of(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit; raises `CalledProcessError` for an unknown one."""
    archive = ["git", "archive", commit]
    with TemporaryDirectory() as folder:
        packed = subprocess.run(archive, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        yield Path(folder)


def value(name: str, tree: Path) -> float | None:
    """Return what the quick form measures in a process of its own; None if it cannot."""
    command = [sys.executable, "-m", "tests.bench", "--quick", "--only", name]
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True)
    found = re.search(rf"^{name:<8}(.{{10}})", done.stdout, re.MULTILINE)
    measured = found[1].strip().rstrip("x").replace(",", "") if found else ""
    return float(measured) if measured else None


def compared(name: str, row: Row, there: Path) -> tuple[str, bool]:
    """Return a line with both values and their ratio, and whether the row is kept."""
    pairs: list[str] = []
    for _ in range(TRIES):
        theirs, ours = value(name, there), value(name, HERE)
        if not theirs or ours is None:
            return f"{name:<8}  not compared: {theirs} there, {ours} here", True
        pairs.append(f"{ours:.3g} / {theirs:.3g} = {ours / theirs:.2f}")
        if row.reaches(ours / theirs, 1 / OF_PAIRS if row.is_cost else OF_PAIRS):
            return f"{name:<8}  {', '.join(pairs)}", True
    return f"{name:<8}  {', '.join(pairs)}: too much worse", False
