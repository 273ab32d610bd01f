"""The session budgets: deposits, released amounts, and refunds.

The status moves only as `protocol.states.SESSION` allows. A session is "refunded" when all refunds
are settled. Without a settled deposit, a session pays for nothing and is not refunded. A debit may
be undone at any time, because the client has hung up. After the session's end, the undone amount is
added to the due refund. If the refund may have been sent, the amount becomes another refund, the
next `part`: the token accepts the nonce of a refund only once, with the first amount.
Clauses: 2.6/remaining, 3/expiry-refund, 5/session-condition, 5/session-debit.
"""

from collections import deque
from functools import partial

import msgspec

from x402sim.protocol import states
from x402sim.service.store.database import Database


class SessionBudget(msgspec.Struct, frozen=True):
    """A session budget: base units, epoch milliseconds; `refund_*` once it has expired."""

    session_id: str
    payment_id: str
    payer: str
    deposited: int
    released: int
    status: str
    expires_ms: int
    refund_state: states.SessionState | None
    refund_tx_hash: str | None
    refunded: int
    """The refunds' sum, as far as known."""

    @property
    def state(self) -> states.SessionState:
        """The state of `protocol.states.SESSION`."""
        return "active" if self.status == "active" else self.refund_state or "expired"

    @property
    def remaining(self) -> int:
        """Remaining budget = deposited - released (2.6/remaining)."""
        return self.deposited - self.released


class NewSession(msgspec.Struct, frozen=True):
    """A deposit's session: the id, and epoch milliseconds."""

    session_id: str
    created_ms: int
    expires_ms: int


class Refund(msgspec.Struct, frozen=True):
    """An unspent balance owed to the payer, in base units; `payment_id` is the deposit's.

    `number` is the row in the database. `part` counts the refunds of a session from 0: all but the
    last may have been sent. `released` is the session's. Refunds are paid in
    the order of `look_s`, then of `timestamp`.
    """

    number: int
    session_id: str
    part: int
    payment_id: str
    to_address: str
    amount: int
    sent: int | None
    """The amount of a transfer, perhaps sent; None before a sending."""
    released: int
    wait_s: float
    """The seconds of the last wait; 0 without a failure."""
    look_s: float
    timestamp: int


_SELECT = (
    "SELECT s.session_id, s.payment_id, s.payer, s.deposited, s.released, s.status, "
    "s.expires_ms, (SELECT CASE WHEN count(*) > count(sent) THEN 'expired' "
    "WHEN min(status) = 'pending' THEN 'refunding' WHEN count(*) THEN 'refunded' END "
    "FROM refunds r WHERE r.session_id = s.session_id), "
    "(SELECT tx_hash FROM refunds r WHERE r.session_id = s.session_id AND part = 0), "
    "(SELECT coalesce(sum(sent), 0) FROM refunds r WHERE r.session_id = s.session_id "
    "AND r.status = 'settled') "
    "FROM sessions s"
)
_PAYABLE = (
    "session_id = {session} AND status = 'active' AND expires_ms > {now} "
    "AND deposited - released >= {amount} AND EXISTS (SELECT 1 FROM payments p "
    "WHERE p.payment_id = sessions.payment_id AND p.status = 'settled')"
)
"""Finds a session able to pay an amount (5/session-condition)."""
_HAS_BUDGET = "SELECT 1 FROM sessions WHERE " + _PAYABLE.format(session="?", now="?", amount="?")
_DEBITED = _PAYABLE.format(session="new.session_id", now="new.timestamp", amount="new.amount")
_RELEASE = f"""CREATE TEMP TRIGGER release BEFORE INSERT ON main.debits BEGIN
    UPDATE sessions SET released = reported(released + new.amount) WHERE {_DEBITED};
    SELECT RAISE(IGNORE) WHERE changes() = 0; END"""
"""A debit is one statement by this trigger: released is raised, or the debit is not written. Two
statements in a transaction take half as long again. `reported` passes the new number on; RETURNING
takes longer."""
_DEBIT = "INSERT INTO debits(session_id, amount, resource_url, timestamp) VALUES (?, ?, ?, ?)"


