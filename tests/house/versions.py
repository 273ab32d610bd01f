"""Runs some tests on other versions: `python -m tests.house.versions`.

Once on the oldest Python, with the oldest version that is allowed of everything that x402sim needs;
and once on the newest, with the newest. uv finds a Python on the PATH, or fetches it. Where it can
do neither, a line says so, and the next one is taken; tests of an installation that is this one are
not repeated. What cannot be installed, or fails, is exit code 1.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement
from uv import find_uv_bin

from tests.house import ROOT
from tests.house.wheels import PYTHONS

PROGRAMS = {"hypothesis", "pytest", "pytest-timeout", "pytest-xdist"}
"""What the tests need, in any version; nothing else of the extras."""
TESTS = (
    "tests/experiments/test_processes.py", "tests/payer/test_deadlines.py",
    "tests/payer/test_shops.py", "tests/serve/test_connections.py", "tests/serve/test_websocket.py",
    "tests/test_web.py",
    "tests/world/test_failures.py", "tests/world/test_loop.py", "tests/world/test_middleware.py",
)  # fmt: skip
"""What depends most on Python, uvicorn, starlette and httpx."""
TIMEOUT_S = 600
SHOWN = ("httpx", "starlette", "uvicorn")


def main() -> int:
    """Run the tests in both installations, side by side; return 1 if anything fails."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        oldest, newest = Path(folder, "oldest"), Path(folder, "newest")
        made = [(oldest, made_with(PYTHONS, oldest)), (newest, made_with(PYTHONS[::-1], newest))]
        here = "{}.{}".format(*sys.version_info)
        wanted = [at for at, python in made if (at, python) != (newest, here)]
        return int(not all(list(pool.map(passes, wanted))))


def made_with(pythons: Iterable[str], at: Path) -> str:
    """Make an environment with the first of these Pythons that can be had, and return its version."""
    for python in pythons:
        done = run("uv", "venv", "--quiet", "--python", python, str(at))
        if not done.returncode:
            return python
        print(f"versions: Python {python} NOT checked: {done.stdout.splitlines()[0]}", flush=True)
    raise SystemExit("versions: no Python that x402sim supports was found")


def passes(at: Path) -> bool:
    """Install what the tests need in an environment, and run them; tell what came of it."""
    python = str(at / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    install = "uv", "pip", "install", "--quiet", "--python", python
    lowest = ("--resolution", "lowest-direct") if at.name == "oldest" else ()
    # an old version may use what another one calls out of date
    ignored = ("-W", "ignore::DeprecationWarning") if lowest else ()
    for command in (
        (*install, *lowest, "-r", "pyproject.toml"),
        (*install, *programs()),
        (python, "-m", "pytest", "-q", *ignored, *TESTS),
    ):
        done = run(*command)
        if done.returncode:
            break
    versions = run(python, "-c", "import sys; print('Python', *sys.version_info[:3])").stdout
    packages = run("uv", "pip", "freeze", "--python", python).stdout.splitlines()
    named = [each for each in packages if each.startswith(SHOWN)]
    last = done.stdout if done.returncode else done.stdout.splitlines()[-1]
    print(f"versions: {at.name}, {versions.strip()}, {', '.join(named)}: {last}", flush=True)
    return not done.returncode


def programs() -> list[str]:
    """Return what the tests need, with the versions that the extras allow."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = set(chain.from_iterable(project["optional-dependencies"].values()))
    found = [each for each in sorted(listed) if Requirement(each).name in PROGRAMS]
    assert len(found) == len(PROGRAMS)
    return found


def run(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a program, or uv, at the root; return its exit code and all that it says."""
    return subprocess.run(
        (find_uv_bin() if program == "uv" else program, *arguments),
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
