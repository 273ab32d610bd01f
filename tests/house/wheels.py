"""Checks that the core installs from wheels alone: `python -m tests.house.wheels`.

For each supported Python, on Linux (x86 and arm), macOS and Windows. What cannot be resolved is
printed, and is exit code 1.
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
TIMEOUT_S = 120


def main() -> int:
    """Resolve the dependencies for each Python and platform; 1 if one fails."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    cases = list(product(PYTHONS, PLATFORMS))
    with ThreadPoolExecutor(len(cases)) as pool:  # nearly all the time is the index's
        errors = list(pool.map(partial(resolve, project["dependencies"]), cases))
    for (python, platform), error in zip(cases, errors, strict=True):
        print(f"wheels: Python {python}, {platform}: {error or 'all'}")
    return int(any(errors))


def resolve(dependencies: list[str], case: tuple[str, str]) -> str:
    """Return why these dependencies have no set of wheels; empty if they have one."""
    python, platform = case
    done = subprocess.run(
        (find_uv_bin(), "pip", "compile", "--quiet", "--no-build", "--no-python-downloads",
         "--python-version", python, "--python-platform", platform, "-"),
        input="\n".join(dependencies), capture_output=True, text=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
