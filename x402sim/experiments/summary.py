"""Statistics of results: a sweep's summary by parameters (mean, quantiles, confidence interval),
the number of seeds that a sweep needs, and the steady state of one long run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from x402sim.experiments.grid import OF_SUMMARIES, QUANTILES, RESERVED, labels_key
from x402sim.report import need_extra
from x402sim.rng import Rng
from x402sim.text.words import as_given, unknown

if TYPE_CHECKING:
    from pandas import DataFrame

DRAWS = 2000
"""Number of resamples of the bootstrap."""
_CHUNK, _MOST_DRAWN = 100, 10_000_000
"""Resamples drawn at once, at most; and random numbers drawn at once, at most."""
Unit = Literal["seed", "row"]
"""The independent unit: all rows of one seed together, or each row."""
UNITS: tuple[Unit, ...] = get_args(Unit)


def summarize(
    frame: "DataFrame",
    *,
    by: str | Sequence[str],
    values: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    unit: Unit = "seed",
) -> "DataFrame":
    """Return mean, confidence interval and quantiles of a sweep's results, by parameters.

    `by` is a parameter, or several: each combination is a group (an empty list makes one group).
    `values` are the results, by default every number that is not a parameter. The frame has a row
    for each group and result:

    | column | meaning |
    | --- | --- |
    | (those in `by`) | the parameters of the group |
    | result | the name of the result |
    | seeds, rows | the number of seeds and rows with a value |
    | failed | the number of failed points, which are left out |
    | mean, low, high | the mean of the rows and its confidence interval |
    | std | the standard deviation of the rows |
    | q05, q50, q95 | the quantiles of the rows |
    | unit, independent | what the interval counts as independent, and how many of these |

    `unit` says what is independent. "seed", the default: rows of a seed come from one world and may
    share a cause, so 1,000 equal orders of 10 seeds say no more than 10 orders. "row": each row is
    independent. Only the author of the experiment can know this, for example because each order
    had a fault of its own; then 0 of 1,000 has the interval [0, 0.0038].

    The interval of a mean is a bootstrap of the units (2,000 resamples). For a result that is true
    or false, or 0 and 1, it is Wilson's: an event that none of n had may still happen in about 4 of
    n. A share that the experiment returns for each seed gets the bootstrap, or Wilson's interval
    for a group of zeros only; return a row for each order instead. A column between 0 and 1 counts
    as a share, unless it has a unit: `frame.attrs["units"] = {"lost": "USD"}`. The guide's page on
    experiments has the formulas, and how often the intervals cover. With fewer than two units,
    `low` and `high` are NaN. For differences between groups, see `compare`; for one long run per
    group, `x402sim.experiments.steady`.

    Groups with the same seeds, as by default, have correlated errors: with few seeds, a whole curve
    may be too high or too low by as much as an interval, and still be smooth.

    The attribute "units" of the table has the units of results that are columns of a run's frames.

    Raises `ValueError` for a column that does not exist, for one in `by` that is named as a column
    of the summary, for another unit, and for a confidence outside 0 to 1.
    """
    need_extra(("pandas", "scipy"), "summaries", "report")
    import pandas as pd

    if unit not in UNITS:
        raise ValueError(f"unit: {unknown('unit', unit, UNITS)}")
    keys = [by] if isinstance(by, str) else list(by)
    columns = [*OF_SUMMARIES[:-2], *QUANTILES, *OF_SUMMARIES[-2:]]
    names = checked_results(frame, keys, values, confidence, columns)
    units = units_of(frame, names)
    unitless = [name for name in names if name not in units]
    rows, events = [], {name for name in unitless if is_event(frame[name])}
    shares = {name for name in unitless if _is_share(frame[name].dropna())}
    groups = frame.groupby(keys, sort=False, dropna=False) if keys else [((), frame)]
    for given, group in groups:
        failed = int(group["error"].notna().sum()) if "error" in group else 0
        for name in names:
            # a bootstrap of only zeros would have no width, as if the event could never happen
            is_extreme = name in shares and set(group[name].dropna()) in ({0}, {1})
            either = name in events or is_extreme
            facts = _facts(group, name, unit, confidence, is_event=either)
            rows.append(dict(zip(keys, given, strict=True)) | {"failed": failed} | facts)
    found = pd.DataFrame(rows, columns=[*keys, *columns])
    played = {frozenset(group["seed"]) for _, group in groups}
    found.attrs |= {"confidence": confidence, "unit": unit, "common seeds": len(played) == 1}
    found.attrs["units"] = units
    return found


def units_of(frame: "DataFrame", names: Sequence[str]) -> dict[str, str]:
    """Return the units of these columns, as far as the frame's attributes name them."""
    units = frame.attrs.get("units", {})
    return {name: units[name] for name in names if name in units}


