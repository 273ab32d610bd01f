"""Frames of money: transfers, payments, sessions, balances, transactions (conventions: `frames`).

Two classes follow the state of each payment id, and of each session's budget. They use the
service's own events. Where a journal has none (a service behind a URL), they use the answers that
the payers received.
"""

from collections import defaultdict
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, repeat
from operator import attrgetter, itemgetter
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from x402sim import events
from x402sim.events import AuthorizationConsumed, TransactionMined, TransactionUndone, Transfer
from x402sim.journal import Journal
from x402sim.protocol.refusals import Refusal, RequestError, is_final
from x402sim.report.columns import (
    Table,
    exact,
    in_rounds,
    in_turn,
    payers_exchanges,
    since,
    standing,
    tables,
    words,
)
from x402sim.report.frame import Column, Form, alike, amount, frame, moment
from x402sim.report.reading import MINT, Reading, reading_of

STATUSES = ("settled", "pending", "failed", "refused", "unpaid")
_UNPAID, _SETTLED, _FAILED, _REFUSED = map(
    STATUSES.index, ("unpaid", "settled", "failed", "refused")
)
CHANGES = ("opened", "debited", "debit undone", "expired", "refunded", "failed")


@dataclass(slots=True)
class SessionState:
    """A session's budget: deposited, released by requests and paid back, in base units."""

    at_ms: int
    session_id: str
    payment_id: str
    payer: str
    expires_ms: int
    deposited_base: int
    released_base: int = 0
    refunded_base: int = 0
    last: str = "opened"
    """The last change, and `at_ms` its moment."""
    ended: Literal["", "expired", "refunded", "failed"] = ""
    """The change that ended the session; empty while the session is active."""
    tx: str | None = None
    """The transaction of the last change: of the deposit if it opened, of the refund, or None."""

    @property
    def remaining_base(self) -> int:
        """The rest of the budget; 0 if the deposit failed."""
        left_base = self.deposited_base - self.released_base - self.refunded_base
        return 0 if self.ended == "failed" else left_base


