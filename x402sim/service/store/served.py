"""The marks of served payments and of payments in answer, and stored answers.

A payment in one step buys one answer (decision 5/authorization-once). A request takes the answer
before writing, and no other request can take the answer then. After the writing, the payment counts
as served. If the payer has named the payment, the answer is stored (decision 5/payment-identifier).
"""

from typing import Any

import msgspec

from x402sim.service.store.database import Database

_IS_FREE = """answer IS NULL AND NOT EXISTS(SELECT 1 FROM payments
    WHERE payments.payment_id = answers.payment_id AND status IN ('pending', 'settled'))
    AND NOT EXISTS(SELECT 1 FROM usages
    WHERE usages.payment_id = answers.payment_id AND state != 'failed')"""
"""Whether a reserved key is free: the payment was never claimed, or can never be paid."""


class StoredResponse(msgspec.Struct, frozen=True):
    """A written answer: headers, body and status."""

    headers: list[tuple[bytes, bytes]]
    body: bytes
    status: int = 200


class IdempotencyKey(msgspec.Struct, frozen=True):
    """The payer's own id of a payment (the extension payment-identifier).

    The id is bound to the whole payment, by `digest`.
    """

    identifier: str
    digest: bytes


class Served:
    """The marks of served payments in the database, and the stored answers by key."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._answering: dict[str, set[str]] = {}
        """By payment id, the `answering` of the service with the answer, for several services of a
        world may share the store."""

    def mark(self, payment_id: str, resource: str) -> None:
        """Record that a payment was served."""
        self._db.execute("INSERT OR IGNORE INTO served VALUES (?, ?)", payment_id, resource)

    def is_marked(self, payment_id: str) -> bool:
        """Tell whether a payment was served."""
        return self._db.one("SELECT 1 FROM served WHERE payment_id = ?", payment_id) is not None

    def begin(self, payment_id: str, answering: set[str]) -> bool:
        """Take the only answer of a payment; False if the answer was given, or is being given.

        `answering` has the service's payments in answer. The answer is free again once the payment
        has left `answering`: after `end` without `is_served`, and after the service's crash.
        """
        taken = payment_id in self._answering.get(payment_id, ())
        if taken or self.is_marked(payment_id):
            return False
        answering.add(payment_id)
        self._answering[payment_id] = answering
        return True

    def end(self, payment_id: str, resource: str, *, is_served: bool) -> None:
        """Record a written answer (`is_served`), or the leaving of the client."""
        if is_served:
            self.mark(payment_id, resource)
        if (answering := self._answering.pop(payment_id, None)) is not None:
            answering.discard(payment_id)

    # --- the idempotency keys of payments, and the answers stored by key ---------

    def stored(self, key: IdempotencyKey) -> StoredResponse | None:
        """Return the answer to the payment of this key; None before the answer."""
        sql = "SELECT answer FROM answers WHERE identifier = ? AND digest = ?"
        row: Any = self._db.one(sql, key.identifier, key.digest)
        return msgspec.msgpack.decode(row[0], type=StoredResponse) if row and row[0] else None

    def taken_by(self, key: IdempotencyKey) -> str | None:
        """Return the id of another payment with the key; None for a free key, or with this digest.

        The other payment was answered, or may be paid; perhaps the same payment in other bytes.
        """
        sql = (
            "SELECT payment_id FROM answers WHERE identifier = ? AND digest != ? "
            f"AND NOT ({_IS_FREE})"
        )
        return next(
            (str(row[0]) for row in self._db.execute(sql, *msgspec.structs.astuple(key))), None
        )

    def identifier(self, payment_id: str) -> str | None:
        """Return the identifier of a payment's stored answer, or None."""
        sql = "SELECT identifier FROM answers WHERE payment_id = ? AND answer IS NOT NULL"
        return next((str(row[0]) for row in self._db.execute(sql, payment_id)), None)

    def reserve(self, key: IdempotencyKey, payment_id: str, until_s: int, now_s: int) -> bool:
        """Reserve a key for a payment; False if another payment has the key (`taken_by`).

        Call this in the transaction of the claim, the resumption or the stored answer: then only
        one of two payments with a key is settled. Answers beyond their time are deleted.
        """
        self._db.execute("DELETE FROM answers WHERE until_s < ?", now_s)
        others = f"payment_id = ? OR identifier = ? AND {_IS_FREE}"
        freed = f"DELETE FROM answers WHERE answer IS NULL AND ({others})"
        self._db.execute(freed, payment_id, key.identifier)
        row = key.identifier, payment_id, key.digest, until_s
        self._db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, NULL, ?)", *row)
        sql = "SELECT 1 FROM answers WHERE identifier = ? AND payment_id = ? AND digest = ?"
        return self._db.one(sql, key.identifier, payment_id, key.digest) is not None

    def keep(
        self, key: IdempotencyKey, response: StoredResponse, sold: tuple[str, str], until_s: int
    ) -> None:
        """Store the answer to a payment with a reserved key, for the payer to ask again.

        For everybody else the payment counts as served. `sold` is the payment id and the resource.
        Call this in the transaction of the reservation.
        """
        sql = "UPDATE answers SET answer = ?, until_s = ? WHERE identifier = ? AND digest = ?"
        self._db.execute(sql, msgspec.msgpack.encode(response), until_s, key.identifier, key.digest)
        self.mark(*sold)
