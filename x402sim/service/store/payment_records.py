"""The payment records: claimed, then settled or failed, and later completed with a block.

The status moves only as `protocol.states.PAYMENT` allows.
Clauses: 2.4/record, 2.4/block-null, 3/record-outlives-cache, 4.1/store-settled,
5/stored-records, 6/reputation, 8/indexer-batch.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from x402sim.protocol import states
from x402sim.protocol.crypto import Address, checksum
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import PaymentRecord, PaymentRequirements
from x402sim.protocol.money import MAX_STORED
from x402sim.service.store.database import Database
from x402sim.service.store.session_budgets import NewSession, Sessions


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A payment id taken for one authorization, before the facilitator is asked anything.

    `seen_unused`: the chain said, before the claim, that the authorization was not used yet.
    """

    payment_id: str
    payment: PresentedPayment
    issued: PaymentRequirements
    timestamp_ms: int
    duration: int
    seen_unused: bool


class ClaimedAuthorization(msgspec.Struct, frozen=True):
    """The authorization that a payment claims: whose, which nonce (32 bytes), Unix seconds."""

    payer: Address
    nonce: bytes
    valid_before_s: int


class Stored(msgspec.Struct, frozen=True):
    """A payment record, and what the service keeps beside it.

    `authorization` is None if the header cannot be read. `seen_unused` as in `Claim`.
    """

    record: PaymentRecord
    header: str
    authorization: ClaimedAuthorization | None
    duration: int
    seen_unused: bool


_RECORD = PaymentRecord.__struct_fields__
_CLAIMED = ClaimedAuthorization.__struct_fields__
_NAMES = (*_RECORD, "header", "duration", "seen_unused", *_CLAIMED)
_COLUMNS = ", ".join(_NAMES)
_PLACES = ", ".join("?" for _ in _NAMES)
_SELECT = f"SELECT {_COLUMNS} FROM payments"


def _claimed(claim: Claim) -> Stored:
    """Return the pending record of a claim."""
    auth, issued = claim.payment.authorization, claim.issued
    record = PaymentRecord(
        payment_id=claim.payment_id,
        tx_hash=None,
        from_address=checksum(auth.from_) if auth else "",
        to_address=issued.pay_to,
        amount=issued.max_amount_required,
        resource_url=issued.resource,
        status="pending",
        block_number=None,
        timestamp=claim.timestamp_ms,
    )
    claimed = None
    if auth:
        valid_before_s = min(auth.valid_before, MAX_STORED)
        claimed = ClaimedAuthorization(auth.from_, auth.nonce, valid_before_s)
    return Stored(record, claim.payment.text, claimed, claim.duration, claim.seen_unused)


def _stored(row: Sequence[Any]) -> Stored:
    record = PaymentRecord(**dict(zip(_RECORD, row, strict=False)))
    header, duration, seen_unused, payer, nonce, valid_before_s = row[len(_RECORD) :]
    claimed = None if payer is None else ClaimedAuthorization(payer, nonce, valid_before_s)
    return Stored(record, header, claimed, duration, bool(seen_unused))