def checked_results(
    frame: "DataFrame",
    keys: Sequence[str],
    values: str | Sequence[str] | None,
    confidence: float,
    taken: Sequence[str],
) -> list[str]:
    """Return the names of the results; raises `ValueError` for results without a summary.

    `taken` are the columns of the table that is to be made.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: a number between 0 and 1 is needed, not {confidence}")
    if "error" in frame and len(frame) and frame["error"].notna().all():
        raise ValueError(
            f"all {len(frame)} points failed, so there is nothing to summarize. The first one: "
            f"{frame['error'].iloc[0]}"
        )
    if values is not None:
        names = [values] if isinstance(values, str) else list(values)
    elif not (names := results_of(frame, keys)):
        raise ValueError(f"no column has numbers to summarize: {', '.join(frame.columns)}")
    for name in (*keys, *names, "seed"):
        if name not in frame.columns:
            raise ValueError(unknown("column", name, frame.columns))
    for name in keys:
        if name in taken:
            raise ValueError(f"{as_given(name)} is a column of the result; rename it in the frame")
    return names


def results_of(frame: "DataFrame", keys: Sequence[str]) -> list[str]:
    """Return the numeric columns, without parameters (`keys`) and columns of every sweep."""
    from pandas.api.types import is_numeric_dtype

    swept = frame.attrs.get("parameters", ())
    names = [name for name in frame.columns if name not in (*keys, *RESERVED, *swept)]
    return [str(name) for name in names if is_numeric_dtype(frame[name])]


def is_event(column: Any) -> bool:
    """Tell whether a result is an event (true or false, 0 or 1); all 1 may be a count."""
    from pandas.api.types import is_bool_dtype

    return is_bool_dtype(column) or (set(column.dropna()) in ({0}, {0, 1}))


def _is_share(column: Any) -> bool:
    return bool(column.between(0, 1).all()) and set(column) != {1}


def _facts(
    group: "DataFrame", name: str, unit: Unit, confidence: float, *, is_event: bool
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
        **{column: known[name].quantile(share) for column, share in QUANTILES.items()},
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
    """Return the confidence interval of the mean, and the number of its independent units.

    With fewer than two units, the interval is NaN.
    """
    import numpy as np

    sums, counts = units
    if len(sums) < 2:
        return float("nan"), float("nan"), float(len(sums))
    if is_event:
        worth = worth_of(units)
        return *wilson(float(sums.sum() / counts.sum()), worth, confidence), worth
    from scipy.stats import bootstrap

    # The same random numbers each time, so that groups with the same seeds are resampled alike.
    draw = np.random.Generator(np.random.PCG64(list(Rng(0).secret("bootstrap"))))
    low, high = bootstrap(
        units,
        lambda sums, counts, axis: sums.sum(axis) / counts.sum(axis),
        n_resamples=DRAWS,
        batch=min(_CHUNK, max(1, _MOST_DRAWN // len(sums))),
        paired=True,
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=draw,
    ).confidence_interval
    return float(low), float(high), float(len(sums))


def worth_of(units: Counted) -> float:
    """Return the number of independent rows that a share of events is worth, by its variance over
    the units."""
    sums, counts = units
    rows = float(counts.sum())
    share = sums.sum() / rows
    spread, inside = ((sums - share * counts) ** 2).sum() / rows**2, share * (1 - share)
    if not inside:  # all rows are equal: count each unit as one row
        return float(len(sums))
    return float(min(rows, inside / spread)) if spread else rows


def wilson(share: float, of: float, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a share of `of` independent rows.

    `of` need not be whole, as that of scipy must be.
    """
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    middle = (of * share + z2 / 2) / (of + z2)
    half = (z2 * (of * share * (1 - share) + z2 / 4)) ** 0.5 / (of + z2)
    return max(0.0, middle - half), min(1.0, middle + half)


def student(share: float, freedom: int) -> float:
    """Return the quantile of Student's t."""
    from scipy.special import stdtrit  # scipy.stats takes twice as long to import

    return float(stdtrit(freedom, share))


