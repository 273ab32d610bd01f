"""Compares two ways to do something: rounds that alternate, CPU time, the median of their ratios.

CPU time, because other programs on the machine change it little; alternating, because what still
changes hits both sides.
"""

import gc
import resource
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Work = Callable[[int], float]
"""Does something so many times; returns the CPU seconds that took."""
Round = Callable[[], float]
"""Does one round of something; returns the CPU seconds of one unit of it, such as one payment."""


class NotMeasured(Exception):
    """A row cannot be measured on this machine; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of each round, and the median seconds of one unit, ours and its limit, if compared."""

    values: tuple[float, ...]
    ours_s: float | None = None
    limit_s: float | None = None

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return median(self.values)


def spent_s(do: Callable[[], object]) -> float:
    """Return the CPU seconds that a call takes, here and in the processes that it has ended."""
    before = _used_s()
    do()
    return _used_s() - before


def _used_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def cpu(work: Callable[[int], object]) -> Work:
    """Return the work of this process, with its CPU time."""
    return lambda times: spent_s(lambda: work(times))


def sized(work: Work, round_s: float) -> Round:
    """Return rounds of about so many CPU seconds; finding their size warms the work up."""
    times = 1
    work(times)  # the first imports and compiles what later ones have
    while (took_s := work(times)) < round_s / 4:
        times *= 2
    times = max(1, round(times * round_s / took_s))
    return lambda: work(times) / times


def alternate(ours: Round, limit: Round, rounds: int, *, is_cost: bool = False) -> Measured:
    """Run so many rounds of each, every other time in reverse order.

    The values are how many times as fast as its limit ours is, below 1 if it is slower; for a cost, how
    many times as much it takes.
    """
    ours_s: list[float] = []
    limit_s: list[float] = []
    for number in range(rounds):
        for each, found in [(ours, ours_s), (limit, limit_s)][:: 1 if number % 2 else -1]:
            gc.collect()
            found.append(each())
    times_as_much = [ours / limit for ours, limit in zip(ours_s, limit_s, strict=True)]
    values = times_as_much if is_cost else [1 / times for times in times_as_much]
    return Measured(tuple(values), median(ours_s), median(limit_s))
