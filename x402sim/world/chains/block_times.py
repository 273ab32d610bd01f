"""The times of blocks: at fixed times, with jitter, or as a Poisson process.

Each kind is an object whose `intervals` draws the seconds to each next block from a stream; an
object of your own with such a method can be given instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from x402sim.rng import Stream
from x402sim.text.arguments import FromZero, ZeroToOne, explained

SHORTEST_S, LONGEST_S = 0.01, 86_400


class BlockTimes(Protocol):
    """The times of blocks."""

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""


@explained
@dataclass(frozen=True, slots=True)
class FixedBlocks:
    """A block every `seconds`, 0.01 to 86400.

    The first comes `phase` seconds after the beginning of the world (0: after a whole interval);
    None draws the phase from the seed.
    """

    seconds: float
    phase: FromZero | None = None

    def __post_init__(self) -> None:
        _require_interval(self.seconds)

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        phase = stream.uniform(0, self.seconds) if self.phase is None else self.phase
        yield phase % self.seconds or self.seconds
        while True:
            yield self.seconds


@explained
@dataclass(frozen=True, slots=True)
class JitteredBlocks:
    """Blocks about every `seconds`: each interval is up to `share` (0 to 1) shorter or longer.

    Intervals are uniform and independent. The first begins before the world does.
    """

    seconds: float
    share: ZeroToOne

    def __post_init__(self) -> None:
        _require_interval(self.seconds)

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        yield stream.uniform(0, self.seconds)
        while True:
            yield self.seconds * stream.uniform(1 - self.share, 1 + self.share)


@explained
@dataclass(frozen=True, slots=True)
class PoissonBlocks:
    """Blocks as a Poisson process: intervals are exponential, with a mean of `seconds`."""

    seconds: float

    def __post_init__(self) -> None:
        _require_interval(self.seconds)

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        while True:
            yield stream.expovariate(1 / self.seconds)


def _require_interval(seconds: float) -> None:
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise ValueError(
            f"the block time is {SHORTEST_S:g} to {LONGEST_S} seconds, not {seconds!r}"
        )
