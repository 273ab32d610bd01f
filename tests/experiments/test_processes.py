"""The executor of our own: each task in a process that runs nothing but tasks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

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


SCRIPT = """
import sys
from x402sim.experiments.processes import Processes
with Processes(1, print, ("warm",)) as processes:
    processes.submit(print, "printed").result()
    flags = processes.submit(eval, "__import__('sys').flags.optimize, __import__('sys').argv[1:]")
    print(*flags.result(), processes.submit(input).exception())
"""


def test_what_a_task_prints_is_kept_apart_and_flags_and_arguments_are_the_parents(
    tmp_path: Path,
) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    done = subprocess.run([sys.executable, "-OO", file, "--fast"], capture_output=True, text=True)
    assert done.stdout == "2 ['--fast'] EOF when reading a line\n"
    assert done.stderr == "warm\nprinted\n"
