"""Declares a frame by a table of its columns.

The table makes the frame, the docstring (shown by the guide and `help`) and the units in `attrs`. A
column `x_base` is an exact amount in base units; beside it stands `x`, the same amount in whole
tokens as floats.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim.journal import Journal
from x402sim.protocol.money import MAX_STORED
from x402sim.report.columns import Table, objects, since
from x402sim.report.reading import Reading
from x402sim.text.templates import markdown_table

_EXACT = 1 << 53  # floats represent every integer up to this limit exactly
BASE_UNITS, TOKENS = "base units", "tokens"
"""The units of the two columns of an amount."""


def _of_arrow(dtype: Any, arrow: pa.DataType, values: Any) -> Any:
    return dtype.__from_arrow__(_arrow(arrow, values))


def _in_numpy(arrow: pa.DataType, values: Any) -> Any:
    return _arrow(arrow, values).to_numpy(zero_copy_only=False, writable=True)


def _arrow(arrow: pa.DataType, values: Any) -> pa.Array:
    return values.cast(arrow) if isinstance(values, pa.Array) else pa.array(values, arrow)


def _category(values: Any) -> pd.Categorical:
    if isinstance(values, pa.DictionaryArray):
        made = values.indices.dictionary_encode()
        return _categorical(made.indices, values.dictionary.take(made.dictionary))
    made = pa.array(values, pa.string()).dictionary_encode()
    return _categorical(made.indices, made.dictionary)


def _categorical(indices: pa.Array, names: pa.Array) -> pd.Categorical:
    known = pd.Index(names.to_pylist(), dtype="str")  # pandas cannot infer it of none
    return pd.Categorical.from_codes(indices.fill_null(-1).to_numpy(), known, validate=False)


def _amount(values: list[int | None]) -> Any:
    """Return base units as Int64 if their sum fits into 63 bits; else as Python integers (object).

    A token's amounts go up to 2^256, and neither a value nor a sum may overflow.
    """
    is_small = _largest(values) * len(values) <= MAX_STORED  # then the exact sum is not needed
    if is_small or sum(map(abs, filter(None, values))) <= MAX_STORED:
        return _MAKE["Int64"](values)
    return objects(values)


def _listed(values: Any) -> list[int | None]:
    return values if isinstance(values, list) else list(values.tolist())


def _largest(values: list[int | None]) -> int:
    return max(map(abs, filter(None, values)), default=0)


def _in_tokens(values: list[int | None], decimals: int) -> Any:
    unit = 10**decimals
    if unit <= _EXACT and _largest(values) <= _EXACT:
        return _MAKE["float64"](values) / unit
    return _MAKE["float64"]([None if value is None else value / unit for value in values])


Dtype = Literal["Int64", "float64", "UTC", "string", "bool", "category"]
_MAKE: dict[Dtype, Callable[[Any], Any]] = {
    "Int64": partial(_of_arrow, pd.Int64Dtype(), pa.int64()),
    "float64": partial(_in_numpy, pa.float64()),
    "UTC": lambda values: _of_arrow(
        pd.DatetimeTZDtype("ms", "UTC"), pa.timestamp("ms", "UTC"), values
    ).copy(),  # Arrow's memory is read-only
    "string": partial(_of_arrow, pd.StringDtype(), pa.large_string()),
    "bool": partial(_in_numpy, pa.bool_()),
    "category": _category,
}
"""By dtype: makes a column of values (None: missing), with that dtype even if it is empty."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a frame.

    `among` lists all categories; without it, the categories are the values, by first appearance. A
    column that `may_lack` is left out if no values are given.
    """

    name: str
    dtype: Dtype
    meaning: str
    unit: str = ""
    among: tuple[str, ...] = ()
    may_lack: bool = False

    def of(self, values: Any) -> Any:
        """Return the column of these values (None: missing)."""
        if self.unit == BASE_UNITS:
            return _amount(_listed(values))
        if self.among:
            known, found = pa.array(self.among, pa.string()), _arrow(pa.string(), values)
            places = pc.index_in(found, value_set=known)
            if places.null_count > found.null_count:  # an unknown value would become NA
                others = set(found.unique().to_pylist()) - {None, *self.among}
                raise ValueError(f"{self.name}: {sorted(others)} are not among {self.among}")
            return _categorical(places, known)
        return _MAKE[self.dtype](values)


def moment(meaning: str) -> list[Column]:
    """Return the two columns of a moment: `t_s`, and `at` as UTC."""
    return [Column("t_s", "float64", meaning, "s"), Column("at", "UTC", meaning)]


def amount(name: str, meaning: str) -> list[Column]:
    """Return the two columns of an amount: exact in base units, and in tokens."""
    exact = Column(f"{name}_base", "Int64", meaning, BASE_UNITS)
    return [exact, Column(name, "float64", meaning, TOKENS)]


def alike(names: tuple[str, ...], dtype: Dtype, meaning: str) -> list[Column]:
    """Return columns with the same meaning, which share a row in the guide."""
    return [Column(name, dtype, meaning) for name in names]


@dataclass(frozen=True, slots=True)
class Form:
    """The declaration of a frame: a sentence `about`, the columns in order, and `more` text."""

    about: str
    columns: tuple[Column, ...]
    more: str = ""

    @property
    def text(self) -> str:
        """The declaration as Markdown; columns with the same meaning share a row."""
        rows = []
        for meaning, same in groupby(self.columns, attrgetter("meaning")):
            facts = [(each.name, each.dtype, each.unit) for each in same]
            cells = (dict.fromkeys(filter(None, cell)) for cell in zip(*facts, strict=True))
            rows.append((*map(", ".join, cells), meaning))
        table = markdown_table(("column", "dtype", "unit", "meaning"), rows)
        return "\n\n".join(filter(None, (self.about, table.strip(), self.more)))

    def of_columns(
        self, given: Mapping[str, Any], reading: Reading, events: Table | None = None
    ) -> pd.DataFrame:
        """Return a frame. Its columns are `given` by name, or else fields of `events`.

        `t_s` is computed from `at`, and amounts in tokens from those in base units.
        """
        known = dict(given)
        if events is not None:
            known = {"at": events.arrow("at_ms"), **given}
        made: dict[str, Any] = {}
        for column in self.columns:
            name = column.name
            if name in known:
                made[name] = column.of(known[name])
            elif name == "t_s":
                made[name] = column.of(since(_arrow(pa.int64(), known["at"]), reading.start_ms))
            elif f"{name}_base" in known:
                made[name] = _in_tokens(_listed(known[f"{name}_base"]), reading.decimals)
            elif not column.may_lack:
                made[name] = column.of(events.arrow(name) if events else known[name])
        frame = pd.DataFrame(made, copy=False)
        frame.attrs["units"] = {
            each.name: each.unit for each in self.columns if each.unit and each.name in made
        }
        return frame

    def of_objects(
        self,
        found: Sequence[Any],
        reading: Reading,
        given: Mapping[str, Any] | None = None,
        **own: Callable[[Any], Any],
    ) -> pd.DataFrame:
        """Return the frame of objects: a column is `given`, a function in `own`, or an attribute.

        A moment is an attribute that ends in `_ms`, and a column that ends in `_s`.
        """

        def values(column: Column) -> Any:
            name = column.name
            if name in own:
                return list(map(own[name], found))
            if name != "at" and column.unit != "s":
                return list(map(attrgetter(name), found))
            at_ms = pa.array(map(attrgetter(f"{name.removesuffix('_s')}_ms"), found), pa.int64())
            return at_ms if name == "at" else since(at_ms, reading.start_ms)

        known = dict(given or {})
        follow = {"t_s", *known, *(each.name for each in self.columns if each.unit == TOKENS)}
        known |= {each.name: values(each) for each in self.columns if each.name not in follow}
        return self.of_columns(known, reading)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Switch Python's cyclic collector off. A frame makes millions of objects without cycles, and
    the collector would walk through all of them again and again: a sixth of the time."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def frame(
    about: str, *columns: Column | list[Column], more: str = ""
) -> Callable[[Callable[[Journal, Form], pd.DataFrame]], Callable[[Journal], pd.DataFrame]]:
    """Declare the frame that a function makes of a journal; it gets the `Form` as an argument."""
    flat = chain.from_iterable([each] if isinstance(each, Column) else each for each in columns)
    form = Form(about, tuple(flat), more)

    def declare(make: Callable[[Journal, Form], pd.DataFrame]) -> Callable[[Journal], pd.DataFrame]:
        def table(journal: Journal) -> pd.DataFrame:
            with _no_collector():
                return make(journal, form)

        table.__name__ = table.__qualname__ = make.__name__
        table.__module__, table.__doc__ = make.__module__, form.text
        return table

    return declare
