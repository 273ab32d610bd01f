"""The executor of our own: each task in a process that runs nothing but tasks."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool

import pytest

from x402sim.experiments.processes import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes(2, os.umask, (0o022,)) as processes:
        yield processes


def test_tasks_return_and_raise_and_a_process_plays_one_after_the_other(
    processes: Processes,
) -> None:
    pids = {processes.submit(os.getpid).result() for _ in range(3)}
    assert len(pids) == 1
    assert os.getpid() not in pids
    with pytest.raises(ValueError, match="invalid literal"):
        processes.submit(int, "seven").result()
    with pytest.raises(SystemExit, match="3"):
        processes.submit(sys.exit, 3).result()
    assert list(processes.map(abs, range(-40, 0))) == list(range(40, 0, -1))


def test_an_answer_that_cannot_be_sent_is_an_error(processes: Processes) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        processes.submit(compile, "1", "file", "eval").result()
    assert processes.submit(int, "7").result() == 7


def test_the_death_of_a_process_is_told_and_ends_the_others() -> None:
    with Processes(2, int, ()) as processes:
        pid = processes.submit(os.getpid).result()
        with pytest.raises(BrokenProcessPool, match="its process ended with -6"):
            processes.submit(os.abort).result()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