class Payments:
    """The state of each payment id: arrays, indexed by the number of the id's text.

    `ids` are the numbers that occur. Missing is None or -1, and 0 for a text. `_unresolved` counts
    attempts without a known outcome; `_over` is an index in `STATUSES`.
    """

    def __init__(self, reading: Reading) -> None:
        every = payers_exchanges(reading.journal)
        sent, ended, payers = every.sent, every.ended, every.sent.mapped("actor", str)
        is_asked = every.to_service & every.by_payers
        offered = is_asked & every.asks
        tried = is_asked & every.pays & (sent["payment_id"] != 0)
        settled, refused, failed, undone, replaced, indexed = tables(
            reading.journal, events.PaymentSettled, events.PaymentRefused, events.PaymentFailed,
            events.PaymentUndone, events.TransactionReplaced, events.PaymentIndexed,
        )  # fmt: skip
        has_events = bool(len(settled["seq"]) or len(refused["seq"]))
        is_paid, is_over, leaves_earlier = _answers(ended, has_events=has_events)
        paid, over = tried & is_paid, tried & is_over
        measured, metered, unpaid = tables(
            reading.journal, events.UsageMeasured, events.UsageSettled, events.UsageFailed
        )
        size = len(sent.texts.all)
        self.payer, self.amount_base = np.full((2, size), None)
        self.resource, self.tx, self._unresolved = np.zeros((3, size), "int64")
        self.asked_ms, self.settled_ms, self.indexed_ms = np.full((3, size), -1)
        self._over = np.full(size, _UNPAID)
        self.ids = in_rounds(
            ended.where(offered).rounds(
                self._offered, payer=payers[offered], resource=sent["path"][offered]
            ),
            sent.where(tried).rounds(self._tried, payer=payers[tried]),
            ended.where(paid).rounds(self._paid, of=sent["payment_id"][paid]),
            ended.where(over).rounds(
                self._refuse,
                of=sent["payment_id"][over],
                final=is_over[over],
                leaves_earlier=leaves_earlier[over],
            ),
            settled.rounds(self._settled, payer=settled.mapped("payer", reading.name)),
            refused.rounds(self._refuse),
            failed.rounds(self._failed),
            undone.rounds(self._undone),
            replaced.rounds(self._replaced),
            indexed.rounds(self._indexed),
            measured.rounds(self._measured, payer=measured.mapped("payer", reading.name)),
            metered.rounds(self._used),
            unpaid.rounds(self._failed),
        )

    @property
    def status(self) -> Any:
        """The status of each id, as an index in `STATUSES`."""
        is_pending = (self._unresolved > 0) & ~self._is_final(slice(None))
        return np.where(is_pending, STATUSES.index("pending"), self._over)

    def _is_final(self, of: Any) -> Any:
        """Tell which ids no attempt changes any more: paid, or with a reverted transaction."""
        over = self._over[of]
        return (over == _SETTLED) | ((over == _FAILED) & (self.tx[of] != 0))

    # --- from the payers' exchanges ---------------------------------------------------

    def _offered(self, of: Any, at_ms: Any, payer: Any, resource: Any) -> None:
        is_first = self.asked_ms[of] < 0
        self.asked_ms[of] = np.where(is_first, at_ms, self.asked_ms[of])
        is_new = is_first & (self.payer[of] == None)  # noqa: E711 - an array
        self.payer[of] = np.where(is_new, payer, self.payer[of])
        is_new = is_first & (self.resource[of] == 0)
        self.resource[of] = np.where(is_new, resource, self.resource[of])

    def _tried(self, of: Any, payer: Any) -> None:
        self._unresolved[of] += 1
        self.payer[of] = np.where(self.settled_ms[of] < 0, payer, self.payer[of])

    def _paid(self, of: Any, at_ms: Any, tx_hash: Any) -> None:
        self._over[of], self.settled_ms[of], self.tx[of] = _SETTLED, at_ms, tx_hash

    # --- from the service's events ----------------------------------------------------

    def _settled(
        self, of: Any, at_ms: Any, tx_hash: Any, resource: Any, amount_base: Any, payer: Any
    ) -> None:
        self._paid(of, at_ms, tx_hash)
        self.resource[of], self.amount_base[of], self.payer[of] = resource, amount_base, payer

    def _refuse(self, of: Any, final: Any, leaves_earlier: Any) -> None:
        """Count a refused attempt; `events.PaymentRefused` explains the two flags."""
        counts = final.astype("bool") & ~self._is_final(of)
        of, leaves = of[counts], leaves_earlier[counts].astype("bool")
        over, left = self._over[of], np.maximum(self._unresolved[of] - 1, 0)
        self._unresolved[of] = np.where(leaves, left, 0)
        self._over[of] = np.where(leaves & (over != _UNPAID), over, _REFUSED)

    def _measured(self, of: Any, payer: Any, resource: Any) -> None:
        self.payer[of], self.resource[of], self._unresolved[of] = payer, resource, 1

    def _used(self, of: Any, at_ms: Any, tx_hash: Any, settled_base: Any) -> None:
        self._paid(of, at_ms, tx_hash)
        self.amount_base[of] = settled_base

    def _failed(self, of: Any) -> None:
        self._unresolved[of], self._over[of] = 0, _FAILED

    def _undone(self, of: Any) -> None:
        self._unresolved[of], self._over[of] = 1, _UNPAID

    def _replaced(self, of: Any, tx_hash: Any) -> None:
        self.tx[of] = tx_hash

    def _indexed(self, of: Any, at_ms: Any) -> None:
        self.indexed_ms[of] = at_ms


def _answers(ended: Table, *, has_events: bool) -> tuple[Any, Any, Any]:
    """Return three arrays of booleans: answers "paid", final refusals, and refusals that leave
    earlier attempts unchanged. Events of services, if recorded, decide instead."""
    status, stated = ended["status"], ended["final"]
    # a service answers these errors before reading the payment
    is_unread = ended.those("error", lambda error: bool(RequestError.named(error or "")))
    is_unread &= status < 500
    is_paid = ~is_unread & (status == 200) & ~np.bool_(has_events)
    by_text = ended.those("error", lambda error: error is not None and is_final(error))
    final = np.where(stated == None, by_text, stated).astype("bool")  # noqa: E711 - an array
    is_refused = (ended["error"] != 0) & final & ~is_paid & ~np.bool_(has_events)

    def leaves_earlier(error: str | None) -> bool:
        refusal = Refusal.named(error or "")
        return refusal is not None and refusal.row.leaves_earlier

    return is_paid, is_unread | is_refused, is_unread | ended.those("error", leaves_earlier)


