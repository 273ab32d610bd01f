"""When the payers of a population come: Poisson processes, fixed intervals, or given moments."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from x402sim.rng import Stream
from x402sim.text.arguments import AboveZero, FromZero, explained, require_kind

DAY_S = 86_400


class Arrivals(Protocol):
    """When visits begin; write your own with these two methods."""

    is_random: bool
    """Whether each visit is of a payer drawn at random; if not, payers come in turn."""

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield the beginnings of visits in Unix seconds, in order; `start_s` is now."""
        ...


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Visits at random: `per_s` a second on average, for the whole population.

    daily
        Relative rates of equal parts of a day (UTC), such as 24 numbers, one an hour. Their mean
        counts as 1, so that `per_s` stays the mean of a whole day. Without it the rate is constant.
    """

    per_s: AboveZero
    daily: Sequence[float] = ()
    is_random = True

    def __post_init__(self) -> None:
        if self.daily and (min(self.daily) < 0 or not 0 < sum(self.daily) < float("inf")):
            raise ValueError(f"daily: expected rates of 0 or more, one above 0, got {self.daily!r}")

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield moments by thinning: those of the highest rate, some of them left out."""
        highest = self._relative(max(self.daily)) if self.daily else 1.0
        at_s = start_s
        while True:
            at_s += rng.expovariate(self.per_s * highest)
            part = int(at_s % DAY_S / DAY_S * len(self.daily))
            if not self.daily or rng.random() * highest < self._relative(self.daily[part]):
                yield at_s

    def _relative(self, rate: float) -> float:
        return rate * len(self.daily) / sum(self.daily)


@explained
@dataclass(frozen=True, slots=True)
class Every:
    """A visit every `seconds`, the first one at once."""

    seconds: AboveZero
    is_random = False

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield the moments of a fixed interval; draws nothing."""
        return (start_s + number * self.seconds for number in itertools.count())


@explained
@dataclass(frozen=True, slots=True)
class At:
    """A visit at each of these moments, in seconds from now."""

    seconds: Sequence[float]
    is_random = False

    def __post_init__(self) -> None:
        given = self.seconds if isinstance(self.seconds, Iterable) else [self.seconds]
        for each in given:
            require_kind("seconds of At", each, FromZero)
        if given is not self.seconds:
            raise ValueError(f"At: expected a list of seconds, such as At([{self.seconds}])")

    def moments(self, start_s: float, rng: Stream) -> Iterator[float]:
        """Yield the given moments in order; draws nothing."""
        return (start_s + each for each in sorted(self.seconds))
