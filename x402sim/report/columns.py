"""A journal as columns: a table for each kind of event, and all exchanges (requests, with the
answer or the loss). Frames are made from columns.

Columns are read all at once: a journal has millions of events, and Python objects would be slow.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from inspect import signature
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from x402sim import events
from x402sim.events import AnswerReceived, NoAnswer, RequestSent
from x402sim.journal import NUMBERS, ByName, Journal, Texts, Wanted, texts_of
from x402sim.protocol.money import MAX_STORED
from x402sim.protocol.routes import PAY, SESSIONS
from x402sim.report.reading import Reading, once_per_journal, reading_of

Made = TypeVar("Made")
_MANY = 4


def parameters(do: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters without a default."""
    every = signature(do).parameters
    return [name for name, each in every.items() if each.default is each.empty]


class Part(NamedTuple):
    """A function, and the rows to call it with: each parameter has the column of its name."""

    do: Callable[..., object]
    seqs: Any
    """The `seq` of each row's event."""
    columns: Mapping[str, Any]


class Table(dict[str, Any]):
    """The columns of all events of one kind, by name. A column is joined at its first use.

    Columns are numpy arrays: of integers, of the numbers of texts (see `Texts`), or of objects.
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
        """Return the columns of the events for which `wanted` is true."""
        return Table(self._kind, self.texts, lambda name: self[name][wanted])

    def unless(self, name: str, *undone: "Table") -> "Table":
        """Return the columns of the events that no later event with the same `name` has undone."""
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
        """Return a part for `in_turn`; without `texts`, `do` gets the numbers of texts."""
        column = self.listed if texts else lambda name: self[name].tolist()
        return Part(do, self["seq"], {name: column(name) for name in parameters(do)})

    def rounds(self, do: Callable[..., object], **given: Any) -> Part:
        """Return a part for `in_rounds`, about payment ids; `given` replaces columns."""
        given.setdefault("of", self["payment_id"])
        columns = {name: given[name] if name in given else self[name] for name in parameters(do)}
        return Part(do, self["seq"], columns)

    def _has_texts(self, name: str) -> bool:
        return name in texts_of(events.name_of(self._kind))

    def mapped(self, name: str, to: Callable[[Any], Any], dtype: str = "object") -> Any:
        """Return a column's texts mapped by a function, called once for each distinct text."""
        numbers = pd.unique(self[name])  # before `texts.all`: reading a column may add texts
        texts = self.texts.all
        mapped = np.zeros(len(texts), dtype)
        mapped[numbers] = [to(texts[number]) for number in numbers.tolist()]
        return mapped[self[name]]

    def those(self, name: str, is_wanted: Callable[[Any], bool]) -> Any:
        """Return for each event whether its text is wanted."""
        return self.mapped(name, is_wanted, "bool")

    def arrow(self, name: str) -> pa.Array:
        """Return a column as an Arrow array."""
        if self._has_texts(name):
            return words(self[name], self.texts)
        return pa.array(self[name])


UNREAD = (events.AnswerSent, events.PayerJoined)
"""Events without a table, as no frame uses them: a third of the events of a large run."""
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
"""Columns of the most frequent events that `orders` and `steps` do not need. Most users want these
two frames first, so the other columns are read later. No column here has an id: an array with a
place for each id, made before the later columns are read, would be too short."""
_NEVER = {(events.name_of(events.AnswerReceived), "to"), (events.name_of(events.NoAnswer), "to")}
"""Columns that repeat a column of the request of the same exchange."""
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
    """Reads the columns of a journal. From a file it reads `first`, `without` the exchanges of some
    actors, and reads `rest` at the first use of a column in it."""

    def __init__(
        self, journal: Journal, first: Wanted, rest: Wanted, without: frozenset[str] = frozenset()
    ) -> None:
        self._journal, self._later = journal, rest
        self.texts, self._batches = journal.columns(first, without=without)

    def column(self, kind: str, name: str) -> Any:
        of_kind = [each[kind] for each in self._batches if kind in each]
        if all(name in each for each in of_kind):
            return _joined([each[name] for each in of_kind])
        size = sum(len(next(iter(each.values()))) for each in of_kind)  # the file may have grown
        return _joined([each[kind][name] for each in self._rest if kind in each])[:size]

    @cached_property
    def _rest(self) -> list[ByName]:
        return self._journal.columns(self._later, self.texts)[1]

    def tables(self) -> dict[type[events.BaseEvent], Table]:
        """Return a table for each kind."""
        return {
            kind: Table(kind, self.texts, partial(self.column, events.name_of(kind)))
            for kind in events.KINDS
            if kind not in UNREAD
        }


@once_per_journal
def _tables(journal: Journal) -> dict[type[events.BaseEvent], Table]:
    services = reading_of(journal).joined
    return _Read(journal, _FIRST, _REST, services).tables()


@once_per_journal
def _whole_tables(journal: Journal) -> dict[type[events.BaseEvent], Table]:
    if journal.file is None:
        return _tables(journal)  # a journal in memory leaves out nothing
    return _Read(journal, _OF_EXCHANGES, frozenset()).tables()


