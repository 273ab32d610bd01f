"""Compares several ways to do the same thing: alternating rounds, medians, ratios."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from x402sim.clock import stopwatch

Work = Callable[[int], None]
"""Does something this many times."""
ROUNDS = 9
MIN_ROUND_S = 0.002


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of one contestant: `rates` per second, one for each round."""

    rates: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """The median rate."""
        return median(self.rates)

    def ratio(self, other: "Pace") -> float:
        """Return how many times as fast as `other`: the median of the rounds' own ratios."""
        return median(ours / its for ours, its in zip(self.rates, other.rates, strict=True))


def race(works: Mapping[str, Work], seconds: float) -> dict[str, Pace]:
    """Run the contestants alternately for about `seconds` in all; return their paces.

    Every other round reverses the order, so that no contestant always follows the same one."""
    round_s = max(MIN_ROUND_S, seconds / (ROUNDS * len(works)))
    sizes = {name: _size(work, round_s) for name, work in works.items()}
    rates: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS):
        for name in list(works)[:: 1 if number % 2 else -1]:
            rates[name].append(sizes[name] / _seconds(works[name], sizes[name]))
    return {name: Pace(tuple(found)) for name, found in rates.items()}


def _seconds(work: Work, times: int) -> float:
    elapsed = stopwatch()
    work(times)
    return elapsed()


def _size(work: Work, round_s: float) -> int:
    """Return how often the work fits into a round; measuring it also warms it up."""
    times = 1
    while (took_s := _seconds(work, times)) < round_s / 4:
        times *= 2
    return max(1, round(times * round_s / took_s))
