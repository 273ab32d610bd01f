"""Payments of many payers in one world: what it costs to play them, and then to show the run.

`python -m tests.bench.size play FILE PAYERS PAYMENTS` plays them, with the journal in a file unless it is
`-`, and prints what it has cost so far after each tenth; `python -m tests.bench.size show FILE` what each
view of it costs. Both as JSON.
"""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import msgspec

from tests.bench.rounds import Round, spent_s
from tests.serve.driver import resident_bytes
from x402sim import World
from x402sim.journal import Journal
from x402sim.report.run import Run
from x402sim.rng import Stream
from x402sim.story.live import LiveWorld
from x402sim.story.payer import Payer
from x402sim.story.population import Behaviour, Buy, Every

PAUSE_S, BUY, IN_MEMORY = 0.5, Buy(), "-"
Costs = dict[str, float]


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


def in_processes(
    payers: int, payments: int, *, is_kept: bool = True, is_shown: bool = False
) -> Costs:
    """Play in one new process, and show in another what is kept; return what each came to (on Linux).

    `play_s` are CPU seconds, `play_mb` the peak memory, `flat` how many times the CPU seconds of the third
    tenth, when caches are full, the last one took, and `bytes` what each payment after that added.
    """
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "run.ndjson")
        tenths = _child("play", file if is_kept else IN_MEMORY, str(payers), str(payments))
        ends = [each["cpu_s"] for each in tenths]
        found = {"play_s": ends[-1], "play_mb": tenths[-1]["peak_mb"]}
        found["flat"] = (ends[9] - ends[8]) / (ends[2] - ends[1])
        found["bytes"] = (tenths[9]["held"] - tenths[2]["held"]) / (0.7 * payments)
        return found | (_child("show", file)[0] if is_shown else {})


def _child(*arguments: str) -> list[Costs]:
    command = [sys.executable, "-m", __name__, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return list(map(json.loads, done.stdout.splitlines()))


def tell_tenths(file: str, payers: int, payments: int) -> None:
    """Play, and print the CPU seconds and the memory after each tenth, and at the end."""
    done = 0

    def tell() -> None:
        gc.collect()
        peak_kib = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
        held = {"held": resident_bytes(), "peak_mb": int(peak_kib) / 1000}
        print(json.dumps({"done": done, "cpu_s": process_time(), **held}), flush=True)

    async def visit(payer: Payer, rng: Stream) -> None:
        nonlocal done
        await BUY(payer, rng)
        done += 1
        if done % (payments // 10) == 0:
            tell()

    play(payers, payments, visit, None if file == IN_MEMORY else Path(file))
    tell()


def show(file: Path) -> Costs:
    """Return the CPU seconds of each view, made first of all; libraries are imported already."""
    import matplotlib.pyplot as plt

    from x402sim.report import frames, html, page, plots  # noqa: F401 - imported, not timed

    def opened() -> Run:
        """Return the run as it is when it has just ended."""
        gc.collect()
        return Run(journal=Journal.open(file))

    _ = play(2, 4).orders  # what a first use makes once
    views: dict[str, Callable[[Run], object]] = {
        "first_s": lambda run: run.orders,
        "sequence_s": plots.sequence,
        "cell_s": lambda run: run._repr_html_(),
        "show_s": lambda run: run.show().page,
    }
    seconds = {name: spent_s(partial(of, opened())) for name, of in views.items()}
    plt.close("all")
    load_s = spent_s(lambda: Run.load(file).orders)
    return {**seconds, "load_s": load_s, "show_mb": len(opened().show().page) / 1e6}


def reading(payments: int) -> tuple[Round, Round]:
    """Return the making of the first frame from a file, and the decoding of its lines by msgspec
    alone; the unit is an event."""
    folder = TemporaryDirectory()  # both rounds hold it: it is there as long as they are
    file = Path(folder.name) / "run.ndjson"
    length = len(play(100, payments, journal=file).journal)
    run = Run(journal=Journal.open(file))
    decode = msgspec.json.Decoder().decode_lines

    def ours() -> float:
        run.journal.made = 0, {}
        return spent_s(lambda: run.orders) / length

    def limit() -> float:
        return spent_s(lambda: decode((Path(folder.name) / file.name).read_bytes())) / length

    return ours, limit


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["play", name, payers, payments]:
            tell_tenths(name, int(payers), int(payments))
        case ["show", name]:
            print(json.dumps(show(Path(name))))
        case other:
            sys.exit(f"expected play FILE PAYERS PAYMENTS, or show FILE, got {other}")
