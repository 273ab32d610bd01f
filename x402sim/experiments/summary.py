"""Summarizes a sweep: mean, quantiles and confidence intervals, by parameters; and says when it has
enough seeds: once each interval is as narrow as you ask.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from x402sim.experiments.grid import OF_SUMMARIES, RESERVED, labels_key
from x402sim.report import need_extra
from x402sim.rng import Rng
from x402sim.text.words import unknown

if TYPE_CHECKING:
    from pandas import DataFrame

DRAWS = 2000
"""Resamples of the bootstrap."""
_CHUNK, _MOST_DRAWN = 100, 10_000_000
"""How many resamples are drawn at once, and how many numbers for them."""
Unit = Literal["seed", "row"]
"""What is independent of the others: the rows of one seed together, or each row."""
UNITS: tuple[Unit, ...] = get_args(Unit)


def summarize(
    frame: "DataFrame",
    *,
    by: str | Sequence[str],
    values: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    unit: Unit = "seed",
) -> "DataFrame":
    """Return mean, confidence interval and quantiles of a sweep's results, by parameters.

    `by` is the parameter, or those, whose combinations are the groups (of an empty list: all is one
    group); `values` are the results, by default every number that is no parameter. A row a group:

    | column | meaning |
    | --- | --- |
    | (those in `by`) | the parameters of the group |
    | result | the name of the result |
    | seeds, rows | how many seeds and rows it is from; missing values are left out |
    | failed | how many points failed, which are left out |
    | mean, low, high | the mean of the rows and its confidence interval |
    | std | the standard deviation of the rows |
    | q05, q50, q95 | the quantiles of the rows |
    | unit, independent | what the interval counts, and how many independent ones it has |

    `unit` says what is independent. "seed", the default: rows of one seed come from one world, and
    may all be lost for one reason, so that 1,000 equal orders of 10 seeds say no more than 10
    would. "row": each row is independent of the others, which only you can know, such as that each
    order met a fault of its own; then 0 in 1,000 has the interval [0, 0.0038].

    The interval of a mean is a bootstrap of the units (2,000 resamples); of a result that is true
    or false, or 0 and 1, it is Wilson's: what none of n has seen may still come in about 4 of n. A
    share that the experiment returns for each seed has the bootstrap's: for Wilson's, return a row
    for each order. The guide's page on experiments has the formulas, and how often they cover. It
    needs two units: else `low` and `high` are NaN. For differences of groups, see `compare`; for
    one long run of each group, `x402sim.experiments.steady`.

    Groups that were played with the same seeds, as by default, err together: with few seeds all of
    a curve may be too high or too low by as much as an interval, and yet be smooth.

    The attribute "units" of the table has the units of results that are columns of a run's frames.

    Raises `ValueError` for a column that does not exist, for one in `by` that is named as a column
    of the summary, for another unit, and for a confidence outside 0 to 1.
    """
    need_extra(("pandas",), "summaries", "report")
    import pandas as pd

    if unit not in UNITS:
        raise ValueError(f"unit: {unknown('unit', str(unit), UNITS)}")
    keys = [by] if isinstance(by, str) else list(by)
    names = checked_results(frame, keys, values, confidence)
    columns = [*OF_SUMMARIES[:-2], *map(_named, quantiles), *OF_SUMMARIES[-2:]]
    for name in keys:
        if name in columns:
            raise ValueError(f"by: {name!r} is a column of the summary; rename it in the frame")
    rows, events = [], {name: is_event(frame[name]) for name in names}
    shares = {name for name in names if _is_share(frame[name].dropna())}
    groups = frame.groupby(keys, sort=False, dropna=False) if keys else [((), frame)]
    for given, group in groups:
        failed = int(group["error"].notna().sum()) if "error" in group else 0
        for name in names:
            # resamples of a share that never happened here would say that it never can
            is_extreme = name in shares and set(group[name].dropna()) in ({0}, {1})
            either = events[name] or is_extreme
            facts = _facts(group, name, unit, confidence, quantiles, is_event=either)
            rows.append(dict(zip(keys, given, strict=True)) | {"failed": failed} | facts)
    found = pd.DataFrame(rows, columns=[*keys, *columns])
    played = {frozenset(group["seed"]) for _, group in groups}
    found.attrs |= {"confidence": confidence, "unit": unit, "common seeds": len(played) == 1}
    found.attrs["units"] = units_of(frame, names)
    return found


def units_of(frame: "DataFrame", names: Sequence[str]) -> dict[str, str]:
    """Return the units of these columns that the frame names."""
    units = frame.attrs.get("units", {})
    return {name: units[name] for name in names if name in units}


def checked_results(
    frame: "DataFrame",
    keys: Sequence[str],
    values: str | Sequence[str] | None,
    confidence: float,
) -> list[str]:
    """Return the names of the results; raises `ValueError` for what cannot be summarized."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: a number between 0 and 1 is needed, not {confidence}")
    _require_results(frame)
    names = _values(frame, keys, values)
    for name in (*keys, *names, "seed"):
        if name not in frame.columns:
            raise ValueError(unknown("column", name, frame.columns))
    return names