# --- enough seeds -----------------------------------------------------------------------

_AT_LEAST_MORE = 5
"""Least number of seeds to add: each look at the results is a chance to stop too early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Play seeds until the interval of each mean is narrow enough: `sweep(..., until=Until(...))`.

    relative
        The wanted half width of the interval, as a share of the mean: 0.05 is ± 5 %.
    absolute
        The wanted half width in the result's unit. With both, either is enough: a share near 0
        never has an interval that is narrow relative to itself.
    of
        The result, or results, with this width; by default every number.
    least
        The least number of seeds of each cell.
    confidence
        Of the interval, which is that of `summarize` with the unit "seed".

    Cells stop independently, with different numbers of seeds, which `summarize` shows. A
    cell gets as many more seeds as its present width demands, at most as many as it has, and at
    least five. So the seeds depend only on results, not on workers or order.

    Stopping at a narrow interval favours intervals that are too narrow by chance. The guide's page
    on experiments says how much less they cover.
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
        """Return the wanted width: "± 5 % of waited_s"."""
        wanted = [f"± {100 * self.relative:g} %"] if self.relative else []
        wanted += [f"± {self.absolute:g}"] if self.absolute else []
        of = [self.of] if isinstance(self.of, str) else self.of
        return " or ".join(wanted) + (f" of {' and '.join(of)}" if of else "")


def seeds_wanted(
    until: Until, frame: "DataFrame", parameters: Sequence[str]
) -> Mapping[tuple[Any, ...], int]:
    """Return the number of seeds wanted, by the labels of each cell that needs more.

    A cell without a result gets no more seeds: its points fail, or return nothing.
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


# --- one long run --------------------------------------------------------------------------

BATCHES = 20
_MSER = 5  # values per mean in the search for the end of the warm-up: MSER-5
_OWN = ("dropped", "lag1", "correlated")
STEADY_COLUMNS = (*OF_SUMMARIES, *_OWN)
_DOUBTED = 1.645
"""Standard errors of the autocorrelation above which batches are called correlated (5 %)."""


def steady(
    frame: "DataFrame",
    values: str | Sequence[str] | None = None,
    *,
    by: str | Sequence[str] = (),
    warmup_s: float | None = None,
    time: str = "t_s",
    confidence: float = 0.95,
) -> "DataFrame":
    """Return the mean of each result in the steady state of a long run, with its interval.

    Values of one run are no independent sample, as each order waits for the orders before; means of
    long batches nearly are. `frame` has a row for each observation, such as `run.orders`, and is
    sorted by the column `time` if present. A sweep whose experiment returns such frames will do,
    too: then `by` are the parameters of the sweep, and each seed is a run. `values` are the
    columns, by default every number. The warm-up of each run is left out: `warmup_s` is its length
    in seconds of `time`; without it, MSER-5 finds it.

    The table has a row for each group and result, with the columns of `summarize`, so that
    `plots.bands` draws it: `mean`, `low` and `high` are of the steady state, `unit` is "batch", and
    `independent` the number of batches of all runs; `seeds` counts runs, 1 without a column `seed`.
    It also has

    | column | meaning |
    | --- | --- |
    | dropped | the number of rows left out as warm-up |
    | lag1 | the autocorrelation of one batch mean with the next |
    | correlated | whether `lag1` is above chance: the run is too short, the interval too narrow |

    The interval is Student's: with the means y of n batches of equal size, s their standard
    deviation and r = `lag1`, mean(y) ± t s/√n √((1 + r)/(1 - r)), the last factor only if r is
    above 0, with t of n - 1 degrees of freedom. Rows that fill no batch are left out after the
    warm-up. `correlated` is `lag1` above 1.645/√n - 1/n. MSER-5 (White 1997,
    *Simulation* 69, 323-334) takes means z of five values, m of them, and leaves out the first d
    for which Σ(z - mean)²/(m - d)², over those that stay, is least, d at most m/2; a run of which
    half is left out is too short. Of fewer rows than batches, `low` and `high` are NaN.

    Missing values are left out, such as the waiting of an order that the run's end cut off: end
    the run long after the last arrival, or long before the studied process ends.

    Raises `ValueError` for a column that does not exist, and for a warm-up below 0.

    >>> from x402sim import World
    >>> from x402sim.experiments import steady
    >>> from x402sim.population import Buy, Poisson
    >>> async def hour(world):
    ...     await world.population(200, arrivals=Poisson(per_s=0.1), behaviour=Buy())
    >>> table = steady(World(seed=1, block_time_s=5).play(hour).orders, "waiting_s")
    >>> table[["mean", "low", "high", "independent"]].round(1).values.tolist()
    [[2.5, 2.3, 2.8, 20.0]]
    """
    need_extra(("pandas", "scipy"), "summaries", "report")
    import pandas as pd

    if warmup_s is not None and not warmup_s >= 0:
        raise ValueError(f"warmup_s: seconds from 0 on are needed, not {warmup_s}")
    is_timed = time in frame.columns
    if warmup_s is not None and not is_timed:
        raise ValueError(f"warmup_s: {unknown('column', time, frame.columns)}; give `time`")
    if "seed" not in frame.columns:
        frame = frame.assign(seed=0)
    keys = [by] if isinstance(by, str) else list(by)
    names = checked_results(frame, keys, values, confidence, STEADY_COLUMNS)
    rows = []
    groups = frame.groupby(keys, sort=False, dropna=False) if keys else [((), frame)]
    for given, group in groups:
        failed = int(group["error"].notna().sum()) if "error" in group else 0
        for name in names:
            if name == time and values is None:
                continue
            runs = []
            for _, run in group.groupby("seed", sort=False):
                ordered = run.sort_values(time, kind="stable") if is_timed else run
                known = ordered[ordered[name].notna()]
                numbers = known[name].to_numpy(dtype="float64")
                is_given = warmup_s is not None
                begin = int((known[time] < warmup_s).sum()) if is_given else mser(numbers)
                runs.append((numbers, begin))
            facts = facts_of_runs(runs, BATCHES, confidence)
            head = dict(zip(keys, given, strict=True)) | {"result": name, "failed": failed}
            rows.append(head | facts)
    found = pd.DataFrame(rows, columns=[*keys, *STEADY_COLUMNS])
    found.attrs |= {"confidence": confidence, "unit": "batch", "units": units_of(frame, names)}
    return found


