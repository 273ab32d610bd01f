"""What happened, as tidy tables: one pandas DataFrame for each question.

`CONVENTIONS` are what they have in common, and `TABLES` has them all by name.
"""

import json
from collections.abc import Callable
from operator import attrgetter

import pandas as pd
import pyarrow as pa

from x402sim.events import Check, FaultPeriodEnded, IndexerRan
from x402sim.journal import Journal
from x402sim.report.blocks import blocks, forks
from x402sim.report.columns import since, tables, words
from x402sim.report.costs import costs
from x402sim.report.exchanges import OUTCOMES, exchanges_of, payers_exchanges
from x402sim.report.frame import Column, Form, alike, amount, frame, moment
from x402sim.report.money import balances, payments, sessions, transactions, transfers
from x402sim.report.orders import WAYS, orders_of
from x402sim.report.queues import queues
from x402sim.report.reading import reading_of

CONVENTIONS = """In every frame, `t_s` is virtual seconds since the run began, `at` the same moment as a
UTC timestamp (milliseconds); other columns in `_s` are seconds too, those that are
moments counted from the beginning. A journal counts whole milliseconds, so a duration is
right to one. `x_base` is an amount in base units, exact (Int64, or
Python integers where even one column's total would not fit into 63 bits); `x` beside it
is the same amount in whole tokens, the nearest float64, for `describe`, `quantile` and plots.
Missing is NA, NaN or None, whatever the dtype has. An empty journal gives empty frames with the
same columns."""


@frame(
    "One row for each exchange of a payer, in the order of the requests.",
    Column("exchange", "Int64", "its number, unique in the run"),
    moment("when the request was sent"),
    Column("payer", "category", "who sent it"),
    Column("to", "category", "where it was sent: service, or facilitator"),
    alike(("method", "path"), "category", "what was requested"),
    Column("payment_id", "string", "the payment id that was sent, or else the one answered"),
    Column("session_id", "string", "the session id that was sent, or else the one answered"),
    Column("status", "Int64", "HTTP status; NA if there was no answer"),
    Column("error", "string", "the error's text, or why there was no answer"),
    Column("outcome", "category", f"what it came to: {', '.join(OUTCOMES)}", among=OUTCOMES),
    Column("ended_s", "float64", "when the answer came, or the payer knew that none would", "s"),
    Column("latency_s", "float64", "from request to answer; NaN if there was no answer", "s"),
)  # fmt: skip
def steps(journal: Journal, form: Form) -> pd.DataFrame:
    reading, exchanges = reading_of(journal), payers_exchanges(journal)
    is_payers = pa.array(~exchanges.sent.those("actor", reading.services.__contains__))
    every = {name: values.filter(is_payers) for name, values in exchanges.columns.items()}
    return form.of_columns(every, reading)


@frame(
    "One row for each check, in the order they were made.",
    Column("clause", "category", "the clause of the specification, or the invariant"),
    Column("ok", "bool", "whether it held"),
    alike(("expected", "actual"), "string", 'as JSON: `402` is a number, `"402"` a text'),
    Column("exchange", "Int64", "the exchange it is about; NA if there was none yet"),
    moment("when it was made"),
)  # fmt: skip
def checks(journal: Journal, form: Form) -> pd.DataFrame:
    (events,) = tables(journal, Check)
    as_json = {
        name: [json.dumps(value, ensure_ascii=False) for value in events[name].tolist()]
        for name in ("expected", "actual")
    }
    return form.of_columns(as_json, reading_of(journal), events)


@frame(
    "One row for each exchange between any two parts, the service's own included.",
    Column("exchange", "Int64", "its number, unique in the run"),
    alike(("caller", "to"), "category", "who sent it (a payer, service), and where (service, facilitator, explorer, rpc)"),
    Column("path", "category", "the path; of rpc, the JSON-RPC method"),
    Column("sent_s", "float64", "when the request was sent", "s"),
    Column("ended_s", "float64", "when the answer came, or the caller knew that none would", "s"),
    Column("latency_s", "float64", "from request to answer; NaN if there was no answer", "s"),
    Column("status", "Int64", "HTTP status; NA if there was no answer"),
    Column("outcome", "category", f"what it came to: {', '.join(OUTCOMES)}", among=OUTCOMES),
)  # fmt: skip
def latency(journal: Journal, form: Form) -> pd.DataFrame:
    return form.of_columns(exchanges_of(journal).columns, reading_of(journal))


