"""The types of the columns of frames, and the columns of events that frames are made of.

A kind turns the values of one column (None: missing) into an Arrow array of one type, which pandas
makes a column of one dtype of, also if it is empty. A column `x_base` is an amount in base units,
exact; a frame has its twin `x`, in whole tokens as floats, beside it.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, cycle, groupby, repeat
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim.events import KINDS, TransactionMined, TransactionUndone
from x402sim.events.base import BaseEvent, name_of
from x402sim.journal import Journal
from x402sim.journal.columns import Batch, Texts, texts_of
from x402sim.protocol.money import MAX_STORED
from x402sim.report.reading import Reading, once

Kind = Callable[[Any], Any]
_EXACT = 1 << 53
"""Integers up to this one are floats."""


class Table(dict[str, Any]):
    """The columns of all events of a kind, by name; each is joined when it is first asked for.

    They are arrays of numpy: of integers, of the numbers of texts, or of objects.
    """

    def __init__(self, kind: type[BaseEvent], texts: Texts, column: Callable[[str], Any]) -> None:
        super().__init__()
        self._kind, self.texts, self._column = kind, texts, column

    def __missing__(self, name: str) -> Any:
        column = self[name] = self._column(name)
        return column

    def where(self, wanted: Any) -> "Table":
        """Return the columns of those events that are wanted."""
        return Table(self._kind, self.texts, lambda name: self[name][wanted])

    def unless(self, name: str, *undone: "Table") -> "Table":
        """Return the columns of those events that no other, with the same `name`, undid since."""
        undone_at = np.full(len(self.texts.all), -1)  # the `seq`, by the number of a text
        for each in undone:
            undone_at[each[name]] = np.maximum(undone_at[each[name]], each["seq"])
        return self.where(self["seq"] > undone_at[self[name]])

    def all_of(self, *names: str) -> list[Any]:
        """Return several columns."""
        return [self[name] for name in names]

    def rows(self, *names: str) -> Iterator[Any]:
        """Yield several columns of each event."""
        return zip(*(each.tolist() for each in self.all_of(*names)), strict=True)

    def calls(self, do: Callable[..., object], *names: str) -> tuple[Any, ...]:
        """Return a part of `in_turn`: the function is called with these columns, texts as such."""
        text, columns = self.texts.all.__getitem__, [self[name].tolist() for name in names]
        told = (
            map(text, column) if self._has_texts(name) else column
            for name, column in zip(names, columns, strict=True)
        )
        return do, self["seq"], zip(*told, strict=True)

    def _has_texts(self, name: str) -> bool:
        return name in texts_of(name_of(self._kind))

    def told(self, name: str, tell: Callable[[Any], Any], dtype: str = "object") -> Any:
        """Return what a function tells of a column's texts, each of which it is told once."""
        texts, numbers = self.texts.all, pd.unique(self[name])
        told = np.zeros(len(texts), dtype)
        told[numbers] = [tell(texts[number]) for number in numbers.tolist()]
        return told[self[name]]

    def those(self, name: str, is_wanted: Callable[[Any], bool]) -> Any:
        """Return of each event whether a text of it is wanted."""
        return self.told(name, is_wanted, "bool")

    def arrow(self, name: str) -> pa.Array:
        """Return a column as an Arrow array."""
        if self._has_texts(name):
            return words(self[name], self.texts)
        return pa.array(self[name])


@once
def _tables(journal: Journal) -> dict[type[BaseEvent], Table]:
    texts, batches = journal.columns()
    return {kind: Table(kind, texts, partial(_joined, batches, name_of(kind))) for kind in KINDS}


def tables(journal: Journal, *kinds: type[BaseEvent]) -> list[Table]:
    """Return the columns of all events of each kind; their texts have the same numbers."""
    every = _tables(journal)
    return [every[kind] for kind in kinds]


def standing(journal: Journal) -> Table:
    """Return the columns of the transactions that stand in the chain at the end, as mined."""
    mined, undone = tables(journal, TransactionMined, TransactionUndone)
    return mined.unless("tx_hash", undone)


def words(numbers: Any, texts: Texts) -> pa.Array:
    """Return the texts with these numbers as an Arrow array that has each text only once."""
    if texts.made is None or len(texts.made) < len(texts.all):
        texts.made = pa.array(texts.all, pa.string())
    chosen = np.asarray(numbers, "int32")
    indices = pa.array(chosen, mask=chosen == 0)
    return pa.DictionaryArray.from_arrays(indices, texts.made)


def since(at_ms: Any, start_ms: Any) -> Any:
    """Return the seconds from one moment to another, both in milliseconds, of Arrow arrays."""
    return pc.divide(pc.subtract(at_ms, start_ms).cast(pa.float64()), 1000.0)


def category(values: Any) -> Any:
    """Return categories in the order of their first appearance."""
    if isinstance(values, pa.DictionaryArray):
        made = values.indices.dictionary_encode()
        names = values.dictionary.take(made.dictionary)
    else:
        made = pa.array(values, pa.string()).dictionary_encode()
        names = made.dictionary
    return pa.DictionaryArray.from_arrays(made.indices, names)


def one_of(*names: str) -> Kind:
    """Return the kind of just these categories."""
    known = pa.array(names, pa.string())
    return lambda values: pa.DictionaryArray.from_arrays(
        pc.index_in(_arrow(values, pa.string()), value_set=known), known
    )


def amount(values: Any) -> Any:
    """Return base units as int64 if even all of them together fit into 63 bits.

    A token's amounts go up to 2^256. Where they do not fit, the column holds Python
    integers (dtype object), so that neither a value nor a sum is ever wrong.
    """
    return _arrow(values, pa.int64()) if _fits(values) else objects(values)