def mser(numbers: Any) -> int:
    """Return how many of the first values are warm-up, by MSER-5."""
    import numpy as np

    count = len(numbers) // _MSER
    if count < 2:
        return 0
    means = numbers[: count * _MSER].reshape(count, _MSER).mean(axis=1)
    means = means - means.mean()  # else the difference of squares loses digits
    stay = np.arange(count, 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    errors = (squares - sums**2 / stay) / stay.astype("float64") ** 2
    return _MSER * int(np.argmin(errors[: count // 2 + 1]))


def facts_of_runs(
    runs: Sequence[tuple[Any, int]], batches: int, confidence: float
) -> dict[str, Any]:
    """Return the facts of a row of `steady`; a run is its values, and the index at which its
    steady state begins."""
    import numpy as np

    kept = [numbers[begin:] for numbers, begin in runs]
    every = np.concatenate(kept) if kept else np.array([])
    nan = float("nan")
    facts: dict[str, Any] = {
        "seeds": len(runs),
        "rows": len(every),
        "mean": float(every.mean()) if len(every) else nan,
        "low": nan,
        "high": nan,
        "std": float(every.std(ddof=1)) if len(every) > 1 else nan,
        "unit": "batch",
        "independent": 0,
        "dropped": sum(begin for _, begin in runs),
        "lag1": nan,
        "correlated": False,
    }
    if not kept or min(map(len, kept)) < batches:
        return facts
    # equal batches; the first values, too few for a batch, are left out
    equal = (each[len(each) % batches :].reshape(batches, -1) for each in kept)
    means = np.array([each.mean(axis=1) for each in equal])
    count, middle = means.size, float(means.mean())
    apart = means - middle
    spread = float((apart**2).sum())
    lag1 = float((apart[:, 1:] * apart[:, :-1]).sum()) / spread if spread else nan
    error = float(means.std(ddof=1)) / math.sqrt(count)
    if 0 < lag1 < 1:  # correlated batches say less than independent ones
        error *= math.sqrt((1 + lag1) / (1 - lag1))
    half = student((1 + confidence) / 2, count - 1) * error
    return facts | {
        "mean": middle,
        "low": middle - half,
        "high": middle + half,
        "independent": count,
        "lag1": lag1,
        "correlated": lag1 > _DOUBTED / math.sqrt(count) - 1 / count,
    }
