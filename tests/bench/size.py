"""A run of many payments whose journal is in a file: what it costs to play, and then to show.

`python -m tests.bench.size play FILE PAYERS PAYMENTS` plays it and prints what it has cost so far after
each tenth, and `python -m tests.bench.size show FILE` what each view of it costs, as JSON.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import msgspec

from tests.bench import crowd
from tests.bench.rounds import Round
from x402sim.journal import Journal
from x402sim.report.run import Run
from x402sim.rng import Stream
from x402sim.world.payer import Payer

Costs = dict[str, float]


def in_processes(payers: int, payments: int, *, shows: bool = True) -> Costs:
    """Play in one new process and show in another; return what each came to.

    `play_s` are CPU seconds, `play_mb` the peak memory, and `flat` how many times the CPU seconds of
    the third tenth the last one took.
    """
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "run.ndjson")
        tenths = _child("play", file, str(payers), str(payments))
        ends = [each["cpu_s"] for each in tenths]
        found = {"play_s": ends[-1], "play_mb": tenths[-1]["peak_mb"]}
        found["flat"] = (ends[9] - ends[8]) / (ends[2] - ends[1])
        if shows:
            (views,) = _child("show", file)
            found |= views
        return found


def _child(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", __name__, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return list(map(json.loads, done.stdout.splitlines()))


def play(file: Path, payers: int, payments: int) -> None:
    """Play, and print the CPU seconds and the memory after each tenth, and at the end."""
    done = 0

    def tell() -> None:
        held = {"cpu_s": process_time(), "rss_mb": crowd.held_bytes() / 1e6}
        print(json.dumps({"done": done, "peak_mb": crowd.peak_mb(), **held}), flush=True)

    async def visit(payer: Payer, rng: Stream) -> None:
        nonlocal done
        await crowd.BUY(payer, rng)
        done += 1
        if done % (payments // 10) == 0:
            tell()

    crowd.play(payers, payments, visit, file)
    tell()


def show(file: Path) -> Costs:
    """Return the CPU seconds of each view, made first of all; libraries are imported already."""
    import matplotlib.pyplot as plt

    from x402sim.report import frames, html, page, plots  # noqa: F401 - imported, not timed

    def shown() -> float:
        return len(Run(journal=Journal.open(file)).show().page) / 1e6

    _ = crowd.play(2, 4).orders  # what a first use makes once
    seconds = {
        "first_s": _seconds(file, lambda run: run.orders),
        "sequence_s": _seconds(file, lambda run: plots.sequence(run)),
        "cell_s": _seconds(file, lambda run: run._repr_html_()),
        "show_s": _seconds(file, lambda run: run.show().page),
    }
    plt.close("all")
    before = process_time()
    _ = Run.load(file).orders
    return {**seconds, "load_s": process_time() - before, "show_mb": shown()}


def _seconds(file: Path, view: Callable[[Run], object]) -> float:
    """Return the CPU seconds of a view of a run that has just ended."""
    run = Run(journal=Journal.open(file))
    gc.collect()
    before = process_time()
    view(run)
    return process_time() - before


def reading(payments: int) -> tuple[Round, Round]:
    """Return the making of the first frame from a file, and the decoding of its lines by msgspec
    alone; the unit is an event."""
    folder = TemporaryDirectory()  # both rounds hold it: it is there as long as they are
    file = Path(folder.name) / "run.ndjson"
    length = len(crowd.play(100, payments, journal=file).journal)
    run = Run(journal=Journal.open(file))
    decode = msgspec.json.Decoder().decode_lines

    def ours() -> float:
        run.journal.made = 0, {}
        before = process_time()
        _ = run.orders
        return (process_time() - before) / length

    def limit() -> float:
        before = process_time()
        decode((Path(folder.name) / "run.ndjson").read_bytes())
        return (process_time() - before) / length

    return ours, limit


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["play", name, payers, payments]:
            play(Path(name), int(payers), int(payments))
        case ["show", name]:
            print(json.dumps(show(Path(name))))
        case other:
            sys.exit(f"expected play FILE PAYERS PAYMENTS, or show FILE, got {other}")
