"""The columns of all events of a journal, of which frames are made."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from inspect import signature
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim import events
from x402sim.journal import NUMBERS, ByName, Journal, Texts, Wanted, texts_of
from x402sim.protocol.money import MAX_STORED
from x402sim.report.reading import once, reading_of

Made = TypeVar("Made")
_MANY = 4


def parameters(do: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that a function needs."""
    every = signature(do).parameters
    return [name for name, each in every.items() if each.default is each.empty]


class Part(NamedTuple):
    """A function, and the rows that it is called with: each parameter is a column of its name."""

    do: Callable[..., object]
    seqs: Any
    """The `seq` of each row's event."""
    columns: Mapping[str, Any]


class Table(dict[str, Any]):
    """The columns of all events of a kind, by name; each is joined at its first use.

    They are arrays of numpy: of integers, of the numbers of texts, or of objects.
    """

    def __init__(
        self, kind: type[events.BaseEvent], texts: Texts, column: Callable[[str], Any]
    ) -> None:
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

    def rows(self, *names: str) -> Iterator[Any]:
        """Yield several columns of each event."""
        return zip(*(self[name].tolist() for name in names), strict=True)

    def listed(self, name: str) -> list[Any]:
        """Return a column as a list, with the texts themselves."""
        column: list[Any] = self[name].tolist()
        return list(map(self.texts.all.__getitem__, column)) if self._has_texts(name) else column

    def calls(self, do: Callable[..., object], *, texts: bool = True) -> Part:
        """Return a part of `in_turn`; without `texts`, these are numbers."""
        column = self.listed if texts else lambda name: self[name].tolist()
        return Part(do, self["seq"], {name: column(name) for name in parameters(do)})

    def rounds(self, do: Callable[..., object], **given: Any) -> Part:
        """Return a part of `in_rounds`: about payment ids, with some columns `given`."""
        given.setdefault("of", self["payment_id"])
        columns = {name: given[name] if name in given else self[name] for name in parameters(do)}
        return Part(do, self["seq"], columns)

    def _has_texts(self, name: str) -> bool:
        return name in texts_of(events.name_of(self._kind))

    def mapped(self, name: str, to: Callable[[Any], Any], dtype: str = "object") -> Any:
        """Return a column's texts mapped by a function, which is called once for each text."""
        numbers = pd.unique(self[name])  # first of all: it may be read now, with texts of its own
        texts = self.texts.all
        mapped = np.zeros(len(texts), dtype)
        mapped[numbers] = [to(texts[number]) for number in numbers.tolist()]
        return mapped[self[name]]

    def those(self, name: str, is_wanted: Callable[[Any], bool]) -> Any:
        """Return of each event whether a text of it is wanted."""
        return self.mapped(name, is_wanted, "bool")

    def arrow(self, name: str) -> pa.Array:
        """Return a column as an Arrow array."""
        if self._has_texts(name):
            return words(self[name], self.texts)
        return pa.array(self[name])


UNREAD = (events.AnswerSent, events.PayerJoined)
"""Events that no table has: a third of those of a crowd, which would be read for nothing."""
_LATER: dict[type[events.BaseEvent], tuple[str, ...]] = {
    events.TransactionMined: (
        "at_ms", "actor", "block", "block_time_s", "sender", "call", "gas_price_wei",
        "revert_reason",
    ),
    events.Transfer: ("actor", "block", "to"),
    events.AuthorizationConsumed: ("seq", "at_ms", "actor"),
    events.PaymentSettled: ("at_ms", "actor", "payer", "amount_base", "resource"),
    events.PaymentIndexed: ("actor", "block"),
}  # fmt: skip
"""What the frames of orders and steps, which are mostly the first, do not need of the most frequent
events. None of these columns has an id: an array with a place for each id stays large enough."""
_NEVER = {(events.name_of(events.AnswerReceived), "to"), (events.name_of(events.NoAnswer), "to")}
"""What the request of the same exchange has, too."""
_COLUMNS = {
    (events.name_of(kind), field): field in _LATER.get(kind, ())
    for kind in events.KINDS
    if kind not in UNREAD
    for field in (*NUMBERS, *kind.__struct_fields__)
    if (events.name_of(kind), field) not in _NEVER
}
"""Every column of a table, and whether it is read later."""
_EXCHANGES = frozenset(map(events.name_of, get_args(events.ExchangeEvent)))
_OF_EXCHANGES = frozenset(each for each in _COLUMNS if each[0] in _EXCHANGES)
_FIRST, _REST = (
    frozenset(each for each, is_later in _COLUMNS.items() if is_later is wanted)
    for wanted in (False, True)
)