class Payments:
    """The payment records in the database."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._db = database
        self._sessions = sessions

    def get(self, payment_id: str) -> Stored | None:
        """Return a stored payment."""
        row = self._db.one(_SELECT + " WHERE payment_id = ?", payment_id)
        return _stored(row) if row else None

    def pending(self) -> list[Stored]:
        """Return the payments whose outcome is unknown, oldest first."""
        sql = _SELECT + " WHERE status = 'pending' ORDER BY timestamp"
        return [_stored(row) for row in self._db.execute(sql)]

    def grants(self, payment_id: str, resource: str) -> bool:
        """Tell whether a settled record is for exactly this resource (5/stored-records).

        However old it is (3/record-outlives-cache).
        """
        sql = (
            "SELECT 1 FROM payments WHERE payment_id = ? AND resource_url = ? "
            "AND status = 'settled'"
        )
        return self._db.one(sql, payment_id, resource) is not None

    def paid_by(self, tx_hash: str) -> str | None:
        """Return the id of a settled payment whose transaction this is, or None."""
        sql = "SELECT payment_id FROM payments WHERE tx_hash = ? AND status = 'settled'"
        row = self._db.one(sql, tx_hash)
        return str(row[0]) if row else None

    # --- the moves of protocol.states.PAYMENT ------------------------------------------

    def insert_pending(self, claim: Claim) -> Stored | None:
        """Record a payment as pending; None if its authorization pays for another payment id.

        Its block is null until the indexer finds it (2.4/block-null). An earlier attempt
        that failed is replaced. Raises `IllegalMove` if the id is taken.
        """
        stored = _claimed(claim)
        with self._db.transaction():
            before = self._status(claim.payment_id)
            if self._is_claimed_elsewhere(stored):
                return None
            states.require(states.PAYMENT, before, "pending")
            if before is not None:
                self._delete(claim.payment_id)
            self._insert(stored)
        return stored

    def see_unused(self, payment_id: str) -> None:
        """Record that the chain says of a claimed authorization that it is not used yet."""
        self._db.execute("UPDATE payments SET seen_unused = 1 WHERE payment_id = ?", payment_id)

    def drop_claim(self, payment_id: str) -> None:
        """Delete a pending payment whose header cannot pay. Its id and authorization are free."""
        with self._db.transaction():
            if self._require_move(payment_id, None):
                self._delete(payment_id)

    def mark_settled(self, payment_id: str, tx_hash: str, session: NewSession | None) -> bool:
        """Store a payment as settled (4.1/store-settled); False if there is no such record.

        A deposit opens its `session` in the same transaction, or gets the one back that it
        opened before: never two, never another amount. Raises `IllegalMove`.
        """
        with self._db.transaction():
            if not self._require_move(payment_id, "settled"):
                return False
            self._db.execute(
                "UPDATE payments SET status = 'settled', tx_hash = ?, block_number = NULL, "
                "is_deep = 0 WHERE payment_id = ?",
                tx_hash,
                payment_id,
            )
            if session:
                self._sessions.open(payment_id, session)
            return True

    def undo(self, payment_id: str) -> None:
        """Make a settled payment pending again: the chain has undone its transfer.

        Meanwhile neither it nor a session that it paid for grants anything. Raises `IllegalMove`.
        """
        with self._db.transaction():
            if self._require_move(payment_id, "pending"):
                self._db.execute(
                    "UPDATE payments SET status = 'pending', block_number = NULL, is_deep = 0 "
                    "WHERE payment_id = ?",
                    payment_id,
                )

    def fail(self, payment_id: str) -> None:
        """Mark a payment as failed: it can never be paid any more. Raises `IllegalMove`.

        A session that it paid for ends with it. The authorization is kept, as a
        reorganisation may make its transfer after all.
        """
        with self._db.transaction():
            if self._require_move(payment_id, "failed"):
                self._db.execute(
                    "UPDATE payments SET status = 'failed' WHERE payment_id = ?", payment_id
                )
                self._sessions.cancel(payment_id)

    def _require_move(self, payment_id: str, after: str | None) -> bool:
        """Raise `IllegalMove` unless a record may move so; False if there is no record."""
        before = self._status(payment_id)
        if before is None:
            return False
        states.require(states.PAYMENT, before, after)
        return True

    def _status(self, payment_id: str) -> str | None:
        row = self._db.one("SELECT status FROM payments WHERE payment_id = ?", payment_id)
        return str(row[0]) if row else None

    def _is_claimed_elsewhere(self, stored: Stored) -> bool:
        claimed = stored.authorization
        if claimed is None:
            return False
        sql = (
            "SELECT 1 FROM payments WHERE payer = ? AND nonce = ? AND payment_id != ? "
            "AND status != 'failed'"
        )
        found = self._db.one(sql, claimed.payer, claimed.nonce, stored.record.payment_id)
        return found is not None

    def _insert(self, stored: Stored) -> None:
        claimed = stored.authorization
        self._db.execute(
            f"INSERT INTO payments({_COLUMNS}) VALUES ({_PLACES})",
            *msgspec.structs.astuple(stored.record),
            stored.header,
            stored.duration,
            stored.seen_unused,
            *(msgspec.structs.astuple(claimed) if claimed else (None, None, None)),
        )

    def _delete(self, payment_id: str) -> None:
        self._db.execute("DELETE FROM payments WHERE payment_id = ?", payment_id)

    # --- what the indexer reads and writes --------------------------------------------

    def unindexed(self, limit: int) -> list[Stored]:
        """Return settled payments without a block, newest first.

        Clause 8/indexer-batch: at most `limit` of them.
        """
        sql = (
            _SELECT + " WHERE block_number IS NULL AND status = 'settled' "
            "ORDER BY timestamp DESC, rowid DESC LIMIT ?"
        )
        return [_stored(row) for row in self._db.execute(sql, limit)]

    def shallow(self, limit: int) -> list[Stored]:
        """Return settled payments whose block is not deep enough yet, oldest first."""
        sql = (
            _SELECT + " WHERE block_number IS NOT NULL AND status = 'settled' AND NOT is_deep "
            "ORDER BY timestamp, rowid LIMIT ?"
        )
        return [_stored(row) for row in self._db.execute(sql, limit)]

    def backlog(self) -> int:
        """Return how many settled records have no block yet."""
        count: int = self._db.one(
            "SELECT count(*) FROM payments WHERE block_number IS NULL AND status = 'settled'"
        )[0]
        return count

    def set_block(
        self, payment_id: str, tx_hash: str, block_number: int, *, is_deep: bool = False
    ) -> None:
        """Complete a settled record with its transaction and its block (8/indexer-query).

        One whose block `is_deep` is not looked at again.
        """
        self._db.execute(
            "UPDATE payments SET tx_hash = ?, block_number = ?, is_deep = ? "
            "WHERE payment_id = ? AND status = 'settled'",
            tx_hash,
            block_number,
            is_deep,
            payment_id,
        )

    def update_reputation(self) -> None:
        """Count the settled payments that are in a block, per resource (6/reputation)."""
        with self._db.transaction():
            self._db.execute("DELETE FROM reputation")
            self._db.execute(
                "INSERT INTO reputation SELECT resource_url, count(*) FROM payments "
                "WHERE status = 'settled' AND block_number IS NOT NULL GROUP BY resource_url"
            )

    def reputation(self, resource: str) -> int:
        """Return how many payments for a resource are in a block."""
        row = self._db.one("SELECT payments FROM reputation WHERE resource_url = ?", resource)
        return int(row[0]) if row else 0
