"""Compares values of a parameter, seed by seed: what common random numbers are made for.

The worlds of one seed meet the same luck whatever the parameter, so most of what differs between
seeds cancels in the difference of two of their results.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from x402sim.experiments.summary import (
    Counted,
    Unit,
    checked_results,
    counted,
    is_event,
    wilson,
    worth_of,
)
from x402sim.report import need_extra
from x402sim.text.suggest import unknown

if TYPE_CHECKING:
    from pandas import DataFrame

_SEED: Unit = "seed"
_COLUMNS = ("against", "result", "seeds", "unpaired", "difference", "low", "high", "std")
_ALL = (*_COLUMNS, "correlation")


def compare(
    frame: "DataFrame",
    *,
    of: str,
    against: Any,
    by: str | Sequence[str] = (),
    values: str | Sequence[str] | None = None,
    confidence: float = 0.95,
) -> "DataFrame":
    """Return how results differ between the values of a parameter and one of them, in pairs.

    `of` is the parameter, `against` the value that the others are compared with; `by` are further
    parameters, in whose combinations each comparison is made; `values` are the results, by default
    every number that is no parameter. Pairs are the points of one seed, so the sweep must have
    played its cells with the same seeds, as it does by default. A row a value and result:

    | column | meaning |
    | --- | --- |
    | (those in `by`, and `of`) | the parameters, and the value that is compared |
    | against | the value it is compared with |
    | result | the name of the result |
    | seeds, unpaired | how many seeds are in both, and how many in one of them only |
    | difference, low, high | the mean difference and its confidence interval |
    | std | the standard deviation of the differences over the seeds |
    | correlation | of the pairs: the closer to 1, the more common random numbers have helped |

    The interval is that of Student's t over the pairs; of a result that is true or false, or 0 and
    1, Newcombe's for paired shares, which does not vanish where nothing differs. The guide's page
    on experiments has the formulas. Each interval is of one comparison: among 20 without a
    difference, expect one that misses 0.

    Raises `ValueError` for a column or a value that does not exist, and if no seed is in both.
    """
    need_extra(("pandas",), "summaries", "report")
    import pandas as pd

    keys = [by] if isinstance(by, str) else list(by)
    names = checked_results(frame, [*keys, of], values, confidence)
    for name in (*keys, of):
        if name in _ALL:
            raise ValueError(f"{name!r} is a column of the comparison; rename it in the frame")
    if not (frame[of] == against).any():
        raise ValueError(f"against: {unknown(of, str(against), map(str, frame[of].unique()))}")
    events = {name: is_event(frame[name]) for name in names}
    rows = []
    for given, value, first, second in _pairs(frame, keys, of, against):
        for name in names:
            pair = _paired(first, second, name)
            facts = _facts(*pair, confidence, is_event=events[name])
            head = dict(zip(keys, given, strict=True)) | {of: value, "against": against}
            rows.append(head | {"result": name} | facts)
    found = pd.DataFrame(rows, columns=[*keys, of, *_ALL])
    found.attrs["confidence"] = confidence
    return found


def _pairs(
    frame: "DataFrame", keys: Sequence[str], of: str, against: Any
) -> Iterator[tuple[tuple[Any, ...], Any, "DataFrame", "DataFrame"]]:
    """Yield the group, the value, and the rows with it and with the one it is compared with."""
    groups = frame.groupby(list(keys), sort=False, dropna=False) if keys else [((), frame)]
    for given, group in groups:
        base = group[group[of] == against]
        for value, rows in group.groupby(of, sort=False, dropna=False):
            if value != against:
                yield given, value, rows, base


def _paired(first: "DataFrame", second: "DataFrame", name: str) -> tuple[Counted, Counted, int]:
    """Return the units of both that have a partner, in one order, and how many have none."""
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
    facts = dict.fromkeys(_ALL[4:], nan) | {"seeds": seeds, "unpaired": unpaired}
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
    """Return Newcombe's interval of the difference of two paired shares."""
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


def student(share: float, freedom: int) -> float:
    """Return the quantile of Student's t above 1/2, to ten digits.

    By halving, of the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3-4).
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < 2 * share - 1:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        is_below = _within(middle, freedom) < 2 * share - 1
        low, high = (middle, high) if is_below else (low, middle)
    return (low + high) / 2


def _within(t: float, freedom: int) -> float:
    """Return the probability that Student's t is between -t and t."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (cosine, cosine) if freedom % 2 else (1.0, 1.0)
    for n in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine * cosine * (n - 1) / n
        total += term
    if freedom == 1:
        return 2 * angle / math.pi
    return 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