def _require_results(frame: "DataFrame") -> None:
    """Raise `ValueError` if every point failed, with the first error."""
    if "error" in frame and len(frame) and frame["error"].notna().all():
        raise ValueError(
            f"all {len(frame)} points failed, so there is nothing to summarize. The first one: "
            f"{frame['error'].iloc[0]}"
        )


def _values(
    frame: "DataFrame", keys: Sequence[str], values: str | Sequence[str] | None
) -> list[str]:
    if values is not None:
        return [values] if isinstance(values, str) else list(values)
    found = results_of(frame, keys)
    if not found:
        raise ValueError(f"no column has numbers to summarize: {', '.join(frame.columns)}")
    return found


def results_of(frame: "DataFrame", keys: Sequence[str]) -> list[str]:
    """Return the columns of numbers that are not parameters (`keys`) or columns of every sweep."""
    from pandas.api.types import is_numeric_dtype

    swept = frame.attrs.get("parameters", ())
    names = [name for name in frame.columns if name not in (*keys, *RESERVED, *swept)]
    return [str(name) for name in names if is_numeric_dtype(frame[name])]


def _named(quantile: float) -> str:
    """Return the name of a quantile's column: q05, q50, q99.9."""
    percent = f"{100 * quantile:g}"
    return f"q{percent.zfill(2)}"


def is_event(column: Any) -> bool:
    """Tell whether a result says if something happened; what is always 1 may be a count."""
    from pandas.api.types import is_bool_dtype

    return is_bool_dtype(column) or (set(column.dropna()) in ({0}, {0, 1}))


def _is_share(column: Any) -> bool:
    """Tell whether a result may be a share; what is always 1 may be a count."""
    return bool(column.between(0, 1).all()) and set(column) != {1}


def _facts(
    group: "DataFrame",
    name: str,
    unit: Unit,
    confidence: float,
    quantiles: Sequence[float],
    *,
    is_event: bool,
) -> dict[str, Any]:
    known = group[["seed", name]].dropna().astype({name: "float64"})
    units = counted(known["seed"].to_numpy(), known[name].to_numpy(), unit)
    low, high, independent = _interval(units, confidence, is_event=is_event)
    return {
        "result": name,
        "seeds": known["seed"].nunique(),
        "rows": len(known),
        "mean": known[name].mean(),
        "low": low,
        "high": high,
        "std": known[name].std(),
        **{_named(each): known[name].quantile(each) for each in quantiles},
        "unit": unit,
        "independent": independent,
    }


class Counted(NamedTuple):
    """The sum and the number of the rows of each unit, as arrays."""

    sums: Any
    counts: Any


def counted(seeds: Any, numbers: Any, unit: Unit) -> Counted:
    """Return the units of rows, given the seed and the number of each."""
    import numpy as np

    if unit == "row":
        return Counted(numbers, np.ones(len(numbers), dtype="int64"))
    _, owner = np.unique(seeds, return_inverse=True)
    return Counted(np.bincount(owner, numbers), np.bincount(owner))


def _interval(units: Counted, confidence: float, *, is_event: bool) -> tuple[float, float, float]:
    """Return the confidence interval of the mean, and of how many independent ones it is.

    Of fewer than two units, the interval is NaN.
    """
    import numpy as np

    sums, counts = units
    if len(sums) < 2:
        return float("nan"), float("nan"), float(len(sums))
    if is_event:
        worth = worth_of(units)
        return *wilson(float(sums.sum() / counts.sum()), worth, confidence), worth
    # Its own stream each time, so that groups with the same seeds are resampled alike.
    draw = np.random.Generator(np.random.PCG64(list(Rng(0).secret("bootstrap"))))
    means, left = [], DRAWS
    while left:
        size = min(left, _CHUNK, max(1, _MOST_DRAWN // len(sums)))
        picked = draw.integers(len(sums), size=(size, len(sums)))
        means.append(sums[picked].sum(axis=1) / counts[picked].sum(axis=1))
        left -= size
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high), float(len(sums))


def worth_of(units: Counted) -> float:
    """Return of how many independent rows a share of events is, by its spread over the units."""
    sums, counts = units
    rows = float(counts.sum())
    share = sums.sum() / rows
    spread, inside = ((sums - share * counts) ** 2).sum() / rows**2, share * (1 - share)
    if not inside:  # nothing tells how alike the rows of a unit are: as if they were equal
        return float(len(sums))
    return float(min(rows, inside / spread)) if spread else rows


def wilson(share: float, of: float, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of so many independent ones."""
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    middle = (of * share + z2 / 2) / (of + z2)
    half = (z2 * (of * share * (1 - share) + z2 / 4)) ** 0.5 / (of + z2)
    return max(0.0, middle - half), min(1.0, middle + half)


# --- enough seeds -----------------------------------------------------------------------

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
