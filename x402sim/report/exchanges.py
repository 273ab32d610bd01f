"""All exchanges of a journal as columns: each request, and what ended it.

They are read all at once, as a journal has many.
"""

from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa

from x402sim.events import AnswerReceived, NoAnswer, RequestSent
from x402sim.journal import Journal
from x402sim.protocol.routes import PAY, SESSIONS
from x402sim.report.columns import Table, each_row, exchange_tables, since, tables, words
from x402sim.report.reading import Reading, once, reading_of

OUTCOMES = ("served", "paid", "payment required", "refused", "error", "lost", "open")
"""What an exchange came to, as its caller saw it:

- served, paid: a 2xx answer; paid if it was to POST /api/pay
- payment required: the 402 of section 2.2, or one to a request that shows no payment
- refused: any other 4xx, or a 2xx that says no, such as `{"isValid": false}`
- error: 5xx
- lost: the connection broke, or the caller's timeout passed
- open: neither answered nor lost when the journal ended
"""
_NEVER = 1 << 62
_MISSING = {"at_ms": 0, "seq": _NEVER, "status": 0, "final": None, "ok": None}
"""What an exchange has that was not answered; of a text, None."""


class ServiceRequest(msgspec.Struct, frozen=True, gc=False):
    """A request to a service with what ended it, if anything did; a text is its number, or 0.

    `end_seq` is later than all others without an end.
    """

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
    """Whether it is one to pay."""
    opens: bool
    """Whether it is one to open a session."""
    may_be_free: bool
    """Whether it may be no order: a GET without a proof."""


class Exchanges:
    """The requests of a journal as `sent`; `ended` has what ended each of them."""

    def __init__(self, reading: Reading, read: list[Table]) -> None:
        self._reading = reading
        self.sent, self._answers, self._losses = read
        numbers = np.concatenate([self._answers["exchange"], self._losses["exchange"]])
        ends = pd.Series(np.arange(len(numbers)), numbers)
        ends = ends[~ends.index.duplicated(keep="last")]
        self._ends = ends.reindex(self.sent["exchange"], fill_value=-1).to_numpy()
        self.ended = Table(AnswerReceived, self.sent.texts, self._ended)
        """The fields of an answer, of what ended each request; of a loss, `seq` and `at_ms`."""

    @property
    def is_ended(self) -> Any:
        """Whether each request was answered or lost."""
        return self._ends >= 0

    def _ended(self, name: str) -> Any:
        is_of_loss = name in ("seq", "at_ms")
        return self._end(name, name if is_of_loss else None)

    def _end(self, name: str, of_loss: str | None) -> Any:
        """Return a field of what ended each request, by its name in an answer and in a loss."""
        answers, missing = self._answers[name], _MISSING.get(name, 0)
        losses = (
            self._losses[of_loss] if of_loss else np.full(len(self._losses["exchange"]), missing)
        )
        return np.concatenate([answers, losses, np.full(1, missing)])[self._ends]

    @cached_property
    def columns(self) -> dict[str, Any]:
        """The columns of frames as Arrow arrays: of requests, and what came of them."""
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
        """What each exchange came to, by its number."""
        outcomes = self.columns["outcome"].to_pylist()
        return dict(zip(self.sent["exchange"].tolist(), outcomes, strict=True))

    def _either(self, name: str) -> pa.Array:
        """Return the id that was sent, or else the one answered."""
        ids, empty = self.sent[name], self.sent.texts.get("", 0)
        return words(np.where((ids == 0) | (ids == empty), self.ended[name], ids), self.sent.texts)

    @cached_property
    def pays(self) -> Any:
        """Whether each request is one to pay."""
        return self.sent.those("path", lambda path: path.endswith(PAY))

    @cached_property
    def by_payers(self) -> Any:
        """Whether each request is none of a service."""
        return ~self.sent.those("actor", self._reading.joined.__contains__)

    @cached_property
    def to_service(self) -> Any:
        """Whether each request is one to a service."""
        return self.sent.those("to", self._reading.services.__contains__)

    @property
    def asks(self) -> Any:
        """Whether the answer to each request is the 402 of section 2.2, which names a payment."""
        return (self.ended["status"] == 402) & (self.ended["payment_id"] != 0) & ~self.pays

    @property
    def _is_unpaid(self) -> Any:
        """Whether each is a 402 to a request that shows nothing: one of a shop without ids, too."""
        empty = self.sent.texts.get("", 0)
        shown = [
            ~np.isin(self.sent[name], (0, empty))
            for name in ("payment_id", "session_id", "authorization")
        ]
        return (self.ended["status"] == 402) & ~self.pays & ~np.logical_or.reduce(shown)

    def _outcome(self) -> pa.Array:
        """Return which of `OUTCOMES` each exchange came to."""
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
        """Return those requests that are wanted, in order."""
        sent, ended = self.sent.where(wanted), self.ended.where(wanted)
        empty = sent.texts.get("", 0)
        shows = [~np.isin(sent[name], (0, empty)) for name in ("session_id", "authorization")]
        columns = {
            **{name: sent[name] for name in ("at_ms", "path", "payment_id", "session_id")},
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


@once
def exchanges_of(journal: Journal) -> Exchanges:
    """Return all exchanges of a journal."""
    return Exchanges(reading_of(journal), exchange_tables(journal))


@once
def payers_exchanges(journal: Journal) -> Exchanges:
    """Return the exchanges of a journal that payers began: of a file no others, from memory all."""
    if journal.file is None:
        return exchanges_of(journal)
    read = tables(journal, RequestSent, AnswerReceived, NoAnswer)
    return Exchanges(reading_of(journal), read)
