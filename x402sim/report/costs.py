"""What everything has cost: gas, fees and waiting, by order and by who paid.

Each transaction that stands in the chain is counted once, so that the fees add up to what the
native balances have lost.
"""

from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from x402sim.events import PayerJoined
from x402sim.journal import Journal
from x402sim.report.columns import objects, standing, words
from x402sim.report.frame import Column, Form, alike, frame, moment
from x402sim.report.orders import orders_of
from x402sim.report.reading import Reading, reading_of

STEPS = ("payment", "deposit", "refund", "session", "failed", "other")
PARTIES = ("payer", "facilitator", "service", "token owner", "other")
COIN_WEI = 10**18
SETTLEMENT = "transferWithAuthorization"


@frame(
    "One row for each transaction that stands, and for each order that had none.",
    moment("when it was mined; of an order without a transaction, when it was requested"),
    Column("order", "Int64", "the number of its order in `orders`; NA if it belongs to none"),
    Column("step", "category", "payment, deposit, refund (of a session's rest), session (a request on its budget), failed (a payment or refund that reverted), other (such as a mint)", among=STEPS),
    alike(("payer", "service"), "category", "of the order"),
    Column("session_id", "string", "of the session that it opened, used or refunded"),
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
    """Return the columns but those that follow: of transactions, then of orders without one."""
    orders, mined = orders_of(reading.journal), standing(reading.journal)
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
        return objects([*map(attrgetter(name), orders), None])[of]

    def named(name: str) -> Any:
        return words(np.array([*map(attrgetter(name), orders), 0])[of], mined.texts)

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
        "tx": words(np.append(mined["tx_hash"], np.zeros(len(bare))), mined.texts),
        "party": padded(np.where(parties == None, others, parties)),  # noqa: E711 - an array
        "sender": padded(mined.mapped("sender", reading.name)),
        "gas": padded(mined["gas"], 0),
        "gas_price_wei": padded(prices_wei),
        "fee_coins": padded(mined["gas"] * prices_wei / COIN_WEI, 0.0),
        "waiting_s": np.where(is_first, of_order("waiting_s"), None),
    }
