"""The columns of all events of a journal, of which frames are made."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim.events import KINDS, BaseEvent, TransactionMined, TransactionUndone, name_of
from x402sim.journal import Batch, Journal, Texts, texts_of
from x402sim.protocol.money import MAX_STORED
from x402sim.report.reading import once


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


def exact(values: Sequence[int]) -> Any:
    """Return integers as an array with which no sum is wrong: of int64, or of Python's integers."""
    is_small = sum(map(abs, values)) <= MAX_STORED // 4
    return np.array(values, "int64") if is_small else objects(values)


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


def objects(values: Sequence[Any]) -> Any:
    """Return an array of objects."""
    column = np.empty(len(values), dtype="object")
    column[:] = values
    return column
