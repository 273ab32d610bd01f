"""What happened, as tidy tables: one pandas DataFrame for each question.

In every frame: `t_s` is virtual seconds since the run began, `at` the same moment as a
UTC timestamp (milliseconds); other columns in `_s` are seconds too, those that are
moments counted from the beginning. A journal counts whole milliseconds, so a duration is
right to one. `x_base` is an amount in base units, exact (Int64, or
Python integers where even one column's total would not fit into 63 bits); `x` beside it
is the same amount in whole tokens, the nearest float64, for `describe`, `quantile` and plots.
Missing is NA, NaN or None, whatever the dtype has. An empty journal gives empty frames with the
same columns.

`TABLES` has them all by name.
"""

import json
from collections.abc import Callable
from operator import attrgetter

import pandas as pd
import pyarrow as pa

from x402sim.events import Check, IndexerRan
from x402sim.journal import Journal
from x402sim.report.blocks import blocks, forks
from x402sim.report.columns import attributes, kinds, of_columns, of_objects, tables, words
from x402sim.report.costs import costs
from x402sim.report.exchanges import OUTCOMES, exchanges_of
from x402sim.report.money import balances, payments, sessions, transactions, transfers
from x402sim.report.orders import WAYS, orders_of
from x402sim.report.reading import reading_of


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
    reading, exchanges = reading_of(journal), exchanges_of(journal)
    is_payers = pa.array(~exchanges.sent.those("actor", reading.services.__contains__))
    columns = kinds(steps, outcome=OUTCOMES)
    every = {name: exchanges.columns[name].filter(is_payers) for name in columns if name != "t_s"}
    return of_columns(columns, every, reading)


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
    (events,) = tables(journal, Check)
    as_json = {
        name: [json.dumps(value, ensure_ascii=False) for value in events[name].tolist()]
        for name in ("expected", "actual")
    }
    return of_columns(kinds(checks), as_json, reading_of(journal), events)


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
    return of_columns(
        kinds(latency, outcome=OUTCOMES), exchanges_of(journal).columns, reading_of(journal)
    )


def orders(journal: Journal) -> pd.DataFrame:
    """Return one row for each order, in the order of asking: what was asked, paid and served.

    An order is one 402 that a payer was asked to pay, in one step or in two, or one request on a
    session's budget. Sums of the bool columns are counts; `paid_base` less `returned_base` is what the
    merchants have earned on the chain.

    | column | dtype | meaning |
    | --- | --- | --- |
    | order | Int64 | its number, from 1 |
    | t_s, at | float64, UTC | when the payer asked first |
    | payer, service | category | who asked whom |
    | resource | category | the path that was asked for |
    | way | category | how it is paid: payment (one of its own), deposit (it opens a session), session (from a session's budget) |
    | payment_id, session_id | string | of the payment; of the session that it opened or used |
    | asked | bool | always true |
    | charged | bool | whether money moved: on the chain, or from the session's budget |
    | granted | bool | whether the service granted access at the end of the run |
    | served | bool | whether the resource's 2xx answer reached the payer |
    | refunded | bool | whether money came back on the chain |
    | served_times | Int64 | how many such answers; more than one for one authorization may be a grant too many |
    | requests, attempts | Int64 | all its requests to the service, and those of them that paid: POST /api/pay, or with a payment in their own header |
    | waiting_s | float64 | from asking first to being served; NaN if it was not |
    | payments | Int64 | how many transfers paid for it and stand in the chain; 2: it was charged twice; NA as below |
    | paid_base, paid | Int64, float64 | what moved from the payer on the chain; NA for a session's request, or if the chain cannot be seen |
    | lost_base, lost | Int64, float64 | what had paid for it, and the chain undid after it was served; NA as above |
    | returned_base, returned | Int64, float64 | what moved back on the chain; NA as above |
    | debited_base, debited | Int64, float64 | what a session's request took from its budget |
    | gas | Int64 | gas of the payment and of the refund; NA as above |
    | tx, refund_tx | string | the transactions of the payment and of the refund |

    To compare ways of paying, divide by what was served, and let all sessions end first: until a
    deposit's rest is refunded it looks like a price. Money and gas are in the rows of payments and
    deposits; requests are those of payments and sessions, as nobody asks for a deposit itself:

        quotes = orders[orders["way"] != "deposit"]
        price = (orders["paid"].sum() - orders["returned"].sum()) / quotes["served"].sum()
        gas = orders["gas"].sum() / quotes["served"].sum()
        lost = (quotes["charged"] & ~quotes["served"]).sum() / quotes["charged"].sum()

    Give both ways the same arrivals and seeds, and compare `waiting_s` of quotes only; what opening
    a session took is in the rows of deposits.
    """  # noqa: E501 - a table
    found, texts = orders_of(journal), exchanges_of(journal).sent.texts
    names = "payer", "service", "resource", "payment_id", "session_id", "tx", "refund_tx"
    return of_objects(
        kinds(orders, way=WAYS),
        found,
        reading_of(journal),
        {name: words(attributes(name)(found), texts) for name in names},
        order=attrgetter("number"),
        asked=lambda _: True,
        charged=attrgetter("is_charged"),
        granted=attrgetter("is_granted"),
        served=lambda order: order.served_ms is not None,
        refunded=lambda order: bool(order.returned_base),
        waiting_s=attrgetter("waiting_s"),
    )


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
    (runs,) = tables(journal, IndexerRan)
    return of_columns(kinds(backlog), {}, reading_of(journal), runs)


TABLES: dict[str, Callable[[Journal], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        orders, steps, checks, transfers, payments, sessions, latency, balances, backlog,
        transactions, blocks, forks, costs,
    )
}  # fmt: skip
