"""One way to run a program to its end. It needs nothing that is installed."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEP_S = 600
"""The longest that one step may take, unless it is told."""


class Failed(Exception):
    """A step that failed, with the end of what it wrote."""


def run(
    words: Sequence[str | Path],
    *,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    code: int = 0,
    timeout_s: float = STEP_S,
) -> str:
    """Run a program, and return what it wrote to stdout; `env` is its environment, by default ours.

    Raises `Failed` if it ends with another exit code, `subprocess.TimeoutExpired` if it does not end.
    """
    done = subprocess.run(
        [*map(str, words)], cwd=cwd, env=os.environ if env is None else env, timeout=timeout_s,
        text=True, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != code:
        told = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        raise Failed(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{told}")
    return done.stdout