class SessionStates:
    """Follows every session's budget; `changes` has it after each change."""

    def __init__(self, reading: Reading) -> None:
        self.changes: list[SessionState] = []
        self._name = reading.name
        self._found: dict[str, SessionState] = {}
        self._by_deposit: dict[str, SessionState] = {}
        self._refunds: dict[str, dict[str, int]] = {}
        """The refunds of a session that the chain has not undone, by their transactions."""
        self._txs: dict[str, str] = {}  # the transaction of each payment so far
        self._due: dict[str, list[tuple[int, int, SessionState]]] = {}
        """By service, a heap of the sessions that can expire, the earliest first."""
        self._pushes = count()
        opened, debited, credited, refunded, undone, expired, settled, replaced, failed = tables(
            reading.journal, events.SessionOpened, events.SessionDebited, events.DebitUndone,
            events.SessionRefunded, events.RefundUndone, events.SessionsExpired,
            events.PaymentSettled, events.TransactionReplaced, events.PaymentFailed,
        )  # fmt: skip
        if not len(opened["seq"]):
            return
        in_turn(
            settled.calls(self._settled),
            replaced.calls(self._paid),
            failed.calls(self._failed),
            opened.calls(self._opened),
            debited.calls(self._debited),
            credited.calls(self._credited),
            refunded.calls(self._refunded),
            undone.calls(self._unrefunded),
            expired.calls(self._expired),
        )

    def _change(self, at_ms: int, session: SessionState, to: str, tx: str | None = None) -> None:
        """Record a session after a change, made by the transaction `tx`."""
        session.at_ms, session.last, session.tx = at_ms, to, tx
        self.changes.append(copy(session))

    def _paid(self, payment_id: str, tx_hash: str) -> None:
        self._txs[payment_id] = tx_hash

    def _settled(self, at_ms: int, payment_id: str, tx_hash: str, actor: str) -> None:
        self._paid(payment_id, tx_hash)
        session = self._by_deposit.get(payment_id)
        if session and session.ended == "failed":  # its deposit settled after all
            session.ended = ""
            self._await_expiry(session, actor)
            self._change(at_ms, session, "opened", tx_hash)

    def _failed(self, at_ms: int, payment_id: str) -> None:
        session = self._by_deposit.get(payment_id)
        if session and not session.ended:  # an expired or refunded session stays so
            session.ended = "failed"
            self._change(at_ms, session, "failed")

    def _opened(
        self, at_ms: int, session_id: str, payment_id: str, payer: str, expires_ms: int,
        deposited_base: int, actor: str,
    ) -> None:  # fmt: skip
        session = SessionState(
            at_ms=at_ms,
            session_id=session_id,
            payment_id=payment_id,
            payer=self._name(payer),
            expires_ms=expires_ms,
            deposited_base=deposited_base,
        )
        self._found[session_id] = self._by_deposit[payment_id] = session
        self._await_expiry(session, actor)
        self._change(at_ms, session, "opened", self._txs.get(payment_id))

    def _await_expiry(self, session: SessionState, actor: str) -> None:
        due = self._due.setdefault(actor, [])
        heappush(due, (session.expires_ms, next(self._pushes), session))

    def _debited(
        self, at_ms: int, session_id: str, released_base: int, to: str = "debited"
    ) -> None:
        if session := self._found.get(session_id):
            session.released_base = released_base
            self._change(at_ms, session, to)

    def _credited(self, at_ms: int, session_id: str, released_base: int) -> None:
        self._debited(at_ms, session_id, released_base, "debit undone")

    def _refunded(self, at_ms: int, session_id: str, tx_hash: str, amount_base: int) -> None:
        if session := self._found.get(session_id):
            # after a late undone debit, a session has a second refund; two services may record the same
            refunds = self._refunds.setdefault(session_id, {})
            refunds[tx_hash] = amount_base
            session.refunded_base, session.ended = sum(refunds.values()), "refunded"
            self._change(at_ms, session, "refunded", tx_hash)

    def _unrefunded(self, at_ms: int, session_id: str, tx_hash: str | None) -> None:
        """Undo a refund that the chain has undone; all of them if an old journal names none."""
        if session := self._found.get(session_id):
            refunds = self._refunds.setdefault(session_id, {})
            for tx in [tx_hash] if tx_hash else list(refunds):
                refunds.pop(tx, None)
            session.refunded_base, session.ended = sum(refunds.values()), "expired"
            self._change(at_ms, session, "expired")

    def _expired(self, at_ms: int, actor: str, count: int) -> None:
        """Expire `count` sessions: the earliest due, of this service first. Services that share a
        database expire each other's sessions.
        """
        for _ in range(count):
            for due in self._due.values():
                while due and due[0][2].ended:
                    heappop(due)
            own = self._due.get(actor, [])
            others = [each for each in self._due.values() if each and each[0][0] <= at_ms]
            if others and not (own and own[0][0] <= at_ms):
                own = min(others)
            if not own:
                return
            session = heappop(own)[2]
            session.ended = "expired"
            self._change(at_ms, session, "expired")


