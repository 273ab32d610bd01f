"""A sweep that is interrupted or killed: what is saved is said, and no process is left.

Real processes get real signals. Each test waits for what it needs, and no longer.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.fork_server import STUDIES, Forked
from x402sim.clock import stopwatch

pytestmark = [pytest.mark.thorough, pytest.mark.waits]
LIMIT_S = 60.0
AT_ONCE_S = 0.05
"""A command takes longer than this to end its workers."""
STUDY = """
import os, time
from pathlib import Path
from x402sim import sweep

def point(n, seed):
    if n == 2:
        Path(f"at-work-{os.getpid()}").touch()
        time.sleep(600)
    return seed

if __name__ == "__main__":
    sweep(point, {"n": [1, 2]}, range(3), workers=2)
"""
COMMAND = "-m x402sim sweep study.py:point --set n=1,2 --seeds 3 --workers 2 --out results"


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
def at_work(tmp_path: Path) -> Iterator[Callable[..., tuple[Forked, list[int]]]]:
    """Start Python, in a process group as a terminal has it; return it, and the pids of its two
    workers, which play n=2."""
    (tmp_path / "study.py").write_text(STUDY)
    started: list[Forked] = []

    def start(*words: object) -> tuple[Forked, list[int]]:
        with (tmp_path / "errors").open("w") as errors:
            process = Forked(
                *map(str, words), stderr=errors, env={**os.environ}, cwd=tmp_path, imports=STUDIES
            )
        started.append(process)
        until(lambda: len(list(tmp_path.glob("at-work-*"))) == 2, "both workers play n=2")
        return process, [int(each.name.split("-")[-1]) for each in tmp_path.glob("at-work-*")]

    yield start
    for each in started:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        each.stdout.close()


def test_the_command_ends_in_one_sentence(tmp_path: Path, at_work: Callable[..., Any]) -> None:
    """Also if Ctrl-C comes again while it ends its processes."""
    process, workers = at_work(*COMMAND.split())
    first_s = time.monotonic()
    for _ in range(3):
        # Once its workers have ended, Ctrl-C is Python's own again, and another ends Python's end.
        if time.monotonic() - first_s < AT_ONCE_S:
            os.killpg(process.pid, signal.SIGINT)
    assert process.wait(LIMIT_S) == 130
    until(lambda: all(map(is_dead, workers)), "its workers end")
    told = (tmp_path / "errors").read_text()
    (line,) = (each for each in told.splitlines() if not each.startswith("sweep "))
    said = r"x402sim: interrupted: (\d) of 6 points saved in results; the same command resumes"
    points = int(re.fullmatch(said, line)[1])
    files = (tmp_path / "results").glob("points/*.parquet")
    saved = sum(pq.read_metadata(each).num_rows for each in files)
    assert points in (saved - 1, saved), "one may be written and not counted yet"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(
    tmp_path: Path, at_work: Callable[..., Any], how: signal.Signals
) -> None:
    process, workers = at_work(tmp_path / "study.py")
    assert not any(map(is_dead, workers))
    process.send_signal(how)
    process.wait()
    until(lambda: all(map(is_dead, workers)), "its workers end")
