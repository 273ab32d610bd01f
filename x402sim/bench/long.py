"""Does the hundred-thousandth payment cost as much as the first? One run, its journal on disk.

A hundred payers buy quotes at a fixed pace for as many days as it takes, two payments a second.
Indexer, sweeps and invariants run as in every world. Cost is CPU time, so that a busy machine does
not change it; memory is what the process holds.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from x402sim.clock import cpu_stopwatch
from x402sim.events import PaymentSettled
from x402sim.rng import Stream
from x402sim.world.story.arrivals import Every
from x402sim.world.story.behaviours import Buy
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.payer import Payer
from x402sim.world.story.world import World

SEED, PAYERS, PAUSE_S = 1, 100, 0.5
TENTHS = 10
_STATM, _PAGE_BYTES = Path("/proc/self/statm"), 4096


@dataclass(frozen=True, slots=True)
class Long:
    """What a long run took: CPU microseconds a payment in each tenth of it, and memory.

    `bytes_each` is what each payment of the last seven tenths added to the memory of the process;
    None where that cannot be read.
    """

    payments: int
    events: int
    us_each: tuple[float, ...]
    bytes_each: float | None
    journal_sha256: str

    @property
    def growth(self) -> float:
        """How many times the cost of the third tenth, when caches are full, the last one costs."""
        return self.us_each[-1] / self.us_each[min(2, len(self.us_each) - 1)]


def simulate(payments: int, each_tenth: Callable[[float], None] = lambda _: None) -> Long:
    """Run this many payments (at least ten); raises `RuntimeError` if a check failed.

    `each_tenth` is called with the share of the payments that are done.
    """
    cpu_s = cpu_stopwatch()
    marks: list[tuple[int, float, int | None]] = []
    done, buy = 0, Buy()

    def mark() -> None:
        gc.collect()
        marks.append((done, cpu_s(), _held_bytes()))
        each_tenth(done / payments)

    async def visit(payer: Payer, rng: Stream) -> None:
        nonlocal done
        await buy(payer, rng)
        done += 1
        if done * TENTHS // payments > len(marks) - 1:
            mark()

    async def long(world: LiveWorld) -> None:
        mark()
        await world.population(
            PAYERS,
            arrivals=Every(PAUSE_S),
            behaviour=visit,
            until_s=PAUSE_S * payments,
            balance="1000000.00",
        )

    with TemporaryDirectory() as folder:
        run = World(seed=SEED, journal=Path(folder) / "run.ndjson").play(long)
        if run.outcome != "passed":
            raise RuntimeError(f"a check of the long run failed: {run.reason}")
        settled = sum(1 for _ in run.journal.of(PaymentSettled))
        return Long(settled, run.journal.length, _costs(marks), _bytes_each(marks), run.sha256)


def _costs(marks: list[tuple[int, float, int | None]]) -> tuple[float, ...]:
    pairs = pairwise(marks)
    return tuple(1e6 * (new[1] - old[1]) / (new[0] - old[0]) for old, new in pairs)


def _bytes_each(marks: list[tuple[int, float, int | None]]) -> float | None:
    (first, _, before), (last, _, after) = marks[min(3, len(marks) - 2)], marks[-1]
    return None if before is None or after is None else (after - before) / (last - first)


def _held_bytes() -> int | None:
    """Return the memory that this process holds; None where the system does not say."""
    if not _STATM.exists():
        return None
    return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
