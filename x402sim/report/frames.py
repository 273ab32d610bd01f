"""Frames: a journal as tidy tables, one pandas DataFrame for each question.

`CONVENTIONS` holds for all frames, and `TABLES` has them by name; frames of money are in `money.py`.

A journal names a block by number and transactions, without block hashes and without empty blocks. Of
a reorganisation, the journal has the depth. `costs` counts each transaction in the
chain once: fees add up to the losses of the native balances.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from msgspec import UNSET

from x402sim.events import (
    ChainReorganised,
    Check,
    FaultPeriodEnded,
    IndexerRan,
    Note,
    PayerJoined,
    RequestArrived,
    RequestEnded,
    RequestStarted,
    TransactionMined,
    TransactionUndone,
)
from x402sim.journal import Journal
from x402sim.report import columns
from x402sim.report.frame import Column, Form, alike, amount, frame, moment
from x402sim.report.money import balances, payments, sessions, transactions, transfers
from x402sim.report.orders import WAYS, orders_of
from x402sim.report.reading import Reading, once_per_journal, reading_of

QUEUED = ("served", "left", "refused", "lost", "open")


@frame(
    """One row for each request to a part with `servers`, in the order of arrival.

Of a request that still waits, or is still served, when the journal ends, what is not known yet is
NaN. Near saturation these have waited longest: without them, waiting looks too short.""",
    Column("request", "Int64", "the number, unique in the run"),
    Column("part", "category", "who was asked"),
    Column("path", "category", "the path"),
    Column("arrived_s", "float64", "when it arrived at the part", "s"),
    Column("started_s", "float64", "when a server began with it", "s"),
    Column("ended_s", "float64", "when the server was done with it, or it was refused or lost", "s"),
    Column("waited_s", "float64", "from its arrival until a server began", "s"),
    Column("service_s", "float64", "how long the server was busy with it: the service time that was drawn, and the work", "s"),
    Column("ahead", "Int64", "how many requests were waiting or being served when it arrived"),
    Column("outcome", "category", "served; left (served, but the client had gone, or the answer was lost); refused (too many waited); lost (the part crashed); open (none of these yet)", among=QUEUED),
)  # fmt: skip
def queues(journal: Journal, form: Form) -> pd.DataFrame:
    arrived, started, ended = columns.tables(journal, RequestArrived, RequestStarted, RequestEnded)
    reading, numbers = reading_of(journal), arrived["request"]
    arrived_ms, start_ms = arrived.arrow("at_ms"), reading.start_ms
    started_ms, ended_ms = (_by_number(each, "at_ms", numbers) for each in (started, ended))
    outcome = columns.words(_by_number(ended, "outcome", numbers).fill_null(0), ended.texts)
    given = {
        "part": arrived.arrow("actor"),
        "arrived_s": columns.since(arrived_ms, start_ms),
        "started_s": columns.since(started_ms, start_ms),
        "ended_s": columns.since(ended_ms, start_ms),
        "waited_s": columns.since(started_ms, arrived_ms),
        "service_s": columns.since(ended_ms, started_ms),
        "outcome": outcome.cast(pa.string()).fill_null("open"),
    }
    return form.of_columns(given, reading, arrived)


def _by_number(events: columns.Table, name: str, numbers: np.ndarray) -> pa.Array:
    found = pd.Series(events[name], events["request"], dtype="Int64").reindex(numbers)
    return pa.array(found)


# --- blocks and forks -------------------------------------------------------------------


@dataclass(slots=True)
class _Fork:
    """A reorganisation; `replaced` are the removed blocks with transactions."""

    at_ms: int
    fork: int
    depth: int
    replaced: list["_Block"] = field(default_factory=list)


@dataclass(slots=True)
class _Block:
    """A block with transactions; `of_fork` is the removing reorganisation, if any.

    `block_ms` is the timestamp on the chain. `again` counts transactions that a later block mined
    again after the removal (`orphaned_ms`).
    """

    at_ms: int
    n: int
    block: int
    block_ms: int
    transactions: int = 0
    gas: int = 0
    orphaned_ms: int | None = None
    of_fork: _Fork | None = None
    replaced_by: int | None = None
    again: int = 0

    @property
    def dropped(self) -> int:
        return self.transactions - self.again if self.orphaned_ms is not None else 0


class _Chain:
    """Follows all blocks with transactions, and all reorganisations, in order."""

    def __init__(self, journal: Journal) -> None:
        self.blocks, self.forks = list[_Block](), list[_Fork]()
        self._newest, self._mined_in = dict[int, _Block](), dict[str, _Block]()
        self._fork: _Fork | None = None
        forked, mined, undone = columns.tables(
            journal, ChainReorganised, TransactionMined, TransactionUndone
        )
        columns.in_turn(
            forked.calls(self._forked),
            mined.calls(self._mined),
            undone.calls(self._undone),
        )

    def _forked(self, at_ms: int, depth: int) -> None:
        self._fork = _Fork(at_ms=at_ms, fork=len(self.forks) + 1, depth=depth)
        self.forks.append(self._fork)

    def _mined(self, at_ms: int, tx_hash: str, block: int, block_time_s: int, gas: int) -> None:
        self._fork, known = None, self._newest.get(block)
        if known is None or known.orphaned_ms is not None:
            before, n = known, len(self.blocks) + 1
            known = _Block(at_ms=at_ms, n=n, block=block, block_ms=block_time_s * 1000)
            self.blocks.append(known)
            self._newest[block] = known
            if before:
                before.replaced_by = n
        known.transactions += 1
        known.gas += gas
        if earlier := self._mined_in.get(tx_hash):
            earlier.again += 1
        self._mined_in[tx_hash] = known

    def _undone(self, at_ms: int, tx_hash: str) -> None:
        block = self._mined_in.get(tx_hash)
        if block and block.orphaned_ms is None:
            block.orphaned_ms, block.of_fork = at_ms, self._fork
            if self._fork:
                self._fork.replaced.append(block)


_followed = once_per_journal(_Chain)


@frame(
    "One row for each block with transactions, replaced blocks included.",
    Column("n", "Int64", "the number in this frame, from 1: two blocks of different forks have the same `block`"),
    Column("block", "Int64", "the number in the chain"),
    moment("when it was mined"),
    Column("block_s", "float64", "the time on the chain", "s"),
    Column("transactions", "Int64", "how many it had"),
    Column("gas", "Int64", "the gas used by these", "gas"),
    Column("canonical", "bool", "whether the block stands in the chain at the end"),
    Column("orphaned_s", "float64", "when the block was replaced; NaN if the block stands", "s"),
    alike(("fork", "depth"), "Int64", "the replacing reorganisation, a row of `forks`, and the depth; NA if the block stands, or a snapshot or a node undid the block"),
    Column("replaced_by", "Int64", "`n` of the next block with the same number; NA if that has no transaction"),
    Column("dropped", "Int64", "how many of the transactions were never mined again"),
)  # fmt: skip
def blocks(journal: Journal, form: Form) -> pd.DataFrame:
    return form.of_objects(
        _followed(journal).blocks,
        reading_of(journal),
        canonical=lambda each: each.orphaned_ms is None,
        fork=lambda each: each.of_fork and each.of_fork.fork,
        depth=lambda each: each.of_fork and each.of_fork.depth,
    )


@frame(
    "One row for each reorganisation, in order.",
    Column("fork", "Int64", "the number, from 1"),
    moment("when the reorganisation happened"),
    Column("depth", "Int64", "how many of the newest blocks it replaced"),
    Column("block", "Int64", "the lowest number of the replaced blocks with transactions; NA without any"),
    alike(("blocks", "transactions"), "Int64", "how many of these blocks had transactions, and how many"),
    Column("dropped", "Int64", "of those, how many were never mined again"),
)  # fmt: skip
def forks(journal: Journal, form: Form) -> pd.DataFrame:
    return form.of_objects(
        _followed(journal).forks,
        reading_of(journal),
        block=lambda fork: min((each.block for each in fork.replaced), default=None),
        blocks=lambda fork: len(fork.replaced),
        transactions=lambda fork: sum(each.transactions for each in fork.replaced),
        dropped=lambda fork: sum(each.dropped for each in fork.replaced),
    )


# --- costs ------------------------------------------------------------------------------

STEPS = ("payment", "deposit", "refund", "session", "failed", "other")
PARTIES = ("payer", "facilitator", "service", "token owner", "other")
COIN_WEI = 10**18
SETTLEMENT = "transferWithAuthorization"


@frame(
    "One row for each transaction in the chain, and for each order without a transaction.",
    moment("when it was mined; of an order without a transaction, when it was requested"),
    Column("order", "Int64", "the number of the order in `orders`; NA without an order"),
    Column("step", "category", "payment, deposit, refund (of a session's rest), session (a request on the budget), failed (a reverted payment or refund), other (such as a mint)", among=STEPS),
    alike(("payer", "service"), "category", "of the order"),
    Column("session_id", "string", "of the opened, used or refunded session"),
    Column("tx", "string", "the transaction; NA if there was none"),
    Column("party", "category", "who paid the fee: payer, facilitator, service, token owner (mints), other; NA without a transaction", among=PARTIES),
    Column("sender", "category", "the same as a name or an address, which tells several facilitators apart"),
    Column("gas", "Int64", "gas used, in units of gas; 0 without a transaction", "gas"),
    Column("gas_price_wei", "Int64", "price of a unit, in wei", "wei"),
    Column("fee_coins", "float64", "gas · price, in native coins", "coins"),
    Column("fee", "float64", "the same in tokens; the column is there with `World(coin_price=...)` only", "tokens", may_lack=True),
    Column("waiting_s", "float64", "from the first request to being served, in the first row of an order; NaN if it was not", "s"),
    more="""The sum of `fee_coins` by `sender` is what its native balance has lost for gas; what a