def tables(journal: Journal, *kinds: type[events.BaseEvent]) -> list[Table]:
    """Return a table for each kind of event; all tables number texts alike.

    From a file, exchanges that services began are left out: most exchanges are.
    """
    every = _tables(journal)
    return [every[kind] for kind in kinds]


def exchange_tables(journal: Journal) -> list[Table]:
    """Return the columns of all requests, answers and losses, also of services' own requests."""
    every = _whole_tables(journal)
    return [every[kind] for kind in (events.RequestSent, events.AnswerReceived, events.NoAnswer)]


def standing(journal: Journal) -> Table:
    """Return the transactions that are in the chain at the end of the journal."""
    mined, undone = tables(journal, events.TransactionMined, events.TransactionUndone)
    return mined.unless("tx_hash", undone)


def words(numbers: Any, texts: Texts) -> pa.Array:
    """Return the texts with these numbers as an Arrow array that stores each text only once."""
    chosen = np.asarray(numbers, "int32")
    if len(texts.all) > _MANY * len(chosen):  # converting all texts would take longer
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
    """Return integers as an array whose sums cannot overflow: of int64, or of Python's integers."""
    is_small = sum(map(abs, values)) <= MAX_STORED // 4
    return np.array(values, "int64") if is_small else objects(values)


def each_row(make: Callable[..., Made], columns: Mapping[str, Any]) -> list[Made]:
    """Call a function with each row, and return the results; parameters name the columns."""
    return list(map(make, *(columns[name] for name in parameters(make))))


def in_turn(*parts: Part) -> None:
    """Call the functions with the rows of all parts, in the order of `seq`."""
    rows, called = list[Any](), list[Callable[..., object]]()
    for do, _, columns in parts:
        rows += zip(*(columns[name] for name in parameters(do)), strict=True)
        called += repeat(do, len(rows) - len(called))
    for place in np.concatenate([part.seqs for part in parts]).argsort(kind="stable").tolist():
        called[place](*rows[place])


def in_rounds(*parts: Part) -> Any:
    """Call functions with arrays of rows: first the first row of each thing, then the second.

    The column `of` has the number of the row's thing (a payment id). In a call a
    thing occurs once, and a function can assign to arrays by these numbers. Return the numbers
    of all things, in the order of their first rows.
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
    # objects, or integers beyond 63 bits
    return objects(list(chain.from_iterable(columns)))


def objects(values: Sequence[Any]) -> Any:
    """Return an array of objects."""
    column = np.empty(len(values), dtype="object")
    column[:] = values
    return column


# --- exchanges ----------------------------------------------------------------------------

OUTCOMES = ("served", "paid", "payment required", "refused", "error", "lost", "open")
"""Outcomes of an exchange, from its caller's view:

- served, paid: a 2xx answer; paid if the request was POST /api/pay
- payment required: the 402 of section 2.2, or a 402 to a request without a payment
- refused: any other 4xx, or a 2xx with a refusal, such as `{"isValid": false}`
- error: 5xx
- lost: the connection broke, or the caller's timeout passed
- open: neither answered nor lost when the journal ended
"""
_NO_END = 1 << 62
_MISSING = {"at_ms": 0, "seq": _NO_END, "status": 0, "final": None, "ok": None}
"""The values of an exchange without an answer, by field."""


class ServiceRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to a service, with the answer or the loss. A text is a number, or 0.

    `end_seq` of a request without an end is greater than every other `end_seq`.
    """

    seq: int
    at_ms: int
    payer: int
    service: int
    path: int
    payment_id: int
    session_id: int
    authorization: int
    end_seq: int
    ended_ms: int
    status: int
    named: int
    """The payment id in the answer."""
    tx: int
    pays: bool
    """Whether the request is POST /api/pay."""
    opens: bool
    """Whether the request opens a session."""
    may_be_free: bool
    """Whether it may be no order: a GET without session and authorization."""


