"""The mean of a steady state from one long run: its warm-up left out, its interval by batch means.

The values of a run follow one another: each waits for those before it, so that they are no sample
of independent ones. Means of long batches of them nearly are.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from x402sim.experiments.compare import student
from x402sim.experiments.grid import OF_SUMMARIES
from x402sim.experiments.summary import checked_results, units_of
from x402sim.report import need_extra
from x402sim.text.words import unknown

if TYPE_CHECKING:
    from pandas import DataFrame

BATCHES = 20
_MSER = 5
"""How many values are one mean where the end of the warm-up is looked for: MSER-5."""
_OWN = ("dropped", "lag1", "correlated")
COLUMNS = (*OF_SUMMARIES, *_OWN)
_DOUBTED = 1.645
"""Standard errors of the autocorrelation above which batches are called correlated (5 %)."""


def steady(
    frame: "DataFrame",
    values: str | Sequence[str] | None = None,
    *,
    by: str | Sequence[str] = (),
    warmup: float | None = None,
    warmup_s: float | None = None,
    time: str = "t_s",
    batches: int = BATCHES,
    confidence: float = 0.95,
) -> "DataFrame":
    """Return the mean of each result in the steady state of a long run, with its interval.

    `frame` has a row for each observation, such as `run.orders`, in the order of the column `time`,
    or as they are if it has none. It may be the table of a sweep whose experiment returns such
    frames: then `by` are its parameters, and each seed is a run. `values` are the columns, by
    default every number. The first part of each run is left out: `warmup` is its share of the rows,
    `warmup_s` its length in seconds of `time`; without either, MSER-5 finds it.

    A row a group of `by` and result, with the columns of `summarize`, so that `plots.bands` draws
    it: `mean`, `low` and `high` are of the steady state, `unit` is "batch", and `independent` the
    number of batches of all runs; `seeds` counts runs, and is 1 for a frame without seeds. And

    | column | meaning |
    | --- | --- |
    | dropped | how many rows were left out as warm-up |
    | lag1 | the autocorrelation of one batch mean with the next |
    | correlated | whether that is more than chance: the interval is too narrow, the run too short |

    The interval is Student's: with the means y of n batches of equal size, s their standard
    deviation and r = `lag1`, mean(y) ± t s/√n √((1 + r)/(1 - r)), the last factor only if r is
    above 0, with t of n - 1 degrees of freedom. Rows that fill no batch are left out after the
    warm-up. `correlated` is `lag1` above 1.645/√n - 1/n. MSER-5 (White 1997,
    *Simulation* 69, 323-334) takes means z of five values, m of them, and leaves out the first d
    for which Σ(z - mean)²/(m - d)², over those that stay, is least, d at most m/2; a run of which
    half is left out is too short. Of fewer rows than batches, `low` and `high` are NaN.

    Missing values are left out, such as the waiting of an order that the run's end cut off: end
    the run long after the last arrival, or long before what you study ends.

    Raises `ValueError` for a column that does not exist, for both warm-ups or one that is not in
    its range, and for fewer than two batches.

    >>> from x402sim import World
    >>> from x402sim.experiments import steady
    >>> from x402sim.population import Buy, Poisson
    >>> async def hour(world):
    ...     await world.population(200, arrivals=Poisson(per_s=0.1), behaviour=Buy())
    >>> table = steady(World(seed=1, block_time_s=5).play(hour).orders, "waiting_s")
    >>> table[["mean", "low", "high", "independent"]].round(1).values.tolist()
    [[2.5, 2.3, 2.8, 20.0]]
    """
    need_extra(("pandas",), "summaries", "report")
    import pandas as pd

    _require(warmup, warmup_s, batches)
    is_timed = time in frame.columns
    if warmup_s is not None and not is_timed:
        raise ValueError(f"warmup_s: {unknown('column', time, frame.columns)}; give `time`")
    if "seed" not in frame.columns:
        frame = frame.assign(seed=0)
    keys = [by] if isinstance(by, str) else list(by)
    names = checked_results(frame, keys, values, confidence)
    for name in keys:
        if name in COLUMNS:
            raise ValueError(f"by: {name!r} is a column of the summary; rename it in the frame")
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
                if warmup_s is not None:
                    begin = int((known[time] < warmup_s).sum())
                else:
                    begin = mser(numbers) if warmup is None else round(warmup * len(numbers))
                runs.append((numbers, begin))
            facts = _facts(runs, batches, confidence)
            head = dict(zip(keys, given, strict=True)) | {"result": name, "failed": failed}
            rows.append(head | facts)
    found = pd.DataFrame(rows, columns=[*keys, *COLUMNS])
    found.attrs |= {"confidence": confidence, "unit": "batch", "units": units_of(frame, names)}
    return found


def _require(warmup: float | None, warmup_s: float | None, batches: int) -> None:
    if warmup is not None and warmup_s is not None:
        raise ValueError("warmup is a share of the rows, warmup_s seconds: give one of them")
    if warmup is not None and not 0 <= warmup < 1:
        raise ValueError(f"warmup: a share from 0 to below 1 is needed, not {warmup}; or warmup_s")
    if warmup_s is not None and not warmup_s >= 0:
        raise ValueError(f"warmup_s: seconds from 0 on are needed, not {warmup_s}")
    if batches < 2:
        raise ValueError(f"batches: two or more are needed for an interval, not {batches}")


def mser(numbers: Any) -> int:
    """Return how many of the first values are warm-up, by MSER-5."""
    import numpy as np

    count = len(numbers) // _MSER
    if count < 2:
        return 0
    means = numbers[: count * _MSER].reshape(count, _MSER).mean(axis=1)
    means = means - means.mean()  # so that squares lose no digits
    stay = np.arange(count, 0, -1)
    sums, squares = (np.cumsum(each[::-1])[::-1] for each in (means, means**2))
    errors = (squares - sums**2 / stay) / stay.astype("float64") ** 2
    return _MSER * int(np.argmin(errors[: count // 2 + 1]))


def _facts(runs: Sequence[tuple[Any, int]], batches: int, confidence: float) -> dict[str, Any]:
    """Return what a row says of the values of each run, and where their steady state begins."""
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
    # equal batches; the first values that fill none are left out
    equal = (each[len(each) % batches :].reshape(batches, -1) for each in kept)
    means = np.array([each.mean(axis=1) for each in equal])
    count, middle = means.size, float(means.mean())
    apart = means - middle
    spread = float((apart**2).sum())
    lag1 = float((apart[:, 1:] * apart[:, :-1]).sum()) / spread if spread else nan
    error = float(means.std(ddof=1)) / math.sqrt(count)
    if 0 < lag1 < 1:  # batches that follow one another tell less than independent ones
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
