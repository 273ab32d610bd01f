"""The types of the columns of frames.

A kind turns the values of one column (None: missing) into an array of one dtype, which
an empty column has too. A column `x_base` is an amount in base units, exact; `frame` puts its
twin `x`, in whole tokens as floats, beside it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from x402sim.protocol.money import MAX_STORED

Kind = Callable[[Sequence[Any]], Any]


def seconds(values: Sequence[float | None]) -> Any:
    """Return float64; NaN is missing."""
    return np.array([np.nan if value is None else value for value in values], dtype="float64")


def moment(values: Sequence[int]) -> Any:
    """Return UTC timestamps with milliseconds, from Unix milliseconds."""
    return pd.Series(np.array(values, dtype="datetime64[ms]")).dt.tz_localize("UTC")


def integer(values: Sequence[int | None]) -> Any:
    """Return Int64."""
    return pd.array(list(values), dtype="Int64")


def text(values: Sequence[str | None]) -> Any:
    """Return strings."""
    return pd.array(list(values), dtype="string")


def flag(values: Sequence[bool]) -> Any:
    """Return bool."""
    return np.array(values, dtype="bool")


def category(values: Sequence[str | None]) -> Any:
    """Return a categorical, its categories in the order of their first appearance."""
    return one_of(*dict.fromkeys(value for value in values if value is not None))(values)


def one_of(*names: str) -> Kind:
    """Return the kind of a categorical with just these categories."""
    dtype = pd.CategoricalDtype(pd.Index(names, dtype="str"))
    return lambda values: pd.Categorical(values, dtype=dtype)


def amount(values: Sequence[int | None]) -> Any:
    """Return base units as Int64 if even all of them together fit into 63 bits.

    A token's amounts go up to 2^256. Where they do not fit, the column holds Python
    integers (dtype object), so that neither a value nor a sum is ever wrong.
    """
    fits = sum(abs(value) for value in values if value is not None) <= MAX_STORED
    return pd.array(list(values), dtype="Int64") if fits else _objects(values)


def frame(
    columns: Mapping[str, Kind], rows: Iterable[Sequence[Any]], decimals: int
) -> pd.DataFrame:
    """Return the frame of these rows, which have a value for each column."""
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    made = {}
    for (name, kind), values in zip(columns.items(), by_column, strict=True):
        made[name] = kind(values)
        if kind is amount:
            made[name.removesuffix("_base")] = _in_tokens(values, decimals)
    return pd.DataFrame(made)


def _in_tokens(values: Sequence[int | None], decimals: int) -> Any:
    """Return whole tokens as float64: of each amount the nearest there is."""
    unit = 10**decimals
    return seconds([None if value is None else value / unit for value in values])


def _objects(values: Sequence[Any]) -> Any:
    column = np.empty(len(values), dtype="object")
    column[:] = values
    return column
