"""What everything has cost: gas, fees and waiting, by order and by who paid.

Each transaction that stands in the chain is counted once, so that the fees add up to what the
native balances have lost.
"""

from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import pandas as pd

from x402sim.events import PayerJoined
from x402sim.journal import Journal
from x402sim.report.columns import kinds, of_rows
from x402sim.report.orders import Order, orders_of
from x402sim.report.reading import Reading

STEPS = ("payment", "deposit", "refund", "session", "failed", "other")
PARTIES = ("payer", "facilitator", "service", "token owner", "other")
COIN_WEI = 10**18
SETTLEMENT = "transferWithAuthorization"


def costs(journal: Journal) -> pd.DataFrame:
    """Return one row for each transaction that stands, and for each order that had none.

    | column | dtype | meaning |
    | --- | --- | --- |
    | t_s, at | float64, UTC | when it was mined; of an order without a transaction, when it was asked |
    | order | Int64 | the number of its order in `orders`; NA if it belongs to none |
    | step | category | payment, deposit, refund (of a session's rest), session (a request on its budget), failed (a payment or refund that reverted), other (such as a mint) |
    | payer, service | category | of the order |
    | session_id | string | of the session that it opened, used or refunded |
    | tx | string | the transaction; NA if there was none |
    | party | category | who paid the fee: payer, facilitator, service, token owner (mints), other; NA without a transaction |
    | sender | category | the same as a name or an address, which tells several facilitators apart |
    | gas | Int64 | gas used, in units of gas; 0 without a transaction |
    | gas_price_wei | Int64 | price of a unit, in wei |
    | fee_coins | float64 | gas · price, in native coins |
    | fee | float64 | the same in tokens; the column is there with `World(coin_price=...)` only |
    | waiting_s | float64 | from asking first to being served, in the first row of an order; NaN if it was not |

    The sum of `fee_coins` by `sender` is what its native balance has lost for gas; what a
    reorganisation has undone costs nothing. A session's deposit and refund belong to the order of
    the deposit, and its requests are orders without a transaction: group by `session_id` and divide
    by the served requests for the cost of a call. A transaction that reverted names no order.

        costs = run.costs
        of_calls = costs[costs["step"] != "other"]  # without mints, which no call pays
        a_call = of_calls["fee"].sum() / run.orders.query("way != 'deposit'")["served"].sum()
        by_order = costs.groupby("order")[["gas", "fee", "waiting_s"]].sum()
        by_party = costs.groupby("party", observed=True)["fee_coins"].sum()
    """  # noqa: E501 - a table
    reading = Reading(journal)
    columns = kinds(costs, step=STEPS, party=PARTIES)
    del columns["fee"]
    found = of_rows(columns, _rows(reading), reading)
    price = float((reading.begin and reading.begin.options.get("coin_price")) or 0)
    if price:
        found.insert(len(found.columns) - 1, "fee", found["fee_coins"] * price)
    return found


def _rows(reading: Reading) -> list[Sequence[Any]]:
    """Return all columns but the moments in seconds and the fee, in order."""
    orders = orders_of(reading.journal)
    owners = {tx: (order, order.way) for order in orders for tx in order.txs}
    owners |= {order.refund_tx: (order, "refund") for order in orders if order.refund_tx}
    waited = {order.number: order.waiting_s for order in orders}
    payers = {payer.address for payer in reading.journal.events(PayerJoined)}

    @cache
    def who_paid(sender: str, call: str | None) -> tuple[str, str]:
        name = reading.name(sender)
        if sender in payers:
            return "payer", name
        if name in reading.merchants:
            return "service", name
        if name == "token owner":
            return name, name
        return "facilitator" if call == SETTLEMENT else "other", name

    rows: list[Sequence[Any]] = []
    for tx, at_ms, sender, call, gas, gas_price, reverted in reading.standing(
        "tx_hash", "at_ms", "sender", "call", "gas", "gas_price_wei", "revert_reason"
    ):
        step = "failed" if reverted is not None and call == SETTLEMENT else "other"
        order, step = owners.get(tx, (None, step))
        price_wei = int(gas_price)
        paid = tx, *who_paid(sender, call), gas, price_wei, gas * price_wei / COIN_WEI
        waiting_s = waited.pop(order.number, None) if order else None
        rows.append((at_ms, *_of(order, step), *paid, waiting_s))
    for order in orders:
        if not order.txs:
            nothing = None, None, None, 0, None, 0.0
            waiting_s = waited.pop(order.number, None)
            rows.append((order.at_ms, *_of(order, order.way), *nothing, waiting_s))
    return sorted(rows, key=itemgetter(0))


def _of(order: Order | None, step: str) -> Sequence[Any]:
    """Return the columns of an order, or of no order."""
    if order is None:
        return None, step, None, None, None
    return order.number, step, order.payer, order.service, order.session_id
