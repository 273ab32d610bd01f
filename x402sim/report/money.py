"""What happened to the money, as tidy tables: see `frames` for their conventions."""

from collections import defaultdict
from collections.abc import Callable
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from x402sim.events import AuthorizationConsumed, TransactionMined, TransactionUndone, Transfer
from x402sim.journal import Journal
from x402sim.report.columns import Table, exact, since, standing, tables, words
from x402sim.report.frame import Column, Form, alike, amount, frame, moment
from x402sim.report.payment_states import CHANGES, STATUSES, Payments, SessionStates
from x402sim.report.reading import MINT, Reading, reading_of


class Movements:
    """Tokens that moved or (`is_undone`) moved back, in order.

    `transfers` has them as the journal does, and `rows` says which of these each movement is.
    `uses` are of authorizations, with the same numbers of texts.
    """

    def __init__(self, reading: Reading) -> None:
        kinds = Transfer, TransactionUndone, AuthorizationConsumed
        self.transfers, undone, self.uses = tables(reading.journal, *kinds)
        self.rows: Any = np.arange(len(self.transfers["seq"]))
        self.at_ms, self.is_undone = self.transfers["at_ms"], np.zeros(len(self.rows), "bool")
        if len(undone["seq"]) and len(self.rows):
            self._undo(undone)

    def _undo(self, undone: Table) -> None:
        """Add what moves back when a transaction is undone: all that it had moved until then."""
        names = "seq", "at_ms", "tx_hash"
        made, back = ([each[name].tolist() for name in names] for each in (self.transfers, undone))
        happened = [
            *zip(*made, self.rows.tolist(), strict=True),
            *zip(*back, repeat(None), strict=False),
        ]
        found: list[tuple[int, int, bool]] = []
        standing: dict[int, list[int]] = {}
        for _, at_ms, tx, row in sorted(happened, key=itemgetter(0)):
            if row is not None:
                standing.setdefault(tx, []).append(row)
                found.append((row, at_ms, False))
            else:
                found += [(each, at_ms, True) for each in standing.pop(tx, ())]
        self.rows, self.at_ms, self.is_undone = map(np.array, zip(*found, strict=True))

    def mapped(self, name: str, to: Callable[[str], Any]) -> Any:
        """Return a text of each movement, mapped by a function, as an array of objects."""
        return self.transfers.mapped(name, to)[self.rows]

    @property
    def amounts_base(self) -> Any:
        """How much the recipient has more by each movement, negative if it was undone: an array."""
        return exact((self.mapped("amount_base", int) * (1 - 2 * self.is_undone)).tolist())


TRANSFERS = ("payment", "refund", "mint", "other")
"""What a transfer can be."""


