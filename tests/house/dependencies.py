"""`python -m tests.house.dependencies`: are the dependencies safe, do they install, do others work?

`audit` looks for known vulnerabilities in what the tests install, by pip-audit and by npm, for the packages
of the real-chain tests; `--ignore-vuln ID` accepts one. `wheels` checks that the core installs from wheels
alone, for each supported Python, on Linux (x86 and arm), macOS and Windows. `versions` runs some tests on the
oldest Python, with the oldest version that is allowed of everything that x402sim needs, and on the newest.
Names choose; without any, it is all of them.

Exit code 1: a vulnerability was found, wheels are missing, or a test fails. Where a source does not answer,
or a Python cannot be had, one line says so, and nothing fails.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pip_audit  # noqa: F401 - without it there would be nothing to read, and no error
from packaging.requirements import Requirement
from uv import find_uv_bin

from tests import npm
from tests.house import ROOT

TIMEOUT_S = 600
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
UV = find_uv_bin()


def run(*words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a program at the root; return its exit code and all that it says."""
    return subprocess.run(
        words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, input=stdin,
        capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
    )  # fmt: skip


# --- known vulnerabilities ----------------------------------------------------------------

PYTHON, NPM = "Python packages", "npm packages"
PIP_AUDIT = (
    sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip",
    "--progress-spinner", "off", "--format", "json", "-r", "/dev/stdin",
)  # fmt: skip
Findings = list[str] | None
"""One line for each vulnerability; None if the advisory source did not answer.

The tools alone do not tell these apart: pip-audit exits with 1 for both, or says "no known vulnerabilities
found" if its source knows none of the packages; npm exits with 1 for both.
"""


def audit(ignored: Iterable[str]) -> int:
    """Audit both; 1 if anything was found."""
    audited = npm.run(ROOT / "tests" / "evm", "audit", "--json").stdout
    return max(report(PYTHON, python_findings(ignored)), report(NPM, read_npm_audit(audited)))


def report(what: str, found: Findings) -> int:
    """Print the outcome; 1 if anything was found."""
    if found is None:
        print(f"audit: {what} NOT audited, the advisory source does not answer here")
    else:
        print("\n".join([f"audit: {len(found)} known vulnerabilities in {what}", *found]))
    return int(bool(found))


def python_findings(ignored: Iterable[str]) -> Findings:
    """Ask for one package first: if the source does not know it, it would know none."""
    frozen = run(sys.executable, "-m", "pip", "freeze", "--exclude-editable").stdout
    command = (*PIP_AUDIT, *(word for each in ignored for word in ("--ignore-vuln", each)))
    (first,) = [line for line in frozen.splitlines() if line.startswith("httpx==")]
    if read_pip_audit(run(*command, stdin=first).stdout) is None:
        return None
    return read_pip_audit(run(*command, stdin=frozen).stdout)


def read_pip_audit(answer: str) -> Findings:
    """Read pip-audit's JSON; without JSON, or if it knows no package, nothing was audited."""
    dependencies = _object(answer).get("dependencies", [])
    audited = [each for each in dependencies if "vulns" in each]
    if not audited:
        return None
    return [
        f"  {each['name']} {each['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for each in audited
        for vulnerability in each["vulns"]
    ]


def read_npm_audit(answer: str) -> Findings:
    """Read npm's JSON; without a list of vulnerabilities nothing was audited."""
    found = _object(answer).get("vulnerabilities")
    if found is None:
        return None
    return [f"  {name}: {each['severity']}, {each['range']}" for name, each in found.items()]


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


# --- wheels -------------------------------------------------------------------------------

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("linux", "aarch64-unknown-linux-gnu", "macos", "windows")
MISSING = "No solution found"
"""How uv says that wheels are missing, and not the answers of the index."""


