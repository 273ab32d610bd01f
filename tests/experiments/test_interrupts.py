"""Ctrl-C in a sweep: one sentence says what is saved, and no process is left, however long its point.

Real processes get real signals. Each test waits for what it needs, and no longer.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.fork_server import STUDIES, Forked
from x402sim.clock import stopwatch

LIMIT_S = 60.0
AT_ONCE_S = 0.05
"""A command takes longer than this to end its workers."""
STUDY = """
import os, sys, time
from pathlib import Path
from x402sim import sweep

def point(n, seed):
    if n == 2:
        Path(f"at-work-{os.getpid()}").touch()
        time.sleep(600)
    return seed

if __name__ == "__main__":
    sweep(point, {"n": [1, 2]}, range(3), workers=1, out=sys.argv[1] if sys.argv[1:] else None)
"""
COMMAND = [
    "-m",
    "x402sim",
    "sweep",
    "study.py:point",
    "--set",
    "n=1,2",
    "--seeds",
    "3",
    "--workers",
    "2",
]
IN_PROCESS = "from study import *; sweep(point, {'n': [1, 2]}, range(3), workers=0, out='results')"


def until(held: Callable[[], Any], what: str) -> None:
    """Wait until something holds; fail after a minute."""
    elapsed = stopwatch()
    while not held():
        assert elapsed() < LIMIT_S, what
        time.sleep(0.01)  # and leave the CPU to what it waits for


def is_dead(pid: int) -> bool:
    """Tell whether a process has ended, though it may not be waited for."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except FileNotFoundError:  # it ended just now, or this system has no such file
        return Path("/proc/self").exists()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Forked]]:
    """Start Python in a folder with a study, in a process group as a terminal has it."""
    (tmp_path / "study.py").write_text(STUDY)
    (tmp_path / "in_process.py").write_text(IN_PROCESS)
    processes: list[Forked] = []

    def start(*arguments: str) -> Forked:
        with (tmp_path / "errors").open("w") as errors:
            process = Forked(
                *arguments, stderr=errors, env={**os.environ}, cwd=tmp_path, imports=STUDIES
            )
        processes.append(process)
        return process

    yield start
    for each in processes:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        each.stdout.close()


def interrupted(process: Forked, folder: Path, workers: int, times: int) -> str:
    """Send Ctrl-C once the points of n=1 are played and those of n=2 are; return what it wrote."""
    until(lambda: len(list(folder.glob("at-work-*"))) == workers, "its workers play n=2")
    first_s = time.monotonic()
    for _ in range(times):
        # Once its workers have ended, Ctrl-C is Python's own again, and another ends Python's end.
        if time.monotonic() - first_s < AT_ONCE_S:
            os.killpg(process.pid, signal.SIGINT)
    process.wait(LIMIT_S)
    for each in folder.glob("at-work-*"):
        until(partial(is_dead, int(each.name.split("-")[-1])), "its workers end")
    return (folder / "errors").read_text()


SAVED = r"interrupted: (\d) of 6 points saved in results; the same (\w+) resumes"


def is_saved(said: str, folder: Path) -> bool:
    """Tell whether so many points are in a folder; one may be written and not counted yet."""
    saved = sum(pq.read_metadata(each).num_rows for each in folder.glob("points/*.parquet"))
    return int(said) in (saved - 1, saved)


def test_the_command_ends_in_one_sentence(tmp_path: Path, started: Callable[..., Any]) -> None:
    """Also if Ctrl-C comes again while it ends its processes."""
    process = started(*COMMAND, "--out", "results")
    told = interrupted(process, tmp_path, 2, times=3)
    assert process.returncode == 130
    lines = [line for line in told.splitlines() if not line.startswith("sweep ")]
    assert len(lines) == 1, told
    found = re.fullmatch("x402sim: " + SAVED, lines[0])
    assert found, told
    assert is_saved(found[1], tmp_path / "results")
    assert found[2] == "command"
