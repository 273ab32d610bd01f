"""The types of the columns of frames, and the columns of events that frames are made of.

A kind turns the values of one column (None: missing; or an Arrow array) into an array of one dtype,
which an empty column has too. A column `x_base` is an amount in base units, exact; a frame has its
twin `x`, in whole tokens as floats, beside it.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, cycle, repeat
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim.events.base import BaseEvent, name_of
from x402sim.journal import Journal
from x402sim.journal.columns import Columns, Texts, texts_of
from x402sim.protocol.money import MAX_STORED
from x402sim.report.reading import Reading

Kind = Callable[[Any], Any]
_EXACT = 1 << 53
"""Integers up to this one are floats."""


class Table(dict[str, Any]):
    """The columns of all events of a kind, by name; each is joined when it is first asked for.

    They are arrays of numpy: of integers, of the numbers of texts, or of objects.
    """

    def __init__(self, kind: type[BaseEvent], texts: Texts, parts: list[Columns]) -> None:
        super().__init__()
        self._parts, self.texts = parts, texts
        self._of_text = texts_of(name_of(kind))

    def __missing__(self, name: str) -> Any:
        parts = [part[name] for part in self._parts]
        if all(isinstance(part, array) for part in parts):
            joined = np.concatenate([np.empty(0, "int64"), *map(np.asarray, parts)])
        else:  # what is no number, or a number beyond 63 bits
            joined = _objects(list(chain.from_iterable(parts)))
        self[name] = joined
        return joined

    def those(self, name: str, is_wanted: Callable[[Any], bool]) -> Any:
        """Return of each event whether a text of it is wanted; each text is judged once."""
        texts = self.texts.all
        judged = np.zeros(len(texts), "bool")
        numbers = pd.unique(self[name])
        judged[numbers] = [is_wanted(texts[number]) for number in numbers.tolist()]
        return judged[self[name]]

    def told(self, name: str, tell: Callable[[Any], Any]) -> list[Any]:
        """Return what a function tells of a column's texts, each of which it is told once."""
        numbers = self[name].tolist()
        return list(map({each: tell(self.texts.all[each]) for each in set(numbers)}.get, numbers))

    def arrow(self, name: str) -> pa.Array:
        """Return a column as an Arrow array."""
        if name in self._of_text:
            return words(self[name], self.texts)
        return pa.array(self[name])


def tables(journal: Journal, *kinds: type[BaseEvent]) -> list[Table]:
    """Return the columns of all events of each kind.

    Their texts have the same numbers; those of another call may have others.
    """
    texts, parts = journal.columns(*kinds)
    return [Table(kind, texts, each) for kind, each in zip(kinds, parts, strict=True)]


def words(numbers: Any, texts: Texts) -> pa.Array:
    """Return the texts with these numbers as an Arrow array that has each text only once."""
    if texts.made is None or len(texts.made) < len(texts.all):
        texts.made = pa.array(texts.all, pa.string())
    indices = pa.array(numbers, pa.int32(), mask=numbers == 0)
    return pa.DictionaryArray.from_arrays(indices, texts.made)


def since(at_ms: Any, start_ms: Any) -> Any:
    """Return the seconds from one moment to another, both in milliseconds, of Arrow arrays."""
    return pc.divide(pc.subtract(at_ms, start_ms).cast(pa.float64()), 1000.0)


def seconds(values: Any) -> Any:
    """Return float64; NaN is missing."""
    return _arrow(values, pa.float64()).to_numpy(zero_copy_only=False).copy()


def moment(values: Any) -> Any:
    """Return UTC timestamps with milliseconds, from Unix milliseconds."""
    made = _arrow(values, pa.int64()).to_numpy().astype("datetime64[ms]")
    return pd.Series(made).dt.tz_localize("UTC")


def integer(values: Any) -> Any:
    """Return Int64."""
    made = _arrow(values, pa.int64())
    is_missing = made.is_null().to_numpy(zero_copy_only=False)
    return pd.arrays.IntegerArray(made.fill_null(0).to_numpy().copy(), is_missing.copy())


def text(values: Any) -> Any:
    """Return strings."""
    return pd.array(_arrow(values, pa.large_string()), dtype="string")


def flag(values: Sequence[bool]) -> Any:
    """Return bool."""
    return np.array(values, dtype="bool")


def category(values: Any) -> Any:
    """Return a categorical, its categories in the order of their first appearance."""
    if isinstance(values, pa.DictionaryArray):
        made = values.indices.dictionary_encode()
        names = values.dictionary.take(made.dictionary)
    else:
        made = pa.array(values, pa.string()).dictionary_encode()
        names = made.dictionary
    return _categorical(made.indices, names.to_pylist())


def one_of(*names: str) -> Kind:
    """Return the kind of a categorical with just these categories."""
    known = pa.array(names, pa.string())
    return lambda values: _categorical(
        pc.index_in(_arrow(values, pa.string()), value_set=known), names
    )


