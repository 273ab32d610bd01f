"""When the process is killed: at random, or at the very moment at which a file changes."""

import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

from tests.crash.deployment import Command, Deployment

PATIENCE_S = 60


class Phase(Enum):
    """The moment of a kill."""

    LOAD = "at random under load"
    FILE = "as FILE was written"
    CHAIN = "as the chain's file was written, FILE not yet"
    MEMPOOL = "while a transfer waited to be mined"
    START = "while it started"
    FIRST_FILE = "in its first start, FILE just made"
    FIRST_CHAIN = "in its first start, FILE.chain just made"
    AGAIN = "just after it was ready"
    RESUMED = "as it resumed its work after a start"
    IDLE = "while idle"


UNDER_LOAD = (Phase.LOAD, Phase.FILE, Phase.CHAIN, Phase.CHAIN, Phase.MEMPOOL)
"""How a cycle ends; what stands twice is twice as likely."""


def kill_under_load(deployment: Deployment, phase: Phase, luck: random.Random) -> None:
    """Kill a process that payers are using."""
    match phase:
        case Phase.FILE | Phase.CHAIN:
            file = deployment.file if phase is Phase.FILE else deployment.chain_file
            assert _is_written(file, within_s=PATIENCE_S), f"{file.name} was not written"
        case Phase.MEMPOOL:
            deployment.world.sim("mining", automine=False)
            wait_for(lambda: deployment.world.state()["chain"]["waiting"], "a transfer waits")
            time.sleep(luck.uniform(0, 0.05))
        case _:
            time.sleep(luck.uniform(0, 0.1))
    deployment.kill()


def kill_first_start(deployment: Deployment, phase: Phase) -> None:
    """Start on files that do not exist yet, and kill as one of them appears."""
    awaited = deployment.file if phase is Phase.FIRST_FILE else deployment.chain_file
    deployment.spawn()
    wait_for(awaited.exists, f"{awaited.name} appears")
    deployment.kill()


def kill_in_start(deployment: Deployment, luck: random.Random) -> None:
    """Start, and kill before it is ready, as a rule: mostly when the files are being opened."""
    deployment.spawn()
    time.sleep(luck.choice([luck.uniform(0, 1), luck.uniform(0.7, 1.05)]) * deployment.start_s)
    deployment.kill()


def kill_again(deployment: Deployment, luck: random.Random) -> None:
    """Start, and kill as soon as it is ready, or a little later."""
    deployment.spawn()
    deployment.await_ready()
    time.sleep(luck.uniform(0, 0.03))
    deployment.kill()


def kill_resumed(deployment: Deployment, luck: random.Random) -> None:
    """Start, and kill at one of the first writes to the chain: pending payments and refunds."""
    deployment.spawn()
    for _ in range(luck.randint(1, 12)):
        if not _is_written(deployment.chain_file, within_s=1.5 * deployment.start_s):
            break
    deployment.kill()


def first_phases(command: Command) -> list[Phase]:
    """Return the moments of a first start at which this command can be killed."""
    if command is Command.SERVE:
        return [Phase.FIRST_FILE, Phase.FIRST_CHAIN]
    return [Phase.FIRST_FILE]


def _is_written(file: Path, *, within_s: float) -> bool:
    """Return True as soon as a database is written: its log changes size or time."""
    log = file.with_name(file.name + "-wal")
    before, end = _stamp(log), time.monotonic() + within_s
    while _stamp(log) == before:
        if time.monotonic() > end:
            return False
    return True


def _stamp(file: Path) -> tuple[int, int]:
    with suppress(FileNotFoundError):
        found = os.stat(file)
        return found.st_size, found.st_mtime_ns
    return 0, 0


def wait_for(happened: Callable[[], object], what: str, pause_s: float = 0.001) -> None:
    """Return when something has happened; raises `AssertionError` if it does not."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, f"not in {PATIENCE_S} s: {what}"
        time.sleep(pause_s)