class _Read:
    """What is read of a journal: from a file `first` what the first frame needs, `without` the
    exchanges of some actors, and then the `rest`, which has none."""

    def __init__(
        self, journal: Journal, first: Wanted, rest: Wanted, without: frozenset[str] = frozenset()
    ) -> None:
        self._journal, self._later = journal, rest
        self.texts, self._batches = journal.columns(first, without=without)

    def column(self, kind: str, name: str) -> Any:
        """Return a whole column."""
        of_kind = [each[kind] for each in self._batches if kind in each]
        if all(name in each for each in of_kind):
            return _joined([each[name] for each in of_kind])
        size = sum(len(next(iter(each.values()))) for each in of_kind)  # the journal may have grown
        return _joined([each[kind][name] for each in self._rest if kind in each])[:size]

    @cached_property
    def _rest(self) -> list[ByName]:
        """All other columns."""
        return self._journal.columns(self._later, self.texts)[1]

    def tables(self) -> dict[type[events.BaseEvent], Table]:
        """Return a table for each kind."""
        return {
            kind: Table(kind, self.texts, partial(self.column, events.name_of(kind)))
            for kind in events.KINDS
            if kind not in UNREAD
        }


@once
def _tables(journal: Journal) -> dict[type[events.BaseEvent], Table]:
    services = reading_of(journal).joined
    return _Read(journal, _FIRST, _REST, services).tables()


@once
def _whole_tables(journal: Journal) -> dict[type[events.BaseEvent], Table]:
    if journal.file is None:
        return _tables(journal)  # it has all
    return _Read(journal, _OF_EXCHANGES, frozenset()).tables()


def tables(journal: Journal, *kinds: type[events.BaseEvent]) -> list[Table]:
    """Return the columns of all events of each kind; their texts have the same numbers.

    From a file, the exchanges that services began are left out, which are most of all.
    """
    every = _tables(journal)
    return [every[kind] for kind in kinds]


def exchange_tables(journal: Journal) -> list[Table]:
    """Return the columns of all requests, answers and losses, those of services included."""
    every = _whole_tables(journal)
    return [every[kind] for kind in (events.RequestSent, events.AnswerReceived, events.NoAnswer)]


def standing(journal: Journal) -> Table:
    """Return the columns of the transactions that stand in the chain at the end, as mined."""
    mined, undone = tables(journal, events.TransactionMined, events.TransactionUndone)
    return mined.unless("tx_hash", undone)


def words(numbers: Any, texts: Texts) -> pa.Array:
    """Return the texts with these numbers as an Arrow array that has each text only once."""
    chosen = np.asarray(numbers, "int32")
    if len(texts.all) > _MANY * len(chosen):  # all of them would take longer than those
        indices, known = pd.factorize(chosen)
        names = pa.array(map(texts.all.__getitem__, known.tolist()), pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=chosen == 0), names)
    if texts.made is None or len(texts.made) < len(texts.all):
        texts.made = pa.array(texts.all, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(chosen, mask=chosen == 0), texts.made)


def since(at_ms: Any, start_ms: Any) -> Any:
    """Return the seconds from one moment to another, both in milliseconds, of Arrow arrays."""
    return pc.divide(pc.subtract(at_ms, start_ms).cast(pa.float64()), 1000.0)


def exact(values: Sequence[int]) -> Any:
    """Return integers as an array with which no sum is wrong: of int64, or of Python's integers."""
    is_small = sum(map(abs, values)) <= MAX_STORED // 4
    return np.array(values, "int64") if is_small else objects(values)


def each_row(make: Callable[..., Made], columns: Mapping[str, Any]) -> list[Made]:
    """Return what a function makes of each row: its parameters are columns of these names."""
    return list(map(make, *(columns[name] for name in parameters(make))))


def in_turn(*parts: Part) -> None:
    """Call each function with its rows, those of all parts in the order of their `seq`."""
    rows, called = list[Any](), list[Callable[..., object]]()
    for do, _, columns in parts:
        rows += zip(*(columns[name] for name in parameters(do)), strict=True)
        called += repeat(do, len(rows) - len(called))
    for place in np.concatenate([part.seqs for part in parts]).argsort(kind="stable").tolist():
        called[place](*rows[place])


def in_rounds(*parts: Part) -> Any:
    """Call functions with the rows of many things at once: with the first of each, and so on.

    The column `of` has the number of the thing that each row is about. A function gets numbers of
    things, each once, and the values of their rows. Return all things in the order of their first
    rows.
    """
    sizes = [len(part.seqs) for part in parts]
    rows = pd.DataFrame({
        "seq": np.concatenate([part.seqs for part in parts]),
        "about": np.concatenate([part.columns["of"] for part in parts]),
        "part": np.repeat(np.arange(len(parts)), sizes),
        "place": np.concatenate([*map(np.arange, sizes)]),
    }).sort_values("seq", kind="stable")  # fmt: skip
    turns = rows.groupby("about").cumcount().rename("turn")
    for (_, number), mine in rows.groupby([turns, "part"]):
        do, _, columns = parts[number]
        do(**{name: column[mine["place"].to_numpy()] for name, column in columns.items()})
    return rows["about"].unique()


def _joined(columns: list[Any]) -> Any:
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
