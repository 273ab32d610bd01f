"""Runs of pytest, each forked from a process that has imported the libraries but nothing of ours.

A run that takes code away must do so before any module of ours has been imported.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.house import ROOT

LIBRARIES = [
    "eth_account", "httpx", "hypothesis.stateful", "msgspec", "pytest", "starlette.routing",
    "typer", "uvicorn", "web3",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of pytest ended: its exit code, and all that it printed."""

    code: int | None
    output: str


def run_pytest(
    *arguments: str, before: Callable[[], None] | None = None, plugins: Sequence[object] = ()
) -> Ended:
    """Run pytest in a process of its own, `before` first, with these plugins, and wait for its end."""
    forks = get_context("forkserver")
    forks.set_forkserver_preload(LIBRARIES)
    with TemporaryDirectory() as folder:
        output = Path(folder) / "output"
        process = forks.Process(target=_run, args=(arguments, output, before, plugins))
        process.start()
        process.join()
        return Ended(process.exitcode, output.read_text())


def _run(
    arguments: Sequence[str],
    output: Path,
    before: Callable[[], None] | None,
    plugins: Sequence[object],
) -> None:
    os.chdir(ROOT)
    sys.dont_write_bytecode = (
        False  # the server of forks is started with -B: each would compile all
    )
    if before is not None:
        before()
    with output.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # To rewrite `assert`, pytest wants to be there before the libraries.
    options = ("-p", "no:cacheprovider", "--no-header", "--assert=plain")
    sys.exit(int(pytest.main([*options, *arguments], plugins)))
