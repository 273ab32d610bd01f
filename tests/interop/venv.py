"""Runs a program of tests/interop/python with the packages of other people, in another process.

They are PyPI packages, as `python/requirements.txt` pins them, in an environment of their own:
what they need may be another version than what x402sim needs, and nothing of ours can leak in.
Nothing is skipped: what cannot be installed fails its tests.
"""

import fcntl
import subprocess
import sys
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "python"
REQUIREMENTS = FOLDER / "requirements.txt"
VENV = FOLDER / ".venv"
INSTALLED = VENV / "installed.txt"
INSTALL_TIMEOUT_S = 300


class NotInstalled(Exception):
    """pip could not install the packages of the tests."""


@cache
def python() -> Path:
    """Return the interpreter that has the pinned packages, installed if need be.

    Raises `NotInstalled`. The first call installs for about 25 s; the workers of pytest-xdist wait
    for each other and install once.
    """
    with REQUIREMENTS.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_installed():
            install()
    return VENV / "bin" / "python"


def is_installed() -> bool:
    """Say whether the environment has what is pinned, for this version of Python."""
    return INSTALLED.exists() and INSTALLED.read_text() == wanted()


def wanted() -> str:
    """Return what is pinned, and for which Python."""
    return f"# Python {sys.version}\n{REQUIREMENTS.read_text()}"


def install() -> None:
    """Make the environment anew; raises `NotInstalled`."""
    make = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)]
    _run(make)
    to = ["-m", "pip", "--python", str(VENV / "bin" / "python"), "install"]
    _run([sys.executable, *to, "-q", "--no-deps", "--no-compile", "-r", str(REQUIREMENTS)])
    INSTALLED.write_text(wanted())


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise NotInstalled(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