@frame(
    """One row for each order, in the order of the first requests: what was requested, paid and served.

An order is one 402 to a payer, paid in one step or in two, or one request on a
session's budget. Sums of the bool columns are counts; `paid_base` less `returned_base` is what the
merchants have earned on the chain.""",
    Column("order", "Int64", "its number, from 1"),
    moment("when the payer first requested it"),
    alike(("payer", "service"), "category", "who requested it, and of whom"),
    Column("resource", "category", "the path that was requested"),
    Column("way", "category", "how it is paid: payment (one of its own), deposit (it opens a session), session (from a session's budget)", among=WAYS),
    alike(("payment_id", "session_id"), "string", "of the payment; of the session that it opened or used"),
    Column("asked", "bool", "always true"),
    Column("charged", "bool", "whether money moved: on the chain, or from the session's budget"),
    Column("granted", "bool", "whether the service granted access at the end of the run"),
    Column("served", "bool", "whether the resource's 2xx answer reached the payer"),
    Column("refunded", "bool", "whether money came back on the chain"),
    Column("served_times", "Int64", "how many such answers; more than one for one authorization may be a grant too many"),
    alike(("requests", "attempts"), "Int64", "all its requests to the service, and those of them that paid: POST /api/pay, or with a payment in their own header"),
    Column("waiting_s", "float64", "from the first request to being served; NaN if it was not", "s"),
    Column("payments", "Int64", "how many transfers paid for it and stand in the chain; 2: it was charged twice; NA as below"),
    amount("paid", "what moved from the payer on the chain; NA for a session's request, or if the chain cannot be read"),
    amount("lost", "what had paid for it, and the chain undid after it was served; NA as above"),
    amount("returned", "what moved back on the chain; NA as above"),
    amount("debited", "what a session's request took from its budget"),
    Column("gas", "Int64", "gas of the payment and of the refund; NA as above", "gas"),
    alike(("tx", "refund_tx"), "string", "the transactions of the payment and of the refund"),
    more="""To compare ways of paying, divide by what was served, and let all sessions end first: until a
deposit's rest is refunded it looks like a price. Money and gas are in the rows of payments and
deposits; requests are those of payments and sessions, as nobody requests a deposit for itself:

    quotes = orders[orders["way"] != "deposit"]
    price = (orders["paid"].sum() - orders["returned"].sum()) / quotes["served"].sum()
    gas = orders["gas"].sum() / quotes["served"].sum()
    lost = (quotes["charged"] & ~quotes["served"]).sum() / quotes["charged"].sum()

Give both ways the same arrivals and seeds, and compare `waiting_s` of quotes only; what opening
a session took is in the rows of deposits.""",
)  # fmt: skip
def orders(journal: Journal, form: Form) -> pd.DataFrame:
    found, texts = orders_of(journal), payers_exchanges(journal).sent.texts
    names = "payer", "service", "resource", "payment_id", "session_id", "tx", "refund_tx"
    return form.of_objects(
        found,
        reading_of(journal),
        {name: words(list(map(attrgetter(name), found)), texts) for name in names},
        order=attrgetter("number"),
        asked=lambda _: True,
        charged=attrgetter("is_charged"),
        granted=attrgetter("is_granted"),
        served=lambda order: order.served_ms is not None,
        refunded=lambda order: bool(order.returned_base),
        waiting_s=attrgetter("waiting_s"),
    )


@frame(
    "One row for each run of the payment indexer.",
    moment("when the run ended"),
    Column("asked", "Int64", "records in its batch"),
    alike(("matched", "reverted"), "Int64", "of those: found in a block, and what their transaction did"),
    Column("unknown", "Int64", "of those: not (yet) known to the explorer"),
    Column("unanswered", "Int64", "of those: the explorer did not answer"),
    Column("backlog", "Int64", "settled records still without a block after it"),
)  # fmt: skip
def backlog(journal: Journal, form: Form) -> pd.DataFrame:
    (runs,) = tables(journal, IndexerRan)
    return form.of_columns({}, reading_of(journal), runs)


@frame(
    "One row for each period of a fault with `when`, in the order of their ends, also if nobody asked.",
    Column("victim", "category", "who was asked"),
    Column("does", "category", "what the fault does"),
    Column("path", "category", "the end of the paths that it strikes; empty: any"),
    Column("from_s", "float64", "when the period began", "s"),
    Column("until_s", "float64", "when it ended, or the fault was removed, at the latest at the end of the scenario", "s"),
    Column("struck", "Int64", "how many requests it struck"),
)  # fmt: skip
def outages(journal: Journal, form: Form) -> pd.DataFrame:
    (periods,), reading = tables(journal, FaultPeriodEnded), reading_of(journal)
    moments = {
        f"{name}_s": since(periods.arrow(f"{name}_ms"), reading.start_ms)
        for name in ("from", "until")
    }
    return form.of_columns(moments, reading, periods)


TABLES: dict[str, Callable[[Journal], pd.DataFrame]] = {
    table.__name__: table
    for table in (
        orders, steps, checks, transfers, payments, sessions, latency, balances, backlog,
        transactions, blocks, forks, costs, outages, queues,
    )
}  # fmt: skip
