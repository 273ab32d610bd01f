"""Checks that the core installs from wheels alone: `python -m tests.house.wheels`.

For each supported Python, on Linux (x86 and arm), macOS and Windows. What has no wheels is printed,
and is exit code 1. Where the package index does not answer, a line says so and nothing fails.
"""

import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from uv import find_uv_bin

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("linux", "aarch64-unknown-linux-gnu", "macos", "windows")
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
UV = find_uv_bin()
TIMEOUT_S = 300
MISSING = "No solution found"
"""How uv says that wheels are missing, and not the answers of the index."""


def main() -> int:
    """Resolve the dependencies for each Python and platform; 1 if one fails."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    cases = list(product(PYTHONS, PLATFORMS))
    with ThreadPoolExecutor(4) as pool:  # nearly all the time is the index's
        errors = list(pool.map(partial(resolve, project["dependencies"]), cases))
    for (python, platform), error in zip(cases, errors, strict=True):
        print(f"wheels: Python {python}, {platform}: {error or 'all'}")
    return int(any(MISSING in error for error in errors))


def resolve(dependencies: list[str], case: tuple[str, str]) -> str:
    """Return why no set of wheels was found for these dependencies; empty if one was."""
    python, platform = case
    done = subprocess.run(
        (UV, "pip", "compile", "--quiet", "--no-build", "--no-python-downloads",
         "--python-version", python, "--python-platform", platform, "-"),
        input="\n".join(dependencies), capture_output=True, text=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    if not done.returncode:
        return ""
    return done.stderr if MISSING in done.stderr else f"NOT checked: {done.stderr}"


if __name__ == "__main__":
    sys.exit(main())
