"""The cost of the hundred-thousandth payment against the first: one run, its journal on disk.

A hundred payers buy quotes at a fixed pace for as many days as it takes, two payments a second.
Indexer, sweeps and invariants run as in every world. Cost is CPU time, so that a busy machine does
not change it; memory is what the process holds.
"""

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

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

    def lines(self) -> Iterator[str]:
        """Yield what to print."""
        held = "unknown" if self.bytes_each is None else f"{self.bytes_each / 1000:.1f} kB"
        first_us, last_us = self.us_each[0], self.us_each[-1]
        yield f"{self.payments:,} payments in one run, {self.events:,} events on disk"
        yield f"  CPU us a payment  {first_us:,.0f} in the first tenth, {last_us:,.0f} in the last"
        yield f"  growth            {self.growth:.2f} times, from the third tenth to the last"
        yield f"  memory a payment  {held}"
        yield f"journal sha256 {self.journal_sha256}"


def simulate(payments: int) -> Long:
    """Run this many payments (at least ten); every check must hold."""
    marks: list[tuple[int, float, int | None]] = []
    done, buy = 0, Buy()

    def mark() -> None:
        gc.collect()
        marks.append((done, time.process_time(), _held_bytes()))

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
        assert run.outcome == "passed", f"a check of the long run failed: {run.reason}"
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
