"""What happened, as tidy tables: one pandas DataFrame for each question.

In every frame: `t_s` is virtual seconds since the run began, `at` the same moment as a
UTC timestamp (milliseconds); other columns in `_s` are seconds too, those that are
moments counted from the beginning. A journal counts whole milliseconds, so a duration is
right to one. `x_base` is an amount in base units, exact (Int64, or
Python integers where even one column's total would not fit into 63 bits); `x` beside it
is the same amount in whole tokens, an exact `Decimal`. Missing is NA, NaN or None,
whatever the dtype has. An empty journal gives empty frames with the same columns.

`TABLES` has them all by name.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from x402sim.events import Check, IndexerRan
from x402sim.journal import Journal
from x402sim.report.columns import (
    Kind,
    category,
    flag,
    frame,
    integer,
    moment,
    one_of,
    seconds,
    text,
)
from x402sim.report.money import TRANSFERS, balances, payments, sessions, transactions, transfers
from x402sim.report.reading import OUTCOMES, SERVICES, Exchange, Reading

__all__ = [
    "OUTCOMES",
    "TABLES",
    "TRANSFERS",
    "backlog",
    "balances",
    "checks",
    "latency",
    "payments",
    "sessions",
    "steps",
    "transactions",
    "transfers",
]

_STEPS: dict[str, Kind] = {
    "exchange": integer,
    "t_s": seconds,
    "at": moment,
    "payer": category,
    "to": category,
    "method": category,
    "path": category,
    "payment_id": text,
    "session_id": text,
    "status": integer,
    "error": text,
    "outcome": one_of(*OUTCOMES),
    "ended_s": seconds,
    "latency_s": seconds,
}


def steps(journal: Journal) -> pd.DataFrame:
    """Return one row for each exchange of a payer, in the order of the requests.

    | column | dtype | meaning |
    | --- | --- | --- |
    | exchange | Int64 | its number, unique in the run |
    | t_s, at | float64, UTC | when the request was sent |
    | payer | category | who sent it |
    | to | category | who was asked: service, or facilitator |
    | method, path | category | what was asked |
    | payment_id | string | the payment id that was sent, or else the one answered |
    | session_id | string | the session id that was sent, or else the one answered |
    | status | Int64 | HTTP status; NA if there was no answer |
    | error | string | the error's text, or why there was no answer |
    | outcome | category | one of `OUTCOMES` |
    | ended_s | float64 | when the answer came, or the payer knew that none would |
    | latency_s | float64 | from request to answer; NaN if there was no answer |
    """
    reading = Reading(journal)
    rows = (
        (
            each.number,
            *reading.when(each.sent),
            each.caller,
            each.to,
            each.request.method,
            each.path,
            each.payment_id,
            each.session_id,
            each.status,
            each.error,
            each.outcome,
            *_duration(reading, each),
        )
        for each in reading.exchanges
        if each.caller not in SERVICES
    )
    return frame(_STEPS, rows, reading.decimals)


_CHECKS: dict[str, Kind] = {
    "clause": category,
    "ok": flag,
    "expected": text,
    "actual": text,
    "exchange": integer,
    "t_s": seconds,
    "at": moment,
}


def checks(journal: Journal) -> pd.DataFrame:
    """Return one row for each check, in the order they were made.

    | column | dtype | meaning |
    | --- | --- | --- |
    | clause | category | the clause of the specification, or the invariant |
    | ok | bool | whether it held |
    | expected, actual | string | as JSON: `402` is a number, `"402"` a text |
    | exchange | Int64 | the exchange it is about; NA if there was none yet |
    | t_s, at | float64, UTC | when it was made |
    """
    reading = Reading(journal)
    rows = (
        (
            check.clause,
            check.ok,
            json.dumps(check.expected, ensure_ascii=False),
            json.dumps(check.actual, ensure_ascii=False),
            check.exchange,
            *reading.when(entry),
        )
        for entry, check in reading.of(Check)
    )
    return frame(_CHECKS, rows, reading.decimals)


_LATENCY: dict[str, Kind] = {
    "exchange": integer,
    "caller": category,
    "to": category,
    "path": category,
    "sent_s": seconds,
    "ended_s": seconds,
    "latency_s": seconds,
    "status": integer,
    "outcome": one_of(*OUTCOMES),
}


def latency(journal: Journal) -> pd.DataFrame:
    """Return one row for each exchange between any two parts, the service's own included.

    | column | dtype | meaning |
    | --- | --- | --- |
    | exchange | Int64 | its number, unique in the run |
    | caller, to | category | who asked (a payer, service), and whom (service, facilitator, explorer, rpc) |
    | path | category | the path; of rpc, the JSON-RPC method |
    | sent_s | float64 | when the request was sent |
    | ended_s | float64 | when the answer came, or the caller knew that none would |
    | latency_s | float64 | from request to answer; NaN if there was no answer |
    | status | Int64 | HTTP status; NA if there was no answer |
    | outcome | category | one of `OUTCOMES` |
    """  # noqa: E501 - a table
    reading = Reading(journal)
    rows = (
        (
            each.number,
            each.caller,
            each.to,
            each.path,
            reading.since(each.sent.at_ms),
            *_duration(reading, each),
            each.status,
            each.outcome,
        )
        for each in reading.exchanges
    )
    return frame(_LATENCY, rows, reading.decimals)


_RUN = ("asked", "matched", "reverted", "unknown", "unanswered", "backlog")


def backlog(journal: Journal) -> pd.DataFrame:
    """Return one row for each run of the payment indexer (all but t_s, at are Int64).

    | column | meaning |
    | --- | --- |
    | t_s, at | when the run ended |
    | asked | records in its batch |
    | matched, reverted | of those: found in a block, and what their transaction did |
    | unknown | of those: not (yet) known to the explorer |
    | unanswered | of those: the explorer did not answer |
    | backlog | settled records still without a block after it |
    """
    reading = Reading(journal)
    rows = (
        (
            *reading.when(entry),
            ran.asked,
            ran.matched,
            ran.reverted,
            ran.unknown,
            ran.unanswered,
            ran.backlog,
        )
        for entry, ran in reading.of(IndexerRan)
    )
    columns = {"t_s": seconds, "at": moment, **dict.fromkeys(_RUN, integer)}
    return frame(columns, rows, reading.decimals)


TABLES: dict[str, Callable[[Journal], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        steps, checks, transfers, payments, sessions, latency, balances, backlog, transactions
    )
}  # fmt: skip


def _duration(reading: Reading, each: Exchange) -> Iterable[Any]:
    """Return when an exchange ended, and what it took if it was answered."""
    if each.ended is None:
        return None, None
    took_s = (each.ended.at_ms - each.sent.at_ms) / 1000
    return reading.since(each.ended.at_ms), took_s if each.answer else None