reorganisation has undone costs nothing. A session's deposit and refund belong to the order of
the deposit, and its requests are orders without a transaction: group by `session_id` and divide
by the served requests for the cost of a call. A transaction that reverted names no order.

    costs = run.costs
    of_calls = costs[costs["step"] != "other"]  # without mints, which no call pays
    a_call = of_calls["fee"].sum() / run.orders.query("way != 'deposit'")["served"].sum()
    by_order = costs.groupby("order")[["gas", "fee", "waiting_s"]].sum()
    by_party = costs.groupby("party", observed=True)["fee_coins"].sum()""",
)  # fmt: skip
def costs(journal: Journal, form: Form) -> pd.DataFrame:
    reading = reading_of(journal)
    given = _values(reading)
    price = float((reading.begin and reading.begin.options.get("coin_price")) or 0)
    if price:
        given["fee"] = given["fee_coins"] * price
    place = given["at"].argsort(kind="stable")
    sorted_ = {
        name: values.take(pa.array(place)) if isinstance(values, pa.Array) else values[place]
        for name, values in given.items()
    }
    return form.of_columns(sorted_, reading)


def _values(reading: Reading) -> dict[str, Any]:
    """Return columns that are not computed: rows of transactions, then of orders without one."""
    orders, mined = orders_of(reading.journal), columns.standing(reading.journal)
    owner, is_refund = np.full(len(mined.texts.all), -1), np.zeros(len(mined.texts.all), "bool")
    refunds = [order for order in orders if order.refund_tx]
    refunding = [order.refund_tx for order in refunds]
    owner[[tx for order in orders for tx in order.txs]] = [
        order.number - 1 for order in orders for _ in order.txs
    ]
    owner[refunding] = [order.number - 1 for order in refunds]
    is_refund[refunding] = True
    bare = [order.number - 1 for order in orders if not order.txs]
    of = np.append(owner[mined["tx_hash"]], bare).astype("int64")

    def of_order(name: str) -> Any:
        return columns.objects([*map(attrgetter(name), orders), None])[of]

    def named(name: str) -> Any:
        return columns.words(np.array([*map(attrgetter(name), orders), 0])[of], mined.texts)

    def padded(values: Any, missing: Any = None) -> Any:
        return np.append(values, np.full(len(bare), missing, "object"))

    payers = {payer.address for payer in reading.journal.events(PayerJoined)}

    def party(address: str) -> str | None:
        name = reading.name(address)
        if address in payers:
            return "payer"
        return "service" if name in reading.merchants else name if name == "token owner" else None

    settles = mined.those("call", SETTLEMENT.__eq__)
    unowned = np.where((mined["revert_reason"] != 0) & settles, "failed", "other")
    step = np.where(padded(is_refund[mined["tx_hash"]], False), "refund", of_order("way"))
    parties, prices_wei = mined.mapped("sender", party), mined.mapped("gas_price_wei", int)
    others = np.where(settles, "facilitator", "other")
    is_first = np.zeros(len(of), "bool")
    is_first[np.unique(of, return_index=True)[1]] = True
    return {
        "at": np.append(mined["at_ms"], [orders[place].at_ms for place in bare]).astype("int64"),
        "order": of_order("number"),
        "step": np.where(of < 0, padded(unowned), step),
        "payer": named("payer"),
        "service": named("service"),
        "session_id": named("session_id"),
        "tx": columns.words(np.append(mined["tx_hash"], np.zeros(len(bare))), mined.texts),
        "party": padded(np.where(parties == None, others, parties)),  # noqa: E711 - an array
        "sender": padded(mined.mapped("sender", reading.name)),
        "gas": padded(mined["gas"], 0),
        "gas_price_wei": padded(prices_wei),
        "fee_coins": padded(mined["gas"] * prices_wei / COIN_WEI, 0.0),
        "waiting_s": np.where(is_first, of_order("waiting_s"), None),
    }


# --- checks, orders and times -----------------------------------------------------------

CONVENTIONS = """In every frame, `t_s` is virtual seconds since the run began, `at` the same moment as a
UTC timestamp (milliseconds); other columns in `_s` are seconds too, those that are
moments counted from the beginning. A journal counts whole milliseconds: a duration is
right to a millisecond. `x_base` is an amount in base units, exact (Int64, or
Python integers where even one column's total would not fit into 63 bits); `x` beside it
is the same amount in whole tokens, the nearest float64, for `describe`, `quantile` and plots.
Missing is NA, NaN or None, whatever the dtype has. An empty journal gives empty frames with the
same columns."""


@frame(
    "One row for each exchange of a payer, in the order of the requests.",
    Column("exchange", "Int64", "the number, unique in the run"),
    moment("when the request was sent"),
    Column("payer", "category", "the sender"),
    Column("to", "category", "the receiver: service, or facilitator"),
    alike(("method", "path"), "category", "what was requested"),
    Column("payment_id", "string", "the payment id in the request, or else in the answer"),
    Column("session_id", "string", "the session id in the request, or else in the answer"),
    Column("status", "Int64", "HTTP status; NA if there was no answer"),
    Column("error", "string", "the error's text, or why there was no answer"),
    Column("outcome", "category", f"the outcome: {', '.join(columns.OUTCOMES)}", among=columns.OUTCOMES),
    Column("ended_s", "float64", "when the answer came, or the payer knew that none would", "s"),
    Column("latency_s", "float64", "from request to answer; NaN if there was no answer", "s"),
)  # fmt: skip
def steps(journal: Journal, form: Form) -> pd.DataFrame:
    reading, exchanges = reading_of(journal), columns.payers_exchanges(journal)
    is_payers = pa.array(~exchanges.sent.those("actor", reading.services.__contains__))
    every = {name: values.filter(is_payers) for name, values in exchanges.columns.items()}
    return form.of_columns(every, reading)


@frame(
    "One row for each check, in order.",
    Column("clause", "category", "the clause of the specification, or the invariant"),
    Column("ok", "bool", "whether it held"),
    alike(("expected", "actual"), "string", 'as JSON: `402` is a number, `"402"` a text'),
    Column("exchange", "Int64", "the exchange it is about; NA if there was none yet"),
    moment("when it was made"),
)  # fmt: skip
def checks(journal: Journal, form: Form) -> pd.DataFrame:
    (events,) = columns.tables(journal, Check)
    as_json = {
        name: [json.dumps(value, ensure_ascii=False) for value in events[name].tolist()]
        for name in ("expected", "actual")
    }
    return form.of_columns(as_json, reading_of(journal), events)


@frame(
    "One row for each exchange between any two parts, the service's own included.",
    Column("exchange", "Int64", "the number, unique in the run"),
    alike(("caller", "to"), "category", "the sender (a payer, service), and the receiver (service, facilitator, explorer, rpc)"),
    Column("path", "category", "the path; of rpc, the JSON-RPC method"),
    Column("sent_s", "float64", "when the request was sent", "s"),
    Column("ended_s", "float64", "when the answer came, or the caller knew that none would", "s"),
    Column("latency_s", "float64", "from request to answer; NaN if there was no answer", "s"),
    Column("status", "Int64", "HTTP status; NA if there was no answer"),
    Column("outcome", "category", f"the outcome: {', '.join(columns.OUTCOMES)}", among=columns.OUTCOMES),
)  # fmt: skip
def latency(journal: Journal, form: Form) -> pd.DataFrame:
    return form.of_columns(columns.exchanges_of(journal).columns, reading_of(journal))


@frame(
    """One row for each order, in the order of the first requests: what was requested, paid and served.

An order is a 402 to a payer, paid in one step or in two, or a request on a session's
budget. A new authorization after a lost or refused payment belongs to the same order. Sums of
the bool columns are counts; `paid_base` less `returned_base` is what the merchants have earned on
the chain.""",
    Column("order", "Int64", "the number, from 1"),
    moment("when the payer first requested it"),
    alike(("payer", "service"), "category", "the payer (in a recording the signer, or without a signature the client), and the service that was asked"),
    Column("resource", "category", "the path that was requested"),
    Column("way", "category", "the way of paying: payment (for this order alone), deposit (opens a session), session (from a session's budget)", among=WAYS),
    alike(("payment_id", "session_id"), "string", "of the payment; of the opened or used session"),
    Column("asked", "bool", "always true"),
    Column("charged", "bool", "whether money moved: on the chain, or from the session's budget"),
    Column("granted", "bool", "whether the service granted access at the end of the run"),
    Column("served", "bool", "whether the resource's 2xx answer reached the payer"),
    Column("refunded", "bool", "whether money came back on the chain"),
    Column("served_times", "Int64", "how many such answers; several for the same authorization may be a grant too many"),
    alike(("requests", "attempts"), "Int64", "all requests to the service, and the paying requests: POST /api/pay, or with a payment in the header"),
    Column("waiting_s", "float64", "from the first request to being served; NaN if it was not", "s"),
    Column("payments", "Int64", "how many transfers paid for it and stand in the chain; 2: it was charged twice; NA as below"),
    amount("paid", "what moved from the payer on the chain; NA for a session's request, or if the chain cannot be read"),
    amount("used", "of payments in `upto`, what the service has used, paid or not; NA for others, and if nothing was used"),
    amount("signed", "of a settled payment in `upto`, the maximum that the payer signed; NA for others"),
    amount("left", "what of this maximum was not used, and stays with the payer"),
    amount("lost", "payments that the chain undid after the order was served; NA as above"),
    amount("returned", "what moved back on the chain; NA as above"),
    amount("debited", "the amount that a session's request took from the budget"),
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
    found, texts = orders_of(journal), columns.payers_exchanges(journal).sent.texts
    names = "payer", "service", "resource", "payment_id", "session_id", "tx", "refund_tx"
    given = {name: columns.words(list(map(attrgetter(name), found)), texts) for name in names}
    if signers := _signers(journal):  # a recording: its requests come from addresses of clients
        signed = ([signers.get(texts.all[each]) for each in order.nonces] for order in found)
        clients = given["payer"].to_pylist()
        given["payer"] = [
            next(filter(None, who), at) for who, at in zip(signed, clients, strict=True)
        ]
    return form.of_objects(
        found,
        reading_of(journal),
        given,
        order=attrgetter("number"),
        asked=lambda _: True,
        charged=attrgetter("is_charged"),
        granted=attrgetter("is_granted"),
        served=lambda order: order.served_ms is not None,
        refunded=lambda order: bool(order.returned_base),
        waiting_s=attrgetter("waiting_s"),
    )


def _signers(journal: Journal) -> dict[str | None, str]:
    """Return the signer of each authorization in a recording; a played run names its payers."""
    begin = reading_of(journal).begin
    if begin is None or begin.upstream is UNSET:
        return {}
    seen = (note.data for note in journal.events(Note) if note.name == "exchange")
    return {each["authorization"]: each["payer"] for each in seen if "payer" in each}


@frame(
    "One row for each run of the payment indexer.",
    moment("when the run ended"),
    Column("asked", "Int64", "records in its batch"),
    alike(("matched", "reverted"), "Int64", "of those: found in a block, with a transaction that did so"),
    Column("unknown", "Int64", "of those: not (yet) known to the explorer"),
    Column("unanswered", "Int64", "of those: the explorer did not answer"),
    Column("backlog", "Int64", "settled records still without a block after it"),
)  # fmt: skip
def backlog(journal: Journal, form: Form) -> pd.DataFrame:
    (runs,) = columns.tables(journal, IndexerRan)
    return form.of_columns({}, reading_of(journal), runs)


@frame(
    "One row for each period of a fault with `when`, in the order of their ends, also if nobody asked.",
    Column("victim", "category", "who was asked"),
    Column("does", "category", "what the fault does"),
    Column("path", "category", "the end of the struck paths; empty: any"),
    Column("from_s", "float64", "when the period began", "s"),
    Column("until_s", "float64", "when it ended, or the fault was removed, at the latest at the end of the scenario", "s"),
    Column("struck", "Int64", "how many requests it struck"),
)  # fmt: skip
def outages(journal: Journal, form: Form) -> pd.DataFrame:
    (periods,), reading = columns.tables(journal, FaultPeriodEnded), reading_of(journal)
    moments = {
        f"{name}_s": columns.since(periods.arrow(f"{name}_ms"), reading.start_ms)
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