class Exchanges:
    """The requests of a journal as `sent`; `ended` has the answers and losses."""

    def __init__(self, reading: Reading, read: list[Table]) -> None:
        self._reading = reading
        self.sent, self._answers, self._losses = read
        numbers = np.concatenate([self._answers["exchange"], self._losses["exchange"]])
        ends = pd.Series(np.arange(len(numbers)), numbers)
        ends = ends[~ends.index.duplicated(keep="last")]
        self._ends = ends.reindex(self.sent["exchange"], fill_value=-1).to_numpy()
        self.ended = Table(AnswerReceived, self.sent.texts, self._ended)
        """The answer to each request; of a loss, only `seq` and `at_ms`."""

    @property
    def is_ended(self) -> Any:
        """Whether each request was answered or lost."""
        return self._ends >= 0

    def _ended(self, name: str) -> Any:
        is_of_loss = name in ("seq", "at_ms")
        return self._end(name, name if is_of_loss else None)

    def _end(self, name: str, of_loss: str | None) -> Any:
        """Return a field of each answer or loss; `of_loss` is the field of a loss."""
        answers, missing = self._answers[name], _MISSING.get(name, 0)
        losses = (
            self._losses[of_loss] if of_loss else np.full(len(self._losses["exchange"]), missing)
        )
        return np.concatenate([answers, losses, np.full(1, missing)])[self._ends]

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The columns of frames as Arrow arrays: each request and its outcome."""
        sent, start_ms = self.sent, self._reading.start_ms
        sent_ms, status = pa.array(sent["at_ms"]), self.ended["status"]
        ended_ms = pa.array(self.ended["at_ms"], mask=~self.is_ended)
        took_s = pa.array(self.ended["at_ms"] - sent["at_ms"], mask=status == 0)
        names = ("exchange", "to", "method", "path")
        return {name: sent.arrow(name) for name in names} | {
            "payer": sent.arrow("actor"),
            "caller": sent.arrow("actor"),
            "at": sent_ms,
            "sent_s": since(sent_ms, start_ms),
            "ended_s": since(ended_ms, start_ms),
            "latency_s": since(took_s, 0),
            "status": pa.array(status, mask=status == 0),
            "error": words(self._end("error", "reason"), sent.texts),
            "outcome": self._outcome(),
            "payment_id": self._either("payment_id"),
            "session_id": self._either("session_id"),
        }

    @property
    def outcomes(self) -> dict[int | None, str]:
        """The outcome of each exchange, by its number."""
        outcomes = self.columns["outcome"].to_pylist()
        return dict(zip(self.sent["exchange"].tolist(), outcomes, strict=True))

    def _either(self, name: str) -> pa.Array:
        """Return the id in the request, or else in the answer."""
        ids, empty = self.sent[name], self.sent.texts.get("", 0)
        return words(np.where((ids == 0) | (ids == empty), self.ended[name], ids), self.sent.texts)

    @cached_property
    def pays(self) -> Any:
        """Whether each request is POST /api/pay."""
        return self.sent.those("path", lambda path: path.endswith(PAY))

    @cached_property
    def by_payers(self) -> Any:
        """Whether each request was sent by a payer, not by a service."""
        return ~self.sent.those("actor", self._reading.joined.__contains__)

    @cached_property
    def to_service(self) -> Any:
        """Whether each request was sent to a service."""
        return self.sent.those("to", self._reading.services.__contains__)

    @property
    def asks(self) -> Any:
        """Whether each answer is the 402 of section 2.2, with a payment id."""
        return (self.ended["status"] == 402) & (self.ended["payment_id"] != 0) & ~self.pays

    @property
    def _is_unpaid(self) -> Any:
        """Whether each answer is a 402 to a request without a proof, payment id or not."""
        empty = self.sent.texts.get("", 0)
        shown = [
            ~np.isin(self.sent[name], (0, empty))
            for name in ("payment_id", "session_id", "authorization")
        ]
        return (self.ended["status"] == 402) & ~self.pays & ~np.logical_or.reduce(shown)

    def _outcome(self) -> pa.Array:
        status = self.ended["status"]
        says_no = (self.ended["error"] != 0) | (self.ended["ok"] == False)  # noqa: E712 - an array
        cases = {
            "open": ~self.is_ended,
            "lost": status == 0,
            "error": status >= 500,
            "payment required": self.asks | self._is_unpaid,
            "refused": (status >= 400) | says_no,
            "paid": self.pays,
        }
        places = list(map(OUTCOMES.index, cases))
        found = np.select(list(cases.values()), places, OUTCOMES.index("served"))
        return pa.DictionaryArray.from_arrays(found, pa.array(OUTCOMES))

    def requests(self, wanted: Any) -> list[ServiceRequest]:
        """Return the requests for which `wanted` is true, in order."""
        sent, ended = self.sent.where(wanted), self.ended.where(wanted)
        empty = sent.texts.get("", 0)
        shows = [~np.isin(sent[name], (0, empty)) for name in ("session_id", "authorization")]
        columns = {
            **{name: sent[name] for name in ("seq", "at_ms", "path", "payment_id", "session_id")},
            "payer": sent["actor"],
            "service": sent["to"],
            "authorization": sent["authorization"],
            "end_seq": ended["seq"],
            "ended_ms": ended["at_ms"],
            "status": ended["status"],
            "named": ended["payment_id"],
            "tx": ended["tx_hash"],
            "pays": self.pays[wanted],
            "opens": sent.those("path", lambda path: path.endswith(SESSIONS)),
            "may_be_free": sent.those("method", "GET".__eq__) & ~np.logical_or(*shows),
        }
        return each_row(ServiceRequest, {name: each.tolist() for name, each in columns.items()})


@once_per_journal
def exchanges_of(journal: Journal) -> Exchanges:
    """Return all exchanges of a journal."""
    return Exchanges(reading_of(journal), exchange_tables(journal))


@once_per_journal
def payers_exchanges(journal: Journal) -> Exchanges:
    """Return the exchanges that payers began. A journal in memory gives all exchanges."""
    if journal.file is None:
        return exchanges_of(journal)
    read = tables(journal, RequestSent, AnswerReceived, NoAnswer)
    return Exchanges(reading_of(journal), read)