def exact(values: Sequence[int]) -> Any:
    """Return integers as an array with which no sum is wrong: of int64, or of Python's integers."""
    return np.array(values, "int64") if _fits(values, MAX_STORED // 4) else objects(values)


_TYPES: dict[str, Any] = {
    "Int64": pa.int64(), "float64": pa.float64(), "UTC": pa.timestamp("ms", "UTC"),
    "string": pa.large_string(), "bool": pa.bool_(),
}  # fmt: skip
_EXTENSIONS = {pa.int64(): pd.Int64Dtype(), pa.large_string(): pd.StringDtype()}
_NO_NAMES = pd.Index([], dtype="str")
_ROW = re.compile(
    rf"^ *\| (?!column)([a-z_, ]+) \|(?: ((?:{'|'.join(_TYPES)}|category|, )+) \|)?", re.MULTILINE
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
                kind = category if dtype == "category" else partial(_arrow, kind=_TYPES[dtype])
                found[name] = amount if name.endswith("_base") else kind
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
    made: dict[str, Any] = {}
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
    huge = {name: values for name, values in made.items() if isinstance(values, np.ndarray)}
    table = pa.table({name: values for name, values in made.items() if name not in huge})
    frame = table.to_pandas(types_mapper=_EXTENSIONS.get)
    for name, values in huge.items():
        frame.insert(list(made).index(name), name, values)
    for name, values in made.items():  # of none, pandas would not know that they are texts
        if isinstance(values, pa.DictionaryArray) and not len(values.dictionary):
            frame[name] = frame[name].cat.set_categories(_NO_NAMES)
    return frame


def of_objects(
    columns: Mapping[str, Kind],
    found: Sequence[Any],
    reading: Reading,
    given: Mapping[str, Any] | None = None,
    **own: Callable[[Any], Any],
) -> pd.DataFrame:
    """Return the frame of objects: a column is `given`, what `own` tells of each, or an attribute.

    Moments are attributes in `_ms`, and columns in `_s`.
    """

    def values(name: str) -> Any:
        if name == "at" or (name.endswith("_s") and name not in own):
            at_ms = attributes(f"{name.removesuffix('_s')}_ms")(found)
            moments = pa.array(at_ms, pa.int64())
            return moments if name == "at" else since(moments, reading.start_ms)
        return list(map(own[name], found)) if name in own else attributes(name)(found)

    known = dict(given or {})
    known |= {name: values(name) for name in columns if name != "t_s" and name not in known}
    return of_columns(columns, known, reading)


@cache
def attributes(name: str) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that lists this attribute of objects, in half the time of `attrgetter`."""
    code = f"lambda found: [each.{name} for each in found]"
    listed: Callable[[Sequence[Any]], list[Any]] = eval(code)  # noqa: S307 - one of our names
    return listed


def in_turn(*parts: tuple[Callable[..., object], Any, Iterable[Any]]) -> None:
    """Call each function with its rows, those of all parts in the order of their `seq`."""
    rows, called = list[Any](), list[Callable[..., object]]()
    for do, _, given in parts:
        rows += given
        called += repeat(do, len(rows) - len(called))
    for place in np.concatenate([seqs for _, seqs, _ in parts]).argsort(kind="stable").tolist():
        called[place](*rows[place])


def in_rounds(*parts: tuple[Any, ...]) -> Any:
    """Call functions with the rows of many things at once: with the first of each, and so on.

    A part is a function, and arrays: the `seq` of each row, the number of the thing it is about,
    and values. The function gets numbers of things, each once, and the values of their rows. Return
    all things in the order of their first rows.
    """
    sizes = [len(part[1]) for part in parts]
    rows = pd.DataFrame({
        "seq": np.concatenate([part[1] for part in parts]),
        "about": np.concatenate([part[2] for part in parts]),
        "part": np.repeat(np.arange(len(parts)), sizes),
        "place": np.concatenate([*map(np.arange, sizes)]),
    }).sort_values("seq", kind="stable")  # fmt: skip
    turns = rows.groupby("about").cumcount().rename("turn")
    for (_, number), mine in rows.groupby([turns, "part"]):
        do, _, _, *values = parts[number]
        do(mine["about"].to_numpy(), *(value[mine["place"].to_numpy()] for value in values))
    return rows["about"].unique()


def _joined(batches: list[Batch], kind: str, name: str) -> Any:
    columns: list[Any] = [each.columns[kind][name] for each in batches if kind in each.columns]
    if all(isinstance(column, array) for column in columns):
        runs = groupby(columns, attrgetter("typecode"))
        joined = [np.frombuffer(b"".join(run), typecode) for typecode, run in runs]
        return np.concatenate([np.empty(0, "int64"), *joined])
    # what is no number, or a number beyond 63 bits
    return objects(list(chain.from_iterable(columns)))


def _arrow(values: Any, kind: Any) -> Any:
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _fits(values: Any, most: int = MAX_STORED) -> bool:
    """Tell whether all of these integers together are at most so many."""
    listed: Iterable[int | None] = values.tolist() if isinstance(values, np.ndarray) else values
    return sum(map(abs, filter(None, listed))) <= most


def _in_tokens(values: Any, decimals: int) -> Any:
    """Return whole tokens as floats: of each amount the nearest there is."""
    unit = 10**decimals
    if unit <= _EXACT and _fits(values, _EXACT):
        return pc.divide(_arrow(values, pa.float64()), float(unit))
    return pa.array([None if value is None else value / unit for value in values], pa.float64())


def objects(values: Sequence[Any]) -> Any:
    """Return an array of objects."""
    column = np.empty(len(values), dtype="object")
    column[:] = values
    return column
