"""The payment records: claimed, then settled or failed, and later completed with a block.

Clauses: 2.4/record, 2.4/block-null, 3/record-outlives-cache, 4.1/store-settled,
5/stored-records, 6/reputation, 8/indexer-batch.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from x402sim.protocol.crypto import Address, checksum
from x402sim.protocol.header import PresentedPayment
from x402sim.protocol.messages import PaymentRecord, PaymentRequirements
from x402sim.protocol.money import MAX_STORED
from x402sim.service.store.database import Database
from x402sim.service.store.session_budgets import NewSession, Sessions


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A payment id taken for settlement, before the facilitator is asked to move money."""

    payment_id: str
    payment: PresentedPayment
    issued: PaymentRequirements
    timestamp_ms: int
    duration: int


class ClaimedAuthorization(msgspec.Struct, frozen=True):
    """The authorization that a payment claims: whose, which nonce (32 bytes), Unix seconds."""

    payer: Address
    nonce: bytes
    valid_before_s: int


class Stored(msgspec.Struct, frozen=True):
    """A payment record, and what the service keeps beside it.

    `authorization` is None if the header cannot be read, or the payment has failed.
    """

    record: PaymentRecord
    header: str
    authorization: ClaimedAuthorization | None
    duration: int


_RECORD = PaymentRecord.__struct_fields__
_CLAIMED = ClaimedAuthorization.__struct_fields__
_NAMES = (*_RECORD, "header", "duration", *_CLAIMED)
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
    return Stored(record, claim.payment.text, claimed, claim.duration)


def _stored(row: Sequence[Any]) -> Stored:
    record = PaymentRecord(**dict(zip(_RECORD, row, strict=False)))
    header, duration, payer, nonce, valid_before_s = row[len(_RECORD) :]
    claimed = None if payer is None else ClaimedAuthorization(payer, nonce, valid_before_s)
    return Stored(record, header, claimed, duration)


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

    def insert_pending(self, claim: Claim) -> Stored | None:
        """Record a payment as pending; None if its id or its authorization is taken.

        Its block is null until the indexer finds it (2.4/block-null). An earlier attempt
        that failed without a transaction is replaced.
        """
        stored = _claimed(claim)
        if self._insert(stored):
            return stored
        with self._db.transaction():
            self._db.execute(
                "DELETE FROM payments WHERE payment_id = ? AND status = 'failed' "
                "AND tx_hash IS NULL",
                claim.payment_id,
            )
            return stored if self._insert(stored) else None

    def _insert(self, stored: Stored) -> bool:
        claimed = stored.authorization
        return self._db.changed(
            f"INSERT INTO payments({_COLUMNS}) VALUES ({_PLACES}) ON CONFLICT DO NOTHING",
            *msgspec.structs.astuple(stored.record),
            stored.header,
            stored.duration,
            *(msgspec.structs.astuple(claimed) if claimed else (None, None, None)),
        )

    def drop_claim(self, payment_id: str) -> None:
        """Delete a pending payment: no money moved. Its id and authorization are free again."""
        self._db.execute(
            "DELETE FROM payments WHERE payment_id = ? AND status = 'pending'", payment_id
        )

    def mark_settled(self, payment_id: str, tx_hash: str, session: NewSession | None) -> bool:
        """Store a pending payment as settled (4.1/store-settled); False if it is not pending.

        A deposit opens its `session` in the same transaction: never two, never another
        amount. A transaction pays for one payment only: the second one gets False.
        """
        with self._db.transaction():
            settled = self._db.changed(
                "UPDATE OR IGNORE payments SET status = 'settled', tx_hash = ? "
                "WHERE payment_id = ? AND status = 'pending'",
                tx_hash,
                payment_id,
            )
            if settled and session:
                self._sessions.open(payment_id, session)
            return settled

    def fail(self, payment_id: str) -> None:
        """Mark a payment as failed: its transaction reverted, or can never be mined.

        A session that it paid for ends with it.
        """
        with self._db.transaction():
            self._db.execute(
                "UPDATE payments SET status = 'failed', payer = NULL, nonce = NULL "
                "WHERE payment_id = ?",
                payment_id,
            )
            self._sessions.cancel(payment_id)

    def unindexed(self, limit: int) -> list[tuple[str, str]]:
        """Return (payment id, hash) of settled payments without a block, newest first.

        Clause 8/indexer-batch: at most `limit` of them.
        """
        sql = (
            "SELECT payment_id, tx_hash FROM payments WHERE block_number IS NULL "
            "AND status = 'settled' ORDER BY timestamp DESC, rowid DESC LIMIT ?"
        )
        return self._db.execute(sql, limit).fetchall()

    def backlog(self) -> int:
        """Return how many settled records have no block yet."""
        count: int = self._db.one(
            "SELECT count(*) FROM payments WHERE block_number IS NULL AND status = 'settled'"
        )[0]
        return count

    def set_block(self, payment_id: str, block_number: int) -> None:
        """Complete a record with its block (8/indexer-query)."""
        self._db.execute(
            "UPDATE payments SET block_number = ? WHERE payment_id = ?", block_number, payment_id
        )

    def update_reputation(self) -> None:
        """Count the settled payments that are in a block, per resource (6/reputation)."""
        self._db.execute(
            "INSERT OR REPLACE INTO reputation SELECT resource_url, count(*) FROM payments "
            "WHERE status = 'settled' AND block_number IS NOT NULL GROUP BY resource_url"
        )

    def reputation(self, resource: str) -> int:
        """Return how many payments for a resource are in a block."""
        row = self._db.one("SELECT payments FROM reputation WHERE resource_url = ?", resource)
        return int(row[0]) if row else 0
