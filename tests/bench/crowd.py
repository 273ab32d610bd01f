"""Payments of many payers in one world. `python -m tests.bench.crowd 10000` has so many pay once, and
prints its CPU seconds and its peak memory in MB as JSON."""

import gc
import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from x402sim import World
from x402sim.report.run import Run
from x402sim.rng import Stream
from x402sim.world.live import LiveWorld
from x402sim.world.payer import Payer
from x402sim.world.population import Behaviour, Buy, Every

PAUSE_S, BUY = 0.5, Buy()


def play(
    payers: int,
    payments: int,
    behaviour: Behaviour = BUY,
    journal: Path | None = None,
    seed: int = 1,
) -> Run:
    """Play so many payments, the payers in turn; every check must hold."""

    async def story(world: LiveWorld) -> None:
        until_s = PAUSE_S * payments
        arrivals = Every(PAUSE_S)
        await world.population(payers, arrivals=arrivals, behaviour=behaviour, until_s=until_s)

    run = World(seed=seed, journal=journal).play(story)
    assert run.outcome == "passed", f"a check of the payments failed: {run.reason}"
    return run


def in_a_process(payers: int) -> tuple[float, float]:
    """Return CPU seconds and peak MB of a new process in which so many payers pay once."""
    command = [sys.executable, "-m", __name__, str(payers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    cpu_s, peak_mb = json.loads(done.stdout)
    return cpu_s, peak_mb


def growth(payers: int, payments: int) -> tuple[float, float]:
    """Play a long run with its journal on disk.

    Return how many times the CPU time of the third tenth, when caches are full, the last one takes,
    and the bytes of memory that each payment of the last seven tenths adds (on Linux).
    """
    marks: list[tuple[float, int]] = []
    done = 0

    async def visit(payer: Payer, rng: Stream) -> None:
        nonlocal done
        await BUY(payer, rng)
        done += 1
        if done % (payments // 10) == 0:
            gc.collect()
            marks.append((process_time(), held_bytes()))

    with TemporaryDirectory() as folder:
        play(payers, payments, visit, Path(folder) / "run.ndjson")
    (second_s, _), (third_s, third_bytes) = marks[1:3]
    (ninth_s, _), (last_s, last_bytes) = marks[8:10]
    return (last_s - ninth_s) / (third_s - second_s), (last_bytes - third_bytes) / (0.7 * payments)


def held_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_mb() -> float:
    """Return the most memory that this program had, on Linux; `ru_maxrss` has its parent's, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


if __name__ == "__main__":
    count = int(sys.argv[1])
    play(count, count)
    print(json.dumps([process_time(), peak_mb()]))