class SessionBudgets:
    """The sessions in the database, with debits and refunds."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._reported: deque[int] = deque(maxlen=1)
        """The last debit's released amount; SQLite keeps `_report`, which must not keep `self`."""
        database.define("reported", partial(_report, self._reported))
        database.execute(_RELEASE)

    def get(self, session_id: str) -> SessionBudget | None:
        """Return a session by its id."""
        row = self._db.one(_SELECT + " WHERE s.session_id = ?", session_id)
        return SessionBudget(*row) if row else None

    def paid_by(self, payment_id: str) -> SessionBudget | None:
        """Return a deposit's session."""
        row = self._db.one(_SELECT + " WHERE s.payment_id = ?", payment_id)
        return SessionBudget(*row) if row else None

    def open(self, attempt: int, new: NewSession) -> None:
        """Open a session with the amount and for the payer of a settled deposit.

        An older session of the deposit is kept; a session ended by the deposit's failure is active
        again. Call this in the transaction of the settlement.
        """
        self._db.execute(
            "INSERT INTO sessions(session_id, payment_id, payer, deposited, created_ms, "
            "expires_ms) SELECT ?, payment_id, from_address, CAST(amount AS INTEGER), ?, ? "
            "FROM payments WHERE attempt = ? AND status = 'settled' ON CONFLICT DO UPDATE "
            "SET status = 'active', is_canceled = 0, payer = excluded.payer WHERE is_canceled",
            new.session_id,
            new.created_ms,
            new.expires_ms,
            attempt,
        )

    def has_budget(self, session_id: str, amount: int, now_ms: int) -> bool:
        """Tell whether deposited - released >= amount, in a live session (5/session-condition)."""
        return self._db.one(_HAS_BUDGET, session_id, now_ms, amount) is not None

    def debit(self, session_id: str, amount: int, resource: str, now_ms: int) -> int | None:
        """Raise released by `amount` and return the sum; None if the session cannot pay by now.

        Clause 5/session-debit. One statement decides and writes, so no two debits spend the same
        unit.
        """
        is_paid = self._db.changed(_DEBIT, session_id, amount, resource, now_ms)
        return self._reported[0] if is_paid else None

    def undo_debit(self, session_id: str, amount: int, resource: str) -> int | None:
        """Give the newest debit of this amount and resource back; return released, or None.

        None without such a debit. If the session has ended meanwhile, the amount is added to the
        refund, or becomes the next refund after a sending.
        """
        newest = (
            "DELETE FROM debits WHERE debit_id = (SELECT debit_id FROM debits WHERE session_id = ? "
            "AND amount = ? AND resource_url = ? ORDER BY debit_id DESC LIMIT 1)"
        )
        back = "UPDATE sessions SET released = released - ? WHERE session_id = ? RETURNING released"
        owed = (
            "INSERT INTO refunds(session_id, part, to_address, amount, timestamp) SELECT "
            "session_id, (SELECT count(sent) FROM refunds r WHERE r.session_id = s.session_id), "
            "payer, ?, expires_ms FROM sessions s WHERE session_id = ? "
            "AND status = 'expired' AND NOT is_canceled "
            "ON CONFLICT(session_id, part) DO UPDATE SET amount = amount + excluded.amount"
        )
        with self._db.transaction():
            if not self._db.changed(newest, session_id, amount, resource):
                return None
            (released,) = self._db.one(back, amount, session_id)
            self._db.execute(owed, amount, session_id)
        return int(released)

    def expire(self, now_ms: int, limit: int) -> int:
        """End the sessions beyond their time and record the refunds (3/expiry-refund).

        Returns the number of ended sessions, at most `limit`. An ended session pays for nothing.
        """
        ending = (
            "SELECT session_id FROM sessions WHERE status = 'active' AND expires_ms <= ? "
            "ORDER BY expires_ms, session_id LIMIT ?"
        )
        if self._db.one(ending, now_ms, 1) is None:
            return 0
        with self._db.transaction():
            self._db.execute(
                "INSERT OR IGNORE INTO refunds(session_id, to_address, amount, timestamp) "
                f"SELECT session_id, payer, deposited - released, ? FROM ({ending}) "
                "JOIN sessions USING (session_id) WHERE deposited > released",
                now_ms,
                now_ms,
                limit,
            )
            sql = f"UPDATE sessions SET status = 'expired' WHERE session_id IN ({ending})"
            return self._db.execute(sql, now_ms, limit).rowcount

    def cancel(self, payment_id: str) -> None:
        """End the active session of a failed deposit: nothing was deposited, nothing is owed.

        An expired session stays: the refund is due only while the deposit is settled
        (`refunds_due`). Call this in the transaction of the failure.
        """
        self._db.execute(
            "UPDATE sessions SET status = 'expired', is_canceled = 1 "
            "WHERE payment_id = ? AND status = 'active'",
            payment_id,
        )

    def refunds_due(self, now_s: float, limit: int, after: Refund | None = None) -> list[Refund]:
        """Return the refunds for settled deposits due now, behind `after`.

        Refunds without a try come first, oldest first, then the longest waits. CROSS JOIN makes
        SQLite begin with the due refunds.
        """
        sql = (
            "SELECT r.rowid, session_id, part, payment_id, r.to_address, r.amount, sent, "
            "released, r.wait_s, r.look_s, r.timestamp "
            "FROM refunds r CROSS JOIN sessions USING (session_id) "
            "CROSS JOIN payments p USING (payment_id) "
            "WHERE r.status = 'pending' AND p.status = 'settled' AND r.look_s <= ? "
            "AND (r.look_s, r.timestamp, r.session_id, part) > (?, ?, ?, ?) "
            "ORDER BY r.look_s, r.timestamp, r.session_id, part LIMIT ?"
        )
        place: tuple[float, int, str, int] = (-1.0, 0, "", 0)
        if after is not None:
            place = after.look_s, after.timestamp, after.session_id, after.part
        return [Refund(*row) for row in self._db.execute(sql, now_s, *place, limit)]

    def begin_refund(self, refund: Refund) -> bool:
        """Fix the `amount` of a refund before sending; False forbids the sending.

        False for a paid refund, and for a refund changed since the listing: another service on this
        store may send another amount, or a debit was undone.
        """
        sql = (
            "UPDATE refunds SET sent = ?1 WHERE session_id = ?2 AND part = ?3 "
            "AND status = 'pending' AND coalesce(sent = ?1, (SELECT released FROM sessions s "
            "WHERE s.session_id = refunds.session_id) = ?4)"
        )
        return self._db.changed(sql, refund.amount, refund.session_id, refund.part, refund.released)

    def shallow_refunds(self, limit: int) -> list[tuple[str, int, str]]:
        """Return (session id, part, hash) of refunds in blocks not deep enough yet.

        Oldest first.
        """
        sql = (
            "SELECT session_id, part, tx_hash FROM refunds WHERE status = 'settled' "
            "AND NOT is_deep ORDER BY timestamp, session_id, part LIMIT ?"
        )
        return self._db.execute(sql, limit).fetchall()

    def is_due(self, refund: Refund) -> bool:
        """Tell whether a refund is not known to be paid."""
        sql = "SELECT 1 FROM refunds WHERE session_id = ? AND part = ? AND status = 'pending'"
        return self._db.one(sql, refund.session_id, refund.part) is not None

    def refunded(
        self,
        session_id: str,
        part: int,
        tx_hash: str,
        paid: int | None = None,
        *,
        is_deep: bool = False,
    ) -> tuple[str, int] | None:
        """Record the transaction of a refund, final with `is_deep`.

        Returns the hash and the amount of another transaction recorded before: the chain has only
        one of the two.

        `paid` are the base units of the transaction, if read from the chain; else the `sent` amount
        counts. If the transaction paid less, the next part owes the rest.
        """
        rest = (
            "INSERT INTO refunds(session_id, part, to_address, amount, timestamp) SELECT "
            "session_id, (SELECT count(sent) FROM refunds r WHERE r.session_id = s.session_id), "
            "to_address, sent - ?1, timestamp FROM refunds s "
            "WHERE session_id = ?2 AND part = ?3 AND sent > ?1 "
            "ON CONFLICT(session_id, part) DO UPDATE SET amount = amount + excluded.amount"
        )
        settled = (
            "UPDATE refunds SET status = 'settled', tx_hash = ?1, is_deep = ?2, "
            "sent = iif(sent IS NULL, NULL, coalesce(?3, sent)) WHERE session_id = ?4 AND part = ?5"
        )
        other = (
            "SELECT tx_hash, sent FROM refunds WHERE session_id = ? AND part = ? "
            "AND status = 'settled' AND tx_hash != ?"
        )
        with self._db.transaction():
            replaced: tuple[str, int] | None = self._db.one(other, session_id, part, tx_hash)
            self._db.execute(rest, paid, session_id, part)
            self._db.execute(settled, tx_hash, is_deep, paid, session_id, part)
        return replaced

    def undo_refund(self, session_id: str, part: int) -> int | None:
        """Make a refund due again after the chain has undone the transfer.

        Returns the undone amount, in base units; None for a due refund.
        """
        undone = self._db.one(
            "UPDATE refunds SET status = 'pending', look_s = 0, wait_s = 0 "
            "WHERE session_id = ? AND part = ? AND status = 'settled' RETURNING sent",
            session_id,
            part,
        )
        return undone and int(undone[0])


def _report(reported: deque[int], released: int) -> int:
    reported.append(released)
    return released
