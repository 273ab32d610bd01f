"""What the service must not forget: payments, sessions, debits, refunds, reputation.

SQLite, one connection, every change committed before it is answered, so that a kill -9
loses nothing that was promised. What must hold (one settlement per payment id, one use
of an authorization, one session per deposit, released <= deposited) is held by the
database itself.
Clauses: 2.4/record, 2.4/block-null, 3/record-outlives-cache, 5/stored-records, 8/indexer-batch.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from x402sim.protocol.messages import PaymentRecord

PaymentStatus = Literal["pending", "settled", "failed"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS payments(
    payment_id TEXT PRIMARY KEY, tx_hash TEXT UNIQUE, from_address TEXT NOT NULL,
    to_address TEXT NOT NULL, amount TEXT NOT NULL, resource_url TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'settled', 'failed')),
    block_number INTEGER, timestamp INTEGER NOT NULL,
    header TEXT NOT NULL, authorization_key TEXT UNIQUE, valid_before_s INTEGER,
    duration INTEGER NOT NULL,
    CHECK (status != 'settled' OR tx_hash IS NOT NULL));
CREATE INDEX IF NOT EXISTS unindexed ON payments(timestamp)
    WHERE block_number IS NULL AND status = 'settled';
CREATE INDEX IF NOT EXISTS unresolved ON payments(timestamp) WHERE status = 'pending';
CREATE TABLE IF NOT EXISTS sessions(
    session_id TEXT PRIMARY KEY, payment_id TEXT NOT NULL UNIQUE REFERENCES payments,
    payer TEXT NOT NULL, deposited INTEGER NOT NULL CHECK (deposited > 0),
    released INTEGER NOT NULL DEFAULT 0 CHECK (released BETWEEN 0 AND deposited),
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'expired')),
    created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS expiring ON sessions(expires_ms) WHERE status = 'active';
CREATE TABLE IF NOT EXISTS debits(
    debit_id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions,
    amount INTEGER NOT NULL CHECK (amount > 0), resource_url TEXT NOT NULL,
    timestamp INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS refunds(
    session_id TEXT PRIMARY KEY REFERENCES sessions, to_address TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    status TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'settled')),
    tx_hash TEXT UNIQUE, timestamp INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS secrets(name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS reputation(resource_url TEXT PRIMARY KEY, payments INTEGER NOT NULL);
"""
_TABLES = ("reputation", "refunds", "debits", "sessions", "payments")
_RECORD = (
    "payment_id, tx_hash, from_address, to_address, amount, resource_url, status, "
    "block_number, timestamp"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A payment id taken for settlement, before the facilitator is asked to move money."""

    payment_id: str
    from_address: str
    to_address: str
    amount: str
    resource_url: str
    timestamp_ms: int
    header: str
    authorization_key: str | None
    valid_before_s: int | None
    duration: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A payment record and what the service keeps beside it."""

    record: PaymentRecord
    header: str
    authorization_key: str | None
    valid_before_s: int | None
    duration: int


@dataclass(frozen=True, slots=True)
class Session:
    """A session budget: base units, epoch milliseconds; `refund_*` once it has expired."""

    session_id: str
    payment_id: str
    payer: str
    deposited: int
    released: int
    status: str
    expires_ms: int
    refund_status: str | None
    refund_tx_hash: str | None

    @property
    def remaining(self) -> int:
        """Remaining budget = deposited - released (2.6/remaining)."""
        return self.deposited - self.released


@dataclass(frozen=True, slots=True)
class Refund:
    """An unspent balance that is owed: base units."""

    session_id: str
    to_address: str
    amount: int


class Store:
    """The database; `file` None keeps it in memory."""

    def __init__(self, file: Path | None = None) -> None:
        self._db = sqlite3.connect(file or ":memory:", isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._db.executescript(_SCHEMA)
            (health,) = self._one("PRAGMA quick_check(1)")
            if health != "ok":
                raise sqlite3.DatabaseError(f"it is damaged: {health}")
        except sqlite3.Error:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit all of it or none of it."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _one(self, sql: str, *values: Any) -> Any:
        return self._db.execute(sql, values).fetchone()

    def _did(self, sql: str, *values: Any) -> bool:
        return self._db.execute(sql, values).rowcount == 1

    # --- payments --------------------------------------------------------------------

    def payment(self, payment_id: str) -> Stored | None:
        """Return a stored payment."""
        row = self._one(_SELECT_STORED + " WHERE payment_id = ?", payment_id)
        return _stored(row) if row else None

    def pending(self) -> list[Stored]:
        """Return the payments whose outcome is unknown, oldest first."""
        sql = _SELECT_STORED + " WHERE status = 'pending' ORDER BY timestamp"
        return [_stored(row) for row in self._db.execute(sql)]

    def grants(self, payment_id: str, resource: str) -> bool:
        """Tell whether a settled record is for exactly this resource (5/stored-records).

        However old it is (3/record-outlives-cache).
        """
        sql = (
            "SELECT 1 FROM payments WHERE payment_id = ? AND resource_url = ? "
            "AND status = 'settled'"
        )
        return self._one(sql, payment_id, resource) is not None

    def claim(self, claim: Claim) -> bool:
        """Record a payment as pending; False if its id or its authorization is taken.

        Its block is null until the indexer finds it (2.4/block-null).
        An earlier attempt that failed without a transaction gives way.
        """
        with self._transaction():
            self._db.execute(
                "DELETE FROM payments WHERE payment_id = ? AND status = 'failed' "
                "AND tx_hash IS NULL",
                (claim.payment_id,),
            )
            return self._did(
                f"INSERT INTO payments({_RECORD}, header, authorization_key, valid_before_s, "
                "duration) VALUES (?, NULL, ?, ?, ?, ?, 'pending', NULL, ?, ?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                claim.payment_id,
                claim.from_address,
                claim.to_address,
                claim.amount,
                claim.resource_url,
                claim.timestamp_ms,
                claim.header,
                claim.authorization_key,
                claim.valid_before_s,
                claim.duration,
            )

    def release(self, payment_id: str) -> None:
        """Forget a claim: the facilitator said that no money moved."""
        self._did("DELETE FROM payments WHERE payment_id = ? AND status = 'pending'", payment_id)

    def settle(
        self, payment_id: str, tx_hash: str, payer: str, session: tuple[str, int, int] | None
    ) -> bool:
        """Store a pending payment as settled (4.1/store-settled); False if it is not pending.

        With `session` (its id, creation and expiry in epoch milliseconds) the deposit
        becomes a session in the same transaction: never two, never another amount. A
        transaction hash belongs to one payment only: a second claim to it is False.
        """
        with self._transaction():
            settled = self._did(
                "UPDATE OR IGNORE payments SET status = 'settled', tx_hash = ?, from_address = ? "
                "WHERE payment_id = ? AND status = 'pending'",
                tx_hash,
                payer,
                payment_id,
            )
            if settled and session:
                self._db.execute(
                    "INSERT INTO sessions(session_id, payment_id, payer, deposited, created_ms, "
                    "expires_ms) SELECT ?, payment_id, from_address, CAST(amount AS INTEGER), ?, ? "
                    "FROM payments WHERE payment_id = ?",
                    (*session, payment_id),
                )
            return settled

    def fail(self, payment_id: str) -> None:
        """Mark a payment as failed: its transaction reverted, or can never be mined.

        A session that it paid for ends with it: nothing was deposited, nothing is owed.
        """
        with self._transaction():
            self._did(
                "UPDATE payments SET status = 'failed', authorization_key = NULL "
                "WHERE payment_id = ?",
                payment_id,
            )
            self._did("UPDATE sessions SET status = 'expired' WHERE payment_id = ?", payment_id)
            self._db.execute(
                "DELETE FROM refunds WHERE status = 'pending' AND session_id IN "
                "(SELECT session_id FROM sessions WHERE payment_id = ?)",
                (payment_id,),
            )

    def unindexed(self, limit: int) -> list[tuple[str, str]]:
        """Return (payment id, hash) of settled payments without a block, newest first.

        Clause 8/indexer-batch: at most `limit` of them.
        """
        sql = (
            "SELECT payment_id, tx_hash FROM payments WHERE block_number IS NULL "
            "AND status = 'settled' ORDER BY timestamp DESC, rowid DESC LIMIT ?"
        )
        return self._db.execute(sql, (limit,)).fetchall()

    def backlog(self) -> int:
        """Return how many settled records have no block yet."""
        count: int = self._one(
            "SELECT count(*) FROM payments WHERE block_number IS NULL AND status = 'settled'"
        )[0]
        return count

    def set_block(self, payment_id: str, block_number: int) -> None:
        """Complete a record with its block (8/indexer-query)."""
        self._did(
            "UPDATE payments SET block_number = ? WHERE payment_id = ?", block_number, payment_id
        )

    def update_reputation(self) -> None:
        """Count the settled payments that are in a block, per resource (6/reputation)."""
        self._db.execute(
            "INSERT OR REPLACE INTO reputation SELECT resource_url, count(*) FROM payments "
            "WHERE status = 'settled' AND block_number IS NOT NULL GROUP BY resource_url"
        )

    def reputation(self, resource: str) -> int:
        """Return the reputation of whoever sells a resource."""
        row = self._one("SELECT payments FROM reputation WHERE resource_url = ?", resource)
        return int(row[0]) if row else 0

    # --- sessions --------------------------------------------------------------------

    def session(self, session_id: str) -> Session | None:
        """Return a session by its id."""
        row = self._one(_SELECT_SESSION + " WHERE s.session_id = ?", session_id)
        return Session(*row) if row else None

    def session_paid_by(self, payment_id: str) -> Session | None:
        """Return the one session that a deposit made."""
        row = self._one(_SELECT_SESSION + " WHERE s.payment_id = ?", payment_id)
        return Session(*row) if row else None

    def debit(self, session_id: str, amount: int, resource: str, now_ms: int) -> bool:
        """Raise released by `amount`, if the budget and the time allow (5/session-debit).

        One statement decides, so that no two debits can spend the same unit.
        """
        with self._transaction():
            debited = self._did(
                "UPDATE sessions SET released = released + ? WHERE session_id = ? "
                "AND status = 'active' AND expires_ms > ? AND deposited - released >= ?",
                amount,
                session_id,
                now_ms,
                amount,
            )
            if debited:
                self._db.execute(
                    "INSERT INTO debits(session_id, amount, resource_url, timestamp) "
                    "VALUES (?, ?, ?, ?)",
                    (session_id, amount, resource, now_ms),
                )
            return debited

    def expire(self, now_ms: int) -> int:
        """End the sessions whose time has passed and note what is owed (3/expiry-refund).

        Returns how many ended. From here on nothing can be debited.
        """
        due = "SELECT 1 FROM sessions WHERE status = 'active' AND expires_ms <= ? LIMIT 1"
        if self._one(due, now_ms) is None:
            return 0
        with self._transaction():
            self._db.execute(
                "INSERT INTO refunds(session_id, to_address, amount, timestamp) "
                "SELECT session_id, payer, deposited - released, ? FROM sessions "
                "WHERE status = 'active' AND expires_ms <= ? AND deposited > released",
                (now_ms, now_ms),
            )
            return self._db.execute(
                "UPDATE sessions SET status = 'expired' WHERE status = 'active' "
                "AND expires_ms <= ?",
                (now_ms,),
            ).rowcount

    def refunds_due(self) -> list[Refund]:
        """Return what is owed and not known to be paid, oldest first."""
        sql = (
            "SELECT session_id, to_address, amount FROM refunds WHERE status = 'pending' "
            "ORDER BY timestamp, session_id"
        )
        return [Refund(*row) for row in self._db.execute(sql)]

    def deposit_of(self, session_id: str) -> tuple[str, str]:
        """Return the payment id and the transaction hash of a session's deposit."""
        sql = "SELECT payment_id, tx_hash FROM sessions JOIN payments USING (payment_id)"
        row: tuple[str, str] = self._one(sql + " WHERE session_id = ?", session_id)
        return row

    def is_due(self, refund: Refund) -> bool:
        """Tell whether a refund is still not known to be paid."""
        sql = "SELECT 1 FROM refunds WHERE session_id = ? AND status = 'pending'"
        return self._one(sql, refund.session_id) is not None

    def refunded(self, session_id: str, tx_hash: str) -> None:
        """Note that a refund is on chain."""
        self._did(
            "UPDATE refunds SET status = 'settled', tx_hash = ? WHERE session_id = ?",
            tx_hash,
            session_id,
        )

    # --- the whole -------------------------------------------------------------------

    def secret(self, name: str, new: bytes) -> bytes:
        """Return a secret of this database: `new`, or what was stored under the name before."""
        self._db.execute("INSERT OR IGNORE INTO secrets VALUES (?, ?)", (name, new))
        return bytes(self._one("SELECT value FROM secrets WHERE name = ?", name)[0])

    def copy(self) -> sqlite3.Connection:
        """Return a copy of the whole database, in memory."""
        copy = sqlite3.connect(":memory:", isolation_level=None)
        self._db.backup(copy)
        return copy

    def restore(self, copy: sqlite3.Connection) -> None:
        """Go back to a copy."""
        copy.backup(self._db)

    def clear(self) -> None:
        """Forget everything."""
        with self._transaction():
            for table in _TABLES:
                self._db.execute(f"DELETE FROM {table}")

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        return {t: self._one(f"SELECT count(*) FROM {t}")[0] for t in _TABLES}


_SELECT_STORED = (
    f"SELECT {_RECORD}, header, authorization_key, valid_before_s, duration FROM payments"
)
_SELECT_SESSION = (
    "SELECT s.session_id, s.payment_id, s.payer, s.deposited, s.released, s.status, "
    "s.expires_ms, r.status, r.tx_hash FROM sessions s LEFT JOIN refunds r USING (session_id)"
)


def _stored(row: Sequence[Any]) -> Stored:
    record = dict(zip(_RECORD.split(", "), row[:9], strict=True))
    return Stored(PaymentRecord(**record), *row[9:])