def wheels() -> int:
    """Resolve the dependencies for each Python and platform; 1 if one fails."""
    cases = list(product(PYTHONS, PLATFORMS))
    with ThreadPoolExecutor(4) as pool:  # nearly all the time is the index's
        errors = list(pool.map(resolve, cases))
    for (python, platform), error in zip(cases, errors, strict=True):
        print(f"wheels: Python {python}, {platform}: {error or 'all'}")
    return int(any(MISSING in error for error in errors))


def resolve(case: tuple[str, str]) -> str:
    """Return why no set of wheels was found for the dependencies; empty if one was."""
    compiles = UV, "pip", "compile", "--quiet", "--no-build", "--no-python-downloads"
    for_it = "--python-version", case[0], "--python-platform", case[1], "-"
    done = run(*compiles, *for_it, stdin="\n".join(PROJECT["dependencies"]))
    if not done.returncode:
        return ""
    return done.stderr if MISSING in done.stderr else f"NOT checked: {done.stderr}"


# --- other versions -----------------------------------------------------------------------

PROGRAMS = {"hypothesis", "pytest", "pytest-timeout", "pytest-xdist"}
"""What the tests need, in any version; nothing else of the extras."""
TESTS = (
    "tests/payer/test_deadlines.py", "tests/payer/test_shops.py",
    "tests/serve/test_connections.py", "tests/serve/test_websocket.py", "tests/test_web.py",
    "tests/world/test_failures.py", "tests/world/test_loop.py", "tests/world/test_middleware.py",
)  # fmt: skip
"""What depends most on Python, uvicorn, starlette and httpx."""
SHOWN = ("httpx", "starlette", "uvicorn")


def versions() -> int:
    """Run the tests in both installations, side by side; return 1 if anything fails.

    uv finds a Python on the PATH, or fetches it; where it can do neither, the next one is taken. Tests of an
    installation that is this one are not repeated.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        oldest, newest = Path(folder, "oldest"), Path(folder, "newest")
        made = [(oldest, made_with(PYTHONS, oldest)), (newest, made_with(PYTHONS[::-1], newest))]
        here = "{}.{}".format(*sys.version_info)
        wanted = [at for at, python in made if (at, python) != (newest, here)]
        return int(not all(list(pool.map(passes, wanted))))


def made_with(pythons: Iterable[str], at: Path) -> str:
    """Make an environment with the first of these Pythons that can be had, and return its version."""
    for python in pythons:
        done = run(UV, "venv", "--quiet", "--python", python, str(at))
        if not done.returncode:
            return python
        print(f"versions: Python {python} NOT checked: {done.stderr.splitlines()[0]}", flush=True)
    raise SystemExit("versions: no Python that x402sim supports was found")


def passes(at: Path) -> bool:
    """Install what the tests need in an environment, and run them; tell what came of it."""
    python = str(at / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    install = UV, "pip", "install", "--quiet", "--python", python
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
    version = run(python, "-c", "import sys; print('Python', *sys.version_info[:3])").stdout
    packages = run(UV, "pip", "freeze", "--python", python).stdout.splitlines()
    named = [each for each in packages if each.startswith(SHOWN)]
    told = f"{done.stdout}{done.stderr}" if done.returncode else done.stdout.splitlines()[-1]
    print(f"versions: {at.name}, {version.strip()}, {', '.join(named)}: {told}", flush=True)
    return not done.returncode


def programs() -> list[str]:
    """Return what the tests need, with the versions that the extras allow."""
    listed = set(chain.from_iterable(PROJECT["optional-dependencies"].values()))
    found = [each for each in sorted(listed) if Requirement(each).name in PROGRAMS]
    assert len(found) == len(PROGRAMS)
    return found


def main() -> int:
    """Do what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.dependencies", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("what", nargs="*", metavar="audit | wheels | versions")
    parser.add_argument("--ignore-vuln", action="append", default=[], metavar="ID")
    given = parser.parse_args()
    known = {"audit": partial(audit, given.ignore_vuln), "wheels": wheels, "versions": versions}
    if unknown := {*given.what} - {*known}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    return max([known[name]() for name in given.what or known])


if __name__ == "__main__":
    sys.exit(main())
