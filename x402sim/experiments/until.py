"""When a sweep has enough seeds: once each interval is as narrow as you ask."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from x402sim.experiments.grid import labels_key
from x402sim.experiments.summary import summarize

if TYPE_CHECKING:
    from pandas import DataFrame

_AT_LEAST_MORE = 5
"""So that seeds do not come one by one: each look at the results is a chance to stop too early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Play seeds until the interval of each mean is narrow enough: `sweep(..., until=Until(...))`.

    relative
        The half width of the interval that is enough, as a share of the mean: 0.05 is ± 5 %.
    absolute
        The half width in the result's own unit. With both, either is enough: a share that is
        nearly 0 never has a narrow interval relative to itself.
    of
        The result, or those, that must have it; by default every number that is returned.
    least
        How many seeds each cell has at least.
    confidence
        Of the interval, which is that of `summarize`, by seed.

    A cell stops on its own, so cells differ in their seeds: `summarize` says how many each has. The
    results of its first seeds say how many more it gets: as many as the present width asks for, but
    never more than it has, and five at least. So the seeds depend on results only, not on who plays
    them or in which order.

    Whoever stops when an interval is narrow stops rather when it is too narrow by chance. The
    guide's page on experiments says by how much it covers less.
    """

    relative: float | None = None
    absolute: float | None = None
    of: str | Sequence[str] | None = None
    least: int = 10
    confidence: float = 0.95

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers out of their range."""
        given = {"relative": self.relative, "absolute": self.absolute}
        if not any(given.values()):
            raise ValueError("Until: relative=0.05 is ± 5 % of the mean; absolute=0.01 is ± 0.01")
        for name, value in given.items():
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: a number above 0 is needed, not {value}")
        if self.least < 2:
            raise ValueError(f"least: an interval needs two seeds, not {self.least}")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence: between 0 and 1, not {self.confidence}")

    def __str__(self) -> str:
        """Return what it asks for: "± 5 % of waited_s"."""
        wanted = [f"± {100 * self.relative:g} %"] if self.relative else []
        wanted += [f"± {self.absolute:g}"] if self.absolute else []
        of = [self.of] if isinstance(self.of, str) else self.of
        return " or ".join(wanted) + (f" of {' and '.join(of)}" if of else "")


def seeds_wanted(
    until: Until, frame: "DataFrame", parameters: Sequence[str]
) -> Mapping[tuple[Any, ...], int]:
    """Return how many seeds each cell should have, by its labels, of those that need more.

    Of a cell without a result, no more seeds are played: its points fail, or return nothing.
    """
    if frame["error"].notna().all():
        return {}
    names, wanted = list(parameters), dict[tuple[Any, ...], int]()
    table = summarize(frame, by=names, values=until.of, confidence=until.confidence)
    for row in table.to_dict("records"):
        half, mean, seeds = (row["high"] - row["low"]) / 2, abs(row["mean"]), int(row["seeds"])
        enough = max((until.relative or 0) * mean, until.absolute or 0)
        if math.isnan(half) or half <= enough:
            continue
        needed = math.ceil(seeds * (half / enough) ** 2) if enough else math.inf
        key = labels_key(row[name] for name in names)
        more = max(seeds + _AT_LEAST_MORE, min(2 * seeds, needed))
        wanted[key] = max(wanted.get(key, 0), int(more))
    return wanted