# --- the frames -------------------------------------------------------------------------


class Movements:
    """Tokens that moved, or moved back when the chain undid a transfer (`is_undone`), in order.

    `transfers` are the journal's events; `rows` has for each movement its row in `transfers`.
    `uses` are the events of used authorizations, whose texts have the same numbers.
    """

    def __init__(self, reading: Reading) -> None:
        kinds = Transfer, TransactionUndone, AuthorizationConsumed
        self.transfers, undone, self.uses = tables(reading.journal, *kinds)
        self.rows: Any = np.arange(len(self.transfers["seq"]))
        self.at_ms, self.is_undone = self.transfers["at_ms"], np.zeros(len(self.rows), "bool")
        if len(undone["seq"]) and len(self.rows):
            names = "seq", "at_ms", "tx_hash"
            made, back = (
                [each[name].tolist() for name in names] for each in (self.transfers, undone)
            )
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
        """The recipient's gain by each movement, negative for an undone movement: an array."""
        return exact((self.mapped("amount_base", int) * (1 - 2 * self.is_undone)).tolist())


TRANSFERS = ("payment", "refund", "mint", "other")
"""Kinds of transfers."""


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
    Column("undone", "bool", "whether a reorganisation took the movement back"),
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
    """One row for each payment id that was issued or presented, in order of appearance.

A payment in `upto` has its row from the end of the work on; its 402 names no id.""",
    Column("payment_id", "string", ""),
    Column("payer", "category", "the payer; else the last who tried; else the receiver of the 402"),
    Column("resource", "category", "the sold resource"),
    Column("status", "category", "settled; failed (its transaction reverted, or can never be mined); pending (presented, without an end in the journal); refused; unpaid (never presented)", among=STATUSES),
    amount("amount", "the amount paid; NA unless settled"),
    Column("asked_s", "float64", "when the 402 reached the payer", "s"),
    Column("settled_s", "float64", "when the service granted access (behind a URL: when the payer learnt of it)", "s"),
    Column("indexed_s", "float64", "when the indexer found the block", "s"),
    Column("tx", "string", "the paying transaction"),
    Column("block", "Int64", "the place of this transaction in the chain, and the gas used; NA if the transaction does not stand, or the chain cannot be read"),
    Column("gas", "Int64", "the place of this transaction in the chain, and the gas used; NA if the transaction does not stand, or the chain cannot be read", "gas"),
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
    is_settled = found.status[ids] == _SETTLED
    status = pa.DictionaryArray.from_arrays(found.status[ids], pa.array(STATUSES))
    given = (
        of_tx
        | in_s
        | {
            "payment_id": words(ids, texts),
            "payer": found.payer[ids],
            "resource": words(found.resource[ids], texts),
            "status": status,
            "amount_base": np.where(is_settled, found.amount_base[ids], None),
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
    Column("tx", "string", "the transaction of the movement, or the one that a reorganisation undid"),
    amount("change", "the amount, negative for a loss"),
    amount("balance", "the balance afterwards"),
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
    # the sums so far, of each account
    account = party * len(known) + network
    order = np.argsort(account, kind="stable")
    sums, starts = change[order].cumsum(), np.flatnonzero(np.diff(account[order], prepend=-1))
    before = np.repeat(sums[starts] - change[order][starts], np.diff(starts, append=len(order)))
    found = np.empty_like(change)
    found[order] = sums - before
    given = {
        "at": moves.at_ms[of],
        "network": moves.mapped("actor", reading.network)[of],
        "party": pa.DictionaryArray.from_arrays(party, pa.array(list(known), pa.string())),
        "tx": moves.transfers.arrow("tx_hash").take(pa.array(moves.rows[of])),
        "change_base": change,
        "balance_base": found,
    }
    return form.of_columns(given, reading)


@frame(
    "One row for each time a transaction was mined, with its cost.",
    moment("when the transaction was mined"),
    Column("network", "category", "on which network; NA on the first one of a server's own journal"),
    Column("block", "Int64", "where"),
    Column("tx", "string", "where"),
    Column("sender", "category", "the sender, which paid the gas: a name or an address"),
    Column("call", "category", "the called function of the token; empty for any other call"),
    Column("gas", "Int64", "gas used, in units of gas", "gas"),
    Column("gas_price_wei", "Int64", "price of a unit, in wei", "wei"),
    Column("revert_reason", "string", "the reason of a revert; NA without a revert"),
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
