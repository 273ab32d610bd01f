"""What everything has cost: gas, fees and waiting, by order and by who paid.

Each transaction that stands in the chain is counted once, so that the fees add up to what the
native balances have lost.
"""

from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any

import pandas as pd
import pyarrow as pa

from x402sim.events import PayerJoined, TransactionMined
from x402sim.journal import Journal
from x402sim.report.columns import kinds, of_columns, one_of, since
from x402sim.report.orders import Order, orders_of
from x402sim.report.reading import Reading

STEPS = ("payment", "deposit", "refund", "session", "failed", "other")
PARTIES = ("payer", "facilitator", "service", "token owner", "other")
COIN_WEI = 10**18
SETTLEMENT = "transferWithAuthorization"

_COSTS = kinds(
    "t_s at order step payer service session_id tx party sender gas gas_price_wei fee_coins "
    "fee waiting_s",
    step=one_of(*STEPS),
    party=one_of(*PARTIES),
)


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
    at, *others = list(zip(*_rows(reading), strict=True)) or [()] * (len(_COSTS) - 1)
    moments = pa.array(at, pa.int64())
    columns = since(moments, reading.start_ms), moments, *others
    found = of_columns(_COSTS, columns, reading.decimals)
    return found if _coin_price(reading) else found.drop(columns="fee")


def _coin_price(reading: Reading) -> float | None:
    price = reading.begin.options.get("coin_price") if reading.begin else None
    return float(price) if price else None


def _rows(reading: Reading) -> list[Sequence[Any]]:
    """Return all columns but the first, whose moments the second has, in order."""
    found = list(enumerate(orders_of(reading.journal), 1))
    owners = {tx: (n, order, order.way) for n, order in found for tx in order.txs}
    owners |= {order.refund_tx: (n, order, "refund") for n, order in found if order.refund_tx}
    waited = {n: (order.served_ms - order.asked_ms) / 1000 for n, order in found if order.served_ms}
    coin_price = _coin_price(reading)
    payers = {payer.address for _, payer in reading.of(PayerJoined)}

    @cache
    def who_paid(sender: str, call: str | None) -> tuple[str, str]:
        name = reading.name(sender)
        settles = call == SETTLEMENT
        return _party(name, is_payer=sender in payers, settles=settles, of=reading), name

    rows: list[Sequence[Any]] = []
    for tx, at_ms, sender, call, gas, gas_price, reverted in reading.standing(
        TransactionMined, "tx_hash", "at_ms", "sender", "call", "gas", "gas_price_wei",
        "revert_reason",
    ):  # fmt: skip
        step = "failed" if reverted is not None and call == SETTLEMENT else "other"
        n, order, step = owners.get(tx, (None, None, step))
        price_wei = int(gas_price)
        coins = gas * price_wei / COIN_WEI
        paid = tx, *who_paid(sender, call), gas, price_wei, coins
        fee = coin_price and coins * coin_price
        rows.append((at_ms, *_of(n, order, step), *paid, fee, waited.pop(n or 0, None)))
    for n, order in found:
        if not order.txs:
            nothing = None, None, None, 0, None, 0.0, coin_price and 0.0
            rows.append((order.asked_ms, *_of(n, order, order.way), *nothing, waited.pop(n, None)))
    return sorted(rows, key=itemgetter(0))


def _of(number: int | None, order: Order | None, step: str) -> Sequence[Any]:
    """Return the columns of an order, or of no order."""
    if order is None:
        return None, step, None, None, None
    return number, step, order.payer, order.service, order.session_id


def _party(name: str, *, is_payer: bool, settles: bool, of: Reading) -> str:
    """Return which of `PARTIES` sent a transaction."""
    if is_payer:
        return "payer"
    if name in of.merchants:
        return "service"
    if name == "token owner":
        return name
    return "facilitator" if settles else "other"
