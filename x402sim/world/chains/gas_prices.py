"""The price of gas over time: a number, a function of time, or a random process.

A process is an object whose `prices` makes the function from a stream; an object of your own with
such a method can be given instead of `GasWalk`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from x402sim.rng import Stream
from x402sim.text.arguments import Range, explained, require_kind

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