@frame(
    """One row for each movement of the token on the chain, in order.

A transaction that a reorganisation takes back and another block takes in again has
two rows, the first of them undone. To count money, leave out what was undone.""",
    moment("when it was mined"),
    Column("network", "category", "on which network; NA on the first one of a server's own journal"),
    Column("block", "Int64", "where"),
    Column("tx", "string", "where"),
    alike(("sender", "to"), "category", "a payer's name, \"merchant\" (of several services, the service's name), \"token owner\", \"mint\" (the zero address), or the address"),
    alike(("sender_address", "to_address"), "string", "their addresses"),
    amount("amount", "how much"),
    Column("kind", "category", "payment: to a merchant by a signed authorization; refund: from a merchant by one; mint; other", among=TRANSFERS),
    Column("undone", "bool", "whether a reorganisation took it back"),
)  # fmt: skip
def transfers(journal: Journal, form: Form) -> pd.DataFrame:
    reading = reading_of(journal)
    moves = Movements(reading)
    moved, uses, name = moves.transfers, moves.uses, reading.name
    is_use = uses.those("use", lambda use: use == "used")
    authorizer = np.full(len(moved.texts.all), -1)  # of each transaction, by the number of its hash
    authorizer[uses["tx_hash"][is_use]] = uses["authorizer"][is_use]
    is_signed = authorizer[moved["tx_hash"]] == moved["sender"]
    cases = {
        "mint": moved.those("sender", lambda each: name(each) == MINT),
        "payment": is_signed & moved.those("to", lambda each: name(each) in reading.merchants),
        "refund": is_signed & moved.those("sender", lambda each: name(each) in reading.merchants),
    }
    places = list(map(TRANSFERS.index, cases))
    kind = np.select(list(cases.values()), places, TRANSFERS.index("other"))
    is_undone = np.zeros(len(kind), "bool")
    is_undone[moves.rows[moves.is_undone]] = True
    given = {
        "network": moved.mapped("actor", reading.network),
        "tx": moved.arrow("tx_hash"),
        "sender": moved.mapped("sender", name),
        "to": moved.mapped("to", name),
        "sender_address": moved.arrow("sender"),
        "to_address": moved.arrow("to"),
        "amount_base": moved.mapped("amount_base", int),
        "kind": pa.DictionaryArray.from_arrays(kind, pa.array(TRANSFERS)),
        "undone": is_undone,
    }
    return form.of_columns(given, reading, moved)


@frame(
    "One row for each payment id that was issued or presented, in order of appearance.",
    Column("payment_id", "string", ""),
    Column("payer", "category", "who paid; else who last tried to; else who got its 402"),
    Column("resource", "category", "what it is for"),
    Column("status", "category", "settled; failed (its transaction reverted, or can never be mined); pending (presented, and the journal does not say that it is over); refused; unpaid (never presented)", among=STATUSES),
    amount("amount", "what was paid; NA unless it settled"),
    Column("asked_s", "float64", "when its 402 reached the payer", "s"),
    Column("settled_s", "float64", "when the service granted access (behind a URL: when the payer learnt of it)", "s"),
    Column("indexed_s", "float64", "when the indexer found its block", "s"),
    Column("tx", "string", "the transaction that paid for it"),
    Column("block", "Int64", "where that transaction stands in the chain, and the gas it used; NA if it does not stand, or the chain cannot be read"),
    Column("gas", "Int64", "where that transaction stands in the chain, and the gas it used; NA if it does not stand, or the chain cannot be read", "gas"),
)  # fmt: skip
def payments(journal: Journal, form: Form) -> pd.DataFrame:
    reading, mined = reading_of(journal), standing(journal)
    found, texts = Payments(reading), mined.texts
    ids = found.ids
    place = np.full(len(texts.all), -1)  # of each transaction, by the number of its hash
    place[mined["tx_hash"]] = np.arange(len(mined["tx_hash"]))
    stands = place[found.tx[ids]]
    of_tx = {
        name: pa.array(np.append(mined[name], 0)[stands], mask=stands < 0)
        for name in ("block", "gas")
    }
    moments = {name: getattr(found, f"{name}_ms")[ids] for name in ("asked", "settled", "indexed")}
    in_s = {
        f"{name}_s": since(pa.array(at_ms, mask=at_ms < 0), reading.start_ms)
        for name, at_ms in moments.items()
    }
    status = pa.DictionaryArray.from_arrays(found.status[ids], pa.array(STATUSES))
    given = (
        of_tx
        | in_s
        | {
            "payment_id": words(ids, texts),
            "payer": found.payer[ids],
            "resource": words(found.resource[ids], texts),
            "status": status,
            "amount_base": found.amount_base[ids],
            "tx": words(found.tx[ids], texts),
        }
    )
    return form.of_columns(given, reading)


