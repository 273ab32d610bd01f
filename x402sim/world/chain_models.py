"""Random models of a chain: the times of its blocks, the price of gas, its reorganisations.

Each is an object that draws from a stream, by one method: `intervals` the seconds to each next
block, `prices` a function of time, `depths` how deep each reorganisation is. An object of your own
with that method can be given instead.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Protocol

from x402sim.chain.base import Chain
from x402sim.protocol.crypto import Hash
from x402sim.rng import Stream
from x402sim.text.arguments import FromZero, Range, ZeroToOne, explained, require_kind

Interval = Annotated[float, Range(0.01, 86_400)]
"""Seconds between blocks."""


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

    seconds: Interval
    phase: FromZero | None = None

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

    seconds: Interval
    share: ZeroToOne

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        yield stream.uniform(0, self.seconds)
        while True:
            yield self.seconds * stream.uniform(1 - self.share, 1 + self.share)


@explained
@dataclass(frozen=True, slots=True)
class PoissonBlocks:
    """Blocks as a Poisson process: intervals are exponential, with a mean of `seconds`."""

    seconds: Interval

    def intervals(self, stream: Stream) -> Iterator[float]:
        """Yield the seconds to the first block, and then from each block to the next."""
        while True:
            yield stream.expovariate(1 / self.seconds)


Gwei = Annotated[float, Range(0, 10**9, is_above=True)]
"""A price of a unit of gas: at most a whole coin of 18 decimals."""


class RandomPrices(Protocol):
    """A price of gas that is drawn from a stream."""

    def prices(self, stream: Stream) -> Callable[[float], float]:
        """Return the price in gwei by the seconds since the world began, which never decrease."""


GasPrice = float | Callable[[float], float] | RandomPrices
"""Gwei for a unit of gas: always, by the seconds since the world began, or drawn."""


@explained
@dataclass(frozen=True, slots=True)
class GasWalk:
    """A price of gas that walks at random about a median, and is lognormal at any time.

    gwei
        The median price; the mean is gwei · exp(sigma² / 2).
    sigma
        Standard deviation of the price's logarithm.
    every_s
        Seconds after which the price changes; default 12.
    memory
        Correlation of the logarithms of one price and the next, 0 to below 1; default 0.9.
    """

    gwei: Gwei
    sigma: Annotated[float, Range(0, 5)]
    every_s: Annotated[float, Range(0.01, 86_400)] = 12
    memory: Annotated[float, Range(0, 0.9999)] = 0.9

    def prices(self, stream: Stream) -> Callable[[float], float]:
        """Return the price in gwei by the seconds since the world began, which never decrease."""
        steps, deviation = 0, stream.gauss(0, 1)

        def price(at_s: float) -> float:
            nonlocal steps, deviation
            while steps < at_s // self.every_s:
                new = math.sqrt(1 - self.memory**2) * stream.gauss(0, 1)
                steps, deviation = steps + 1, self.memory * deviation + new
            return self.gwei * math.exp(self.sigma * deviation)

        return price


def gas_price_wei(
    given: GasPrice | None, stream: Stream, now: Callable[[], float]
) -> Callable[[], int] | None:
    """Return the price in wei of a unit of gas now, of a world that begins now; None: the usual."""
    if given is None:
        return None
    start_s = now()
    by_time = given.prices(stream) if hasattr(given, "prices") else given

    def price_wei() -> int:
        gwei = by_time(now() - start_s) if callable(by_time) else by_time
        require_kind("gas_price_gwei", gwei, Gwei)
        return round(gwei * 10**9)

    return price_wei


class Reorganises(Protocol):
    """When a chain reorganises, how deep, and what it drops."""

    drop: float
    """The chance that a transaction of a replaced block is not mined again."""

    def depths(self, stream: Stream) -> Iterator[int]:
        """Yield before each new block how many of the newest are replaced; 0 is none."""


@explained
@dataclass(frozen=True, slots=True)
class Reorgs:
    """Before each new block, the newest blocks are replaced with `probability`.

    probability
        The chance of a reorganisation, before each new block.
    deeper
        The chance that one of d blocks has d + 1: a transfer with t blocks on top is undone with
        probability · deeper^t before the next block; default 0.5.
    drop
        The chance that a transaction of a replaced block is lost, and not mined again; default 1.
        Those of the token's owner, such as mints, are always mined again.
    """

    probability: ZeroToOne
    deeper: ZeroToOne = 0.5
    drop: ZeroToOne = 1.0

    def __post_init__(self) -> None:
        if self.deeper == 1:
            raise ValueError("deeper: expected less than 1, or a reorganisation has no end")

    def depths(self, stream: Stream) -> Iterator[int]:
        """Yield the depths, which are geometric."""
        while True:
            depth = int(stream.random() < self.probability)
            while depth and stream.random() < self.deeper:
                depth += 1
            yield depth


async def dropped(chain: Chain, depth: int, drop: float, stream: Stream) -> Collection[Hash]:
    """Draw which transactions of the newest blocks are lost."""
    height = await chain.height()
    blocks = [await chain.block(number) for number in range(height - depth + 1, height + 1)]
    lost = []
    for tx_hash in (tx for block in blocks if block for tx in block.tx_hashes):
        sent = await chain.transaction(tx_hash)
        if sent is not None and sent.call.sender != chain.owner and stream.random() < drop:
            lost.append(tx_hash)
    return lost
