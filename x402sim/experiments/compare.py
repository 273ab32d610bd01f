"""Compares values of a parameter, seed by seed, as common random numbers allow.

Worlds with the same seed draw the same random numbers, whatever the parameter. So most of the
variation between seeds cancels in the difference of two results with the same seed.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from x402sim.experiments.grid import labels_key
from x402sim.experiments.summary import (
    Counted,
    Unit,
    checked_results,
    counted,
    is_event,
    student,
    units_of,
    wilson,
    worth_of,
)
from x402sim.report import need_extra
from x402sim.text.words import as_given, unknown

if TYPE_CHECKING:
    from pandas import DataFrame

EACH_OTHER: Any = ...
"""The default of `against`: compare each value with all values before it."""
_SEED: Unit = "seed"
_NUMBERS = ("difference", "low", "high", "std", "correlation")
_COLUMNS = ("against", "result", "seeds", "unpaired", *_NUMBERS)


def compare(
    frame: "DataFrame",
    *,
    of: str | Sequence[str],
    against: Any = EACH_OTHER,
    by: str | Sequence[str] = (),
    values: str | Sequence[str] | None = None,
    confidence: float = 0.95,
) -> "DataFrame":
    """Return how results differ between the values of a parameter and one of them, in pairs.

    `of` is the parameter, and `against` the value to compare with; without `against`, each value is
    compared with all values before it in the frame. With several parameters, a value is a tuple, so
    that any two cells can be compared: `compare(table, of=["policy", "lost"], against=("forget",
    0.3))`. `by` are further parameters: comparisons are made within each combination of them.
    `values` are the results, by default every number that is not a parameter. A pair is two points
    with the same seed: the sweep must have played all cells with the same seeds, as by default. The
    frame has a row for each value and result:

    | column | meaning |
    | --- | --- |
    | (those in `by`, and `of`) | the parameters, and the value that is compared |
    | against | the value it is compared with; of several parameters, a tuple |
    | result | the name of the result |
    | seeds, unpaired | how many seeds are in both, and how many in one of them only |
    | difference, low, high | the mean difference and its confidence interval |
    | std | the standard deviation of the differences over the seeds |
    | correlation | of the pairs: the closer to 1, the more common random numbers have helped |

    The interval is Student's t over the pairs. For a result that is true or false, or 0 and 1,
    Newcombe's interval for paired shares, which has a width even if no pair differs. The guide's
    page on experiments has the formulas. Each interval is for one comparison: among 20 comparisons
    without a difference, expect one interval that misses 0. For n intervals that hold together in
    95 % of studies, use `confidence=1 - 0.05 / n` (Bonferroni).

    Raises `ValueError` for a column or a value that does not exist, and if no seed is in both.
    """
    need_extra(("pandas", "scipy"), "summaries", "report")
    import pandas as pd

    keys, parts = ([each] if isinstance(each, str) else list(each) for each in (by, of))
    names = checked_results(frame, [*keys, *parts], values, confidence, _COLUMNS)
    if not parts:
        raise ValueError("of: the parameter, or those, whose values are compared, is needed")
    _require_value(frame, parts, against)
    events = {name: is_event(frame[name]) for name in names}
    rows = []
    for given, value, base, first, second in _pairs(frame, keys, parts, against):
        head = dict(zip(keys, given, strict=True)) | dict(zip(parts, value, strict=True))
        head["against"] = base if len(parts) > 1 else base[0]
        for name in names:
            pair = _paired(first, second, name)
            facts = _facts(*pair, confidence, is_event=events[name])
            rows.append(head | {"result": name} | facts)
    found = pd.DataFrame(rows, columns=[*keys, *parts, *_COLUMNS])
    found.attrs |= {"confidence": confidence, "units": units_of(frame, names)}
    return found


def _require_value(frame: "DataFrame", parts: Sequence[str], against: Any) -> None:
    """Raise `ValueError` unless some rows have the value `against`."""
    if against is EACH_OTHER:
        return
    wanted = _values(parts, against)
    found = list(frame[[*parts]].drop_duplicates().itertuples(index=False, name=None))
    if labels_key(wanted) not in map(labels_key, found):
        shown = [each if len(parts) > 1 else each[0] for each in found]
        name = " and ".join(parts)
        raise ValueError(f"against: {unknown(name, against, map(str, shown))}")


def _values(parts: Sequence[str], against: Any) -> tuple[Any, ...]:
    """Return `against` as a tuple, a value for each parameter; raises `ValueError`."""
    if len(parts) == 1 and not isinstance(against, tuple):
        return (against,)
    if not isinstance(against, tuple | list) or len(against) != len(parts):
        raise ValueError(
            f"against: a tuple with a value of {', '.join(parts)} is needed, not "
            f"{as_given(against)}"
        )
    return tuple(against)


def _pairs(
    frame: "DataFrame", keys: Sequence[str], parts: Sequence[str], against: Any
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], "DataFrame", "DataFrame"]]:
    """Yield the group, the value, the value to compare with, and the rows of both."""
    groups = frame.groupby(list(keys), sort=False, dropna=False) if keys else [((), frame)]
    for given, group in groups:
        cells = dict(iter(group.groupby(list(parts), sort=False, dropna=False)))
        if against is EACH_OTHER:
            for base, value in combinations(cells, 2):
                yield given, value, base, cells[value], cells[base]
            continue
        wanted = _values(parts, against)
        base = next((key for key in cells if labels_key(key) == labels_key(wanted)), None)
        for value, rows in cells.items():
            if value != base:
                yield given, value, wanted, rows, group[:0] if base is None else cells[base]


def _paired(first: "DataFrame", second: "DataFrame", name: str) -> tuple[Counted, Counted, int]:
    """Return the paired units of both, in the same order, and the number of unpaired ones."""
    both = [rows[["seed", name]].dropna().astype({name: "float64"}) for rows in (first, second)]
    seeds = [set(rows["seed"]) for rows in both]
    common = seeds[0] & seeds[1]
    if not common and seeds[0] and seeds[1]:
        raise ValueError(
            "no seed was played with both values, so there are no pairs: sweep with "
            "common_random_numbers=True, as by default"
        )
    kept = [rows[rows["seed"].isin(common)] for rows in both]
    one, other = (counted(rows["seed"].to_numpy(), rows[name].to_numpy(), _SEED) for rows in kept)
    return one, other, len(seeds[0] ^ seeds[1])


def _facts(
    one: Counted, other: Counted, unpaired: int, confidence: float, *, is_event: bool
) -> dict[str, Any]:
    import numpy as np

    nan, seeds = float("nan"), len(one.sums)
    facts = dict.fromkeys(_NUMBERS, nan) | {"seeds": seeds, "unpaired": unpaired}
    if not seeds:
        return facts
    first, second = one.sums / one.counts, other.sums / other.counts
    apart = first - second
    facts["difference"] = float(apart.mean())
    if is_event:
        facts["difference"] = _share(one) - _share(other)
    if seeds < 2:
        return facts
    facts["std"] = float(apart.std(ddof=1))
    spreads = first.std(), second.std()
    if spreads[0] > 0 and spreads[1] > 0:
        facts["correlation"] = float(np.corrcoef(first, second)[0, 1])
    if is_event:
        facts["low"], facts["high"] = _of_shares(one, other, confidence)
    else:
        half = student((1 + confidence) / 2, seeds - 1) * facts["std"] / math.sqrt(seeds)
        facts |= {"low": facts["difference"] - half, "high": facts["difference"] + half}
    return facts


def _share(units: Counted) -> float:
    return float(units.sums.sum() / units.counts.sum())


def _of_shares(one: Counted, other: Counted, confidence: float) -> tuple[float, float]:
    p, q = _share(one), _share(other)
    a, p_high = wilson(p, worth_of(one), confidence)
    b, q_high = wilson(q, worth_of(other), confidence)
    first, second = one.sums / one.counts, other.sums / other.counts
    together = float(((first - first.mean()) * (second - second.mean())).mean())
    if together > 0:
        together = max(0.0, together - 1 / (2 * len(first)))
    spread = float(first.std() * second.std())
    r = together / spread if spread else 0.0

    def reach(x: float, y: float) -> float:
        return math.sqrt(max(0.0, x * x - 2 * r * x * y + y * y))

    return max(-1.0, p - q - reach(p - a, q_high - q)), min(1.0, p - q + reach(p_high - p, q - b))