@frame(
    "One row for each change of each session's budget, in order.",
    alike(("session_id", "payer"), "category", "whose session"),
    Column("event", "category", "opened, debited, debit undone, expired, refunded; failed: with its deposit", among=CHANGES),
    moment("when"),
    Column("expires_s", "float64", "when it is due to expire, by the service's clock", "s"),
    Column("payment_id", "string", "of the deposit, as in `payments` and `orders`"),
    Column("tx", "string", "of the deposit (opened) or of the refund (refunded), as in `transfers` and `transactions`; else NA"),
    amount("deposited", "the deposit"),
    amount("released", "spent by requests, after the event"),
    amount("refunded", "paid back, after the event"),
    amount("remaining", "deposited - released - refunded; 0 if failed"),
)  # fmt: skip
def sessions(journal: Journal, form: Form) -> pd.DataFrame:
    reading = reading_of(journal)
    return form.of_objects(SessionStates(reading).changes, reading, event=attrgetter("last"))


@frame(
    """One row for each change of each party's balance on the chain, in order.

A balance counts from the beginning of the run: what was held before is not known.""",
    moment("when"),
    Column("network", "category", "on which network; NA on the first one of a server's own journal"),
    Column("party", "category", "who: a payer's name, \"merchant\" (of several services, the service's name), or an address"),
    Column("tx", "string", "the transaction that moved it, or that a reorganisation undid"),
    amount("change", "by how much, negative if it fell"),
    amount("balance", "the balance after it"),
)  # fmt: skip
def balances(journal: Journal, form: Form) -> pd.DataFrame:
    reading = reading_of(journal)
    moves = Movements(reading)
    known: dict[str | None, int] = defaultdict(lambda: len(known))
    sides = [
        moves.mapped(side, lambda each: known[reading.name(each)]) for side in ("sender", "to")
    ]
    party = np.stack(sides, axis=1).ravel().astype("int64")
    places = np.flatnonzero(party != known[MINT])
    of, party = places // 2, party[places]
    network = moves.mapped("actor", lambda chain: known[reading.network(chain)])[of].astype("int64")
    amounts_base = moves.amounts_base
    change = np.stack([-amounts_base, amounts_base], axis=1).ravel()[places]
    given = {
        "at": moves.at_ms[of],
        "network": moves.mapped("actor", reading.network)[of],
        "party": pa.DictionaryArray.from_arrays(party, pa.array(list(known), pa.string())),
        "tx": moves.transfers.arrow("tx_hash").take(pa.array(moves.rows[of])),
        "change_base": change,
        "balance_base": _running(change, party * len(known) + network),
    }
    return form.of_columns(given, reading)


def _running(values: Any, account: Any) -> Any:
    """Return the sum of each account up to and with each value."""
    order = np.argsort(account, kind="stable")
    sums, starts = values[order].cumsum(), np.flatnonzero(np.diff(account[order], prepend=-1))
    before = np.repeat(sums[starts] - values[order][starts], np.diff(starts, append=len(order)))
    found = np.empty_like(values)
    found[order] = sums - before
    return found


@frame(
    "One row each time a transaction was mined, with what it cost.",
    moment("when it was mined"),
    Column("network", "category", "on which network; NA on the first one of a server's own journal"),
    Column("block", "Int64", "where"),
    Column("tx", "string", "where"),
    Column("sender", "category", "who sent it, and so paid its gas: a name or an address"),
    Column("call", "category", "the function of the token that it called; empty for any other call"),
    Column("gas", "Int64", "gas used, in units of gas", "gas"),
    Column("gas_price_wei", "Int64", "price of a unit, in wei", "wei"),
    Column("revert_reason", "string", "why it reverted; NA if it did not"),
)  # fmt: skip
def transactions(journal: Journal, form: Form) -> pd.DataFrame:
    reading = reading_of(journal)
    (mined,) = tables(journal, TransactionMined)
    given = {
        "network": mined.mapped("actor", reading.network),
        "tx": mined.arrow("tx_hash"),
        "sender": mined.mapped("sender", reading.name),
        "gas_price_wei": mined.mapped("gas_price_wei", int),
    }
    return form.of_columns(given, reading, mined)
