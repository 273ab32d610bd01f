"""Summarizes a sweep: mean, quantiles and confidence intervals, by parameters."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from x402sim.experiments.grid import OF_SUMMARIES, RESERVED
from x402sim.report import need_extra
from x402sim.rng import Rng
from x402sim.text.suggest import unknown

if TYPE_CHECKING:
    from pandas import DataFrame

DRAWS = 2000
"""Resamples of the bootstrap."""
_CHUNK = 100


def summarize(
    frame: "DataFrame",
    *,
    by: str | Sequence[str],
    values: str | Sequence[str] | None = None,
    confidence: float = 0.95,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
) -> "DataFrame":
    """Return mean, confidence interval and quantiles of a sweep's results, by parameters.

    `by` is the parameter, or those, whose combinations are the groups (of an empty list: all is one
    group); `values` are the results, by default every number that is no parameter. One row a group
    and result:

    | column | meaning |
    | --- | --- |
    | (those in `by`) | the parameters of the group |
    | result | the name of the result |
    | seeds, rows | how many seeds and rows it is from; missing values are left out |
    | failed | how many points failed, which are left out |
    | mean, low, high | the mean and its confidence interval |
    | std | the standard deviation of the rows |
    | q05, q50, q95 | the quantiles of the rows |

    The interval is a bootstrap over seeds (2,000 resamples, percentiles): rows of one seed, which
    are not independent, are drawn together. With 10 seeds a 95 % interval covers the mean about
    90 times in 100, with 30 or more it covers 95, except for rare events. So a result that is true
    or false, or 0 and 1, has Wilson's interval: what none of n seeds has seen may still come in
    about 4 of n. Several rows of one seed count as fewer independent ones, and as one if all are
    equal. A share that the experiment returns for each seed has the bootstrap's interval: for
    Wilson's, return a row for each order.

    It needs two seeds: `low` and `high` of one seed are NaN, and so is `std` of one row. The same
    frame gives the same numbers.

    Raises `ValueError` for a column that does not exist, for one in `by` that is named as a column
    of the summary, and for a confidence outside 0 to 1.
    """
    need_extra(("pandas",), "summaries", "report")
    import pandas as pd

    if not 0 < confidence < 1:
        raise ValueError(f"confidence: a number between 0 and 1 is needed, not {confidence}")
    keys = [by] if isinstance(by, str) else list(by)
    _require_results(frame)
    names = _values(frame, keys, values)
    for name in (*keys, *names, "seed"):
        if name not in frame.columns:
            raise ValueError(unknown("column", name, frame.columns))
    columns = [*OF_SUMMARIES, *map(_named, quantiles)]
    for name in keys:
        if name in columns:
            raise ValueError(f"by: {name!r} is a column of the summary; rename it in the frame")
    rows, events = [], {name: _is_event(frame[name]) for name in names}
    groups = frame.groupby(keys, sort=False, dropna=False) if keys else [((), frame)]
    for given, group in groups:
        failed = int(group["error"].notna().sum()) if "error" in group else 0
        for name in names:
            facts = _facts(group, name, confidence, quantiles, is_event=events[name])
            rows.append(dict(zip(keys, given, strict=True)) | {"result": name} | facts)
            rows[-1]["failed"] = failed
    found = pd.DataFrame(rows, columns=[*keys, *columns])
    found.attrs["confidence"] = confidence  # `bands` says it
    return found


def _require_results(frame: "DataFrame") -> None:
    """Raise `ValueError` if every point failed, with the first error."""
    if "error" in frame and len(frame) and frame["error"].notna().all():
        raise ValueError(
            f"all {len(frame)} points failed, so there is nothing to summarize. The first one: "
            f"{frame['error'].iloc[0]}"
        )


def _values(frame: "DataFrame", keys: list[str], values: str | Sequence[str] | None) -> list[str]:
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


def _is_event(column: Any) -> bool:
    """Tell whether a result says if something happened; what is always 1 may be a count."""
    from pandas.api.types import is_bool_dtype

    return is_bool_dtype(column) or (set(column.dropna()) in ({0}, {0, 1}))


def _facts(
    group: "DataFrame", name: str, confidence: float, quantiles: Sequence[float], *, is_event: bool
) -> dict[str, Any]:
    known = group[["seed", name]].dropna()
    numbers = known[name].astype("float64")
    found = known["seed"].to_numpy(), numbers.to_numpy()
    low, high = _interval(*found, confidence, is_event=is_event)
    return {
        "seeds": known["seed"].nunique(),
        "rows": len(known),
        "mean": numbers.mean(),
        "low": low,
        "high": high,
        "std": numbers.std(),
        **{_named(each): numbers.quantile(each) for each in quantiles},
    }


def _interval(
    seeds: Any, numbers: Any, confidence: float, *, is_event: bool
) -> tuple[float, float]:
    """Return the confidence interval of the mean; NaN for fewer than two seeds."""
    import numpy as np

    _, owner = np.unique(seeds, return_inverse=True)
    sums, counts = np.bincount(owner, numbers), np.bincount(owner)
    if len(sums) < 2:
        return float("nan"), float("nan")
    if is_event:
        return _wilson(sums, counts, confidence)
    # Its own stream each time, so that groups with the same seeds are resampled alike.
    draw = np.random.Generator(np.random.PCG64(list(Rng(0).secret("bootstrap"))))
    means = []
    for _ in range(0, DRAWS, _CHUNK):
        picked = draw.integers(len(sums), size=(_CHUNK, len(sums)))
        means.append(sums[picked].sum(axis=1) / counts[picked].sum(axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def _wilson(sums: Any, counts: Any, confidence: float) -> tuple[float, float]:
    """Return Wilson's interval of a share, of as many rows as the spread over the seeds allows."""
    seeds, rows = len(sums), counts.sum()
    share = sums.sum() / rows
    spread, inside = ((sums - share * counts) ** 2).sum() / rows**2, share * (1 - share)
    worth = seeds if not inside else min(rows, inside / spread) if spread else rows
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    middle = (worth * share + z2 / 2) / (worth + z2)
    half = (z2 * (worth * inside + z2 / 4)) ** 0.5 / (worth + z2)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))
