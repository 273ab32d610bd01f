"""How much faster is a sweep in two processes than in one? Both are started anew.

A point plays one paid request, in about 15 ms; what starting costs is in both numbers, so that the
ratio grows with the number of points.
"""

from collections.abc import Callable
from dataclasses import dataclass

from x402sim.clock import stopwatch
from x402sim.experiments.sweep import sweep
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.world import World

PROCESSES = (1, 2)


@dataclass(frozen=True, slots=True)
class Swept:
    """The real seconds of one sweep in one fresh process, and in two."""

    points: int
    one_s: float
    two_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast two processes are."""
        return self.one_s / self.two_s


def measure(points: int, tell: Callable[[float], None] = lambda _: None) -> Swept:
    """Play this many points in one process, then in two; `tell` is called with the share done.

    Raises `RuntimeError` if the results differ, or a point fails.
    """
    seconds, frames = [], []
    for number, workers in enumerate(PROCESSES, 1):
        elapsed = stopwatch()
        frames.append(sweep(_point, {}, seeds=points, workers=workers, progress=False))
        seconds.append(elapsed())
        tell(number / len(PROCESSES))
    if not frames[0].equals(frames[1]):
        raise RuntimeError("two processes gave other results than one")
    return Swept(points, *seconds)


def _point(seed: int) -> float:
    """Return how long a payer of one request waits, in virtual seconds."""

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()

    run = World(seed=seed, latency={"service": (0.5, 0.5)}).play(story)
    return float(run.steps["latency_s"].sum())
