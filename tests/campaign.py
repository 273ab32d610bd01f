"""`python -m tests.campaign`: every campaign, one after another, with its table.

Random worlds without and with an adversary, and the long tests at their full length: real crashes
and hostile input among them; also those with the mark `campaign`, which CI does not run. Exit code
1: one of them found a violation.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

from x402sim.clock import stopwatch

T = TypeVar("T")
FULL_LENGTH = "X402SIM_FULL_LENGTH"
"""The variable of the environment with which the long tests do all that they can."""
SEED = "X402SIM_SEED"
"""The variable with the seed of the tests that draw: crashes and hostile input."""


def at_length(usual: T, full: T) -> T:
    """Return how often a long test does something, or to what: in CI, or in `tests.campaign`."""
    return full if FULL_LENGTH in os.environ else usual


def seed(usual: int) -> int:
    """Return the seed of a test that draws."""
    return int(os.environ.get(SEED, usual))


def long_tests() -> list[str]:
    """Return the files that ask for their full length, or have tests of the mark `campaign`."""
    words = ("at_length(", "mark.campaign")
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    return [str(file) for file in files if any(each in file.read_text("utf-8") for each in words)]


def main() -> int:
    """Run the campaigns; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=10_000, help="worlds of each kind (%(default)s)"
    )
    parser.add_argument("--seed", type=int, help="by default each draws or has its own")
    given, done, full = parser.parse_args(), [], os.environ | {FULL_LENGTH: "1"}
    worlds = ["tests.explore", "--runs", str(given.runs)]
    if given.seed is not None:
        full[SEED] = str(given.seed)
        worlds += ["--seed", str(given.seed)]
    long = ["pytest", "-n", "auto", "-m", "thorough or not thorough", "-rP", *long_tests()]
    for command in (worlds, [*worlds, "--adversary"], long):
        print(f"\n== python -m {' '.join(command)}\n", flush=True)
        elapsed = stopwatch()
        code = subprocess.run([sys.executable, "-m", *command], env=full).returncode
        verdict = "clean" if code == 0 else f"violations (exit code {code})"
        done.append(f"{elapsed():6.0f} s  {verdict:<12}  python -m {' '.join(command)}")
    print("\n".join(["\n== in all\n", *done]))
    return int(any("violations" in line for line in done))


if __name__ == "__main__":
    sys.exit(main())
