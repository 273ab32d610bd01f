"""A sweep in two processes against one; both are started anew.

A point plays one paid request, in about 15 ms; what starting costs is in both numbers, so that the
ratio grows with the number of points.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from x402sim.clock import stopwatch
from x402sim.experiments.sweep import sweep
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.world import World


@dataclass(frozen=True, slots=True)
class Swept:
    """The real seconds of one sweep in one fresh process, and in two."""

    points: int
    one_s: float
    two_s: float

    def lines(self) -> Iterator[str]:
        """Yield what to print."""
        each_ms, ratio = 1000 * self.one_s / self.points, self.one_s / self.two_s
        yield f"{self.points:,} points of a sweep, in fresh processes"
        yield f"  one process       {self.one_s:.1f} s, {each_ms:.1f} ms each"
        yield f"  two processes     {self.two_s:.1f} s, {ratio:.2f} times as fast"


def measure(points: int) -> Swept:
    """Play this many points in one process, then in two; the results must be the same."""
    seconds, frames = [], []
    for workers in (1, 2):
        elapsed = stopwatch()
        frames.append(sweep(_point, {}, seeds=points, workers=workers, progress=False))
        seconds.append(elapsed())
    assert frames[0].equals(frames[1]), "two processes gave other results than one"
    return Swept(points, *seconds)


def _point(seed: int) -> float:
    """Return how long a payer of one request waits, in virtual seconds."""

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()

    run = World(seed=seed, latency={"service": (0.5, 0.5)}).play(story)
    return float(run.steps["latency_s"].sum())
