"""How this program is started, and what it lacks: as a package of Python, or as one file."""

import os
import shutil
import sys
from pathlib import Path

STANDALONE: bool = getattr(sys, "frozen", False)
"""Whether this is the standalone program: Python is inside, and no extra."""
SHOWN = "x402sim" if STANDALONE else "python -m x402sim"
"""What people are told to type, whatever is installed where."""


def start() -> tuple[str, ...]:
    """Return the words with which this program starts itself."""
    return (sys.executable,) if STANDALONE else (sys.executable, "-m", "x402sim")


def program() -> tuple[str, ...]:
    """Return the words that start this program again, whichever environment is active."""
    if not sys.executable:
        return ("x402sim",)
    folder = str(Path(sys.executable).parent)
    script = sys.executable if STANDALONE else shutil.which("x402sim", path=folder)
    if script is None:
        return _from_here(sys.executable), "-m", "x402sim"
    return ("x402sim" if shutil.which("x402sim") == script else _from_here(script),)


def _from_here(file: str) -> str:
    """Return the path of a file from the working directory, if it is below that."""
    if not Path(file).is_relative_to(Path.cwd()):
        return file
    near = os.path.relpath(file)
    return near if os.path.dirname(near) else os.path.join(os.curdir, near)


def install(extra: str) -> str:
    """Return how to get an extra."""
    pip = f"pip install 'x402sim[{extra}]'"
    return (
        f"the standalone program has no extras; where there is Python, {pip}" if STANDALONE else pip
    )
