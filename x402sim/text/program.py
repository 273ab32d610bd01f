"""How this program starts, as a Python package or as one standalone file; how to add an extra."""

import os
import shlex
import shutil
import sys
from pathlib import Path

STANDALONE: bool = getattr(sys, "frozen", False)
"""Whether this is the standalone program, which includes Python and no extra."""
KEEPER_WORD = "--keep-what-is-judged"
"""The only argument of the standalone program that keeps the commands of a judge."""


def start() -> tuple[str, ...]:
    """Return the command that starts a copy of this program."""
    return (sys.executable,) if STANDALONE else (sys.executable, "-m", "x402sim")


def shown() -> str:
    """Return the command that starts this program, as a user types it (`program`)."""
    return shlex.join(program())


def program() -> tuple[str, ...]:
    """Return the command that starts this program, whichever environment is active."""
    if not sys.executable:
        return ("x402sim",)
    folder = str(Path(sys.executable).parent)
    script = sys.executable if STANDALONE else shutil.which("x402sim", path=folder)
    if script is None:
        return _from_here(sys.executable), "-m", "x402sim"
    return ("x402sim" if shutil.which("x402sim") == script else _from_here(script),)


def _from_here(file: str) -> str:
    try:
        is_near = Path(file).is_relative_to(Path.cwd())
    except FileNotFoundError:  # the folder of this process is deleted
        is_near = False
    if not is_near:
        return file
    near = os.path.relpath(file)
    return near if os.path.dirname(near) else os.path.join(os.curdir, near)


def install(extra: str) -> str:
    """Return how to install an extra."""
    pip = f"pip install 'x402sim[{extra}]'"
    return (
        f"the standalone program has no extras; where there is Python, {pip}" if STANDALONE else pip
    )