def amount(values: Any) -> Any:
    """Return base units as Int64 if even all of them together fit into 63 bits.

    A token's amounts go up to 2^256. Where they do not fit, the column holds Python
    integers (dtype object), so that neither a value nor a sum is ever wrong.
    """
    fits = sum(map(abs, filter(None, values))) <= MAX_STORED
    return integer(values) if fits else _objects(values)


_DTYPES: dict[str, Kind] = {
    "Int64": integer, "float64": seconds, "UTC": moment, "string": text, "category": category,
    "bool": flag,
}  # fmt: skip
_ROW = re.compile(
    rf"^ *\| (?!column)([a-z_, ]+) \|(?: ((?:{'|'.join(_DTYPES)}|, )+) \|)?", re.MULTILINE
)
"""A row of the table in a frame's docstring: names, and their dtypes."""


def kinds(table: Callable[[Journal], pd.DataFrame], **names: Sequence[str]) -> dict[str, Kind]:
    """Return the columns of a frame, as the table in its function's docstring tells them.

    Where that has no dtypes, all but the moments are Int64. `names` are all that a category can be.
    """
    found: dict[str, Kind] = {}
    for row, dtypes in _ROW.findall(table.__doc__ or ""):
        told = dtypes or ("float64, UTC" if row == "t_s, at" else "Int64")
        for name, dtype in zip(row.split(", "), cycle(told.split(", ")), strict=False):
            if f"{name}_base" not in found:  # the twin of an amount
                found[name] = amount if name.endswith("_base") else _DTYPES[dtype]
    return found | {name: one_of(*known) for name, known in names.items()}


def of_columns(
    columns: Mapping[str, Kind],
    given: Mapping[str, Any],
    reading: Reading,
    events: Table | None = None,
) -> pd.DataFrame:
    """Return the frame of these columns, given their values by name; `t_s` follows from `at`.

    What is not given are the fields of the same names of `events`, and when these happened.
    """
    made = {}
    if events is not None:
        given = {"at": events.arrow("at_ms"), **given}
    for name, kind in columns.items():
        if name == "t_s":
            values = since(_arrow(given["at"], pa.int64()), reading.start_ms)
        else:
            values = given[name] if name in given or events is None else events.arrow(name)
        made[name] = kind(values)
        if kind is amount:
            made[name.removesuffix("_base")] = _in_tokens(values, reading.decimals)
    return pd.DataFrame(made)


def of_rows(
    columns: Mapping[str, Kind], rows: Sequence[Sequence[Any]], reading: Reading
) -> pd.DataFrame:
    """Return the frame of rows, which have all columns but `t_s`."""
    names = [name for name in columns if name != "t_s"]
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    return of_columns(columns, dict(zip(names, values, strict=True)), reading)


def of_objects(
    columns: Mapping[str, Kind], found: Sequence[Any], reading: Reading, **own: Callable[[Any], Any]
) -> pd.DataFrame:
    """Return the frame of objects: a column is what `own` tells of each, or their attribute.

    Moments are attributes in `_ms`, and columns in `_s`.
    """

    def values(name: str) -> Any:
        if name == "at" or (name.endswith("_s") and name not in own):
            at_ms = map(attrgetter(f"{name.removesuffix('_s')}_ms"), found)
            moments = pa.array(at_ms, pa.int64(), size=len(found))
            return moments if name == "at" else since(moments, reading.start_ms)
        return list(map(own.get(name) or attrgetter(name), found))

    given = {name: values(name) for name in columns if name != "t_s"}
    return of_columns(columns, given, reading)


def in_turn(*parts: tuple[Callable[..., object], Iterable[Any]]) -> None:
    """Call each function with its rows, in the order of their first value, which it does not get.

    That is `seq`.
    """
    rows, called = list[Any](), list[Callable[..., object]]()
    for do, given in parts:
        rows += given
        called += repeat(do, len(rows) - len(called))
    seqs = np.fromiter(map(itemgetter(0), rows), "int64", len(rows))
    for place in seqs.argsort(kind="stable").tolist():
        called[place](*rows[place][1:])


def _arrow(values: Any, kind: Any) -> Any:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _categorical(codes: Any, names: Sequence[str]) -> Any:
    dtype = pd.CategoricalDtype(pd.Index(names, dtype="str"))
    return pd.Categorical.from_codes(codes.fill_null(-1).to_numpy(), dtype=dtype)


def _in_tokens(values: Sequence[int | None], decimals: int) -> Any:
    """Return whole tokens as float64: of each amount the nearest there is."""
    unit = 10**decimals
    if unit <= _EXACT and max(map(abs, filter(None, values)), default=0) <= _EXACT:
        return seconds(values) / unit
    return seconds([None if value is None else value / unit for value in values])


def _objects(values: Sequence[Any]) -> Any:
    column = np.empty(len(values), dtype="object")
    column[:] = values
    return column
