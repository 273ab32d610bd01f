"""Payments in `upto`: what was used of a signed maximum, until it is settled.

A usage is `working` while the good's function works, `owed` once the amount is known, `settled`
once the chain has moved it, and `failed` if the message can never be settled.
"""

import msgspec

from x402sim.service.store.database import Database
from x402sim.service.store.served import StoredResponse


class Usage(msgspec.Struct, frozen=True):
    """A payment in `upto`: the JSON as the payer sent it, base units, Unix seconds, blocks.

    `answer` is the answer that the payment buys, until the payer has it.
    """

    payment_id: str
    payment: bytes
    resource_url: str
    maximum: int
    until_s: int
    since_block: int
    state: str = "working"
    used: int | None = None
    tx_hash: str | None = None
    answer: bytes | None = None


_COLUMNS = ", ".join(Usage.__struct_fields__)


class Usages:
    """The payments in `upto` in the database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def get(self, payment_id: str) -> Usage | None:
        """Return a usage, or None."""
        row = self._db.one(f"SELECT {_COLUMNS} FROM usages WHERE payment_id = ?", payment_id)
        return Usage(*row) if row else None

    def claim(self, new: Usage) -> bool:
        """Store a new usage; False if another service on this store has claimed the message."""
        marks = ", ".join("?" * len(Usage.__struct_fields__))
        sql = f"INSERT INTO usages({_COLUMNS}) VALUES ({marks}) ON CONFLICT DO NOTHING"
        return self._db.changed(sql, *msgspec.structs.astuple(new))

    def release(self, payment_id: str) -> None:
        """Delete a usage whose work is not charged."""
        sql = "DELETE FROM usages WHERE payment_id = ? AND state = 'working'"
        self._db.execute(sql, payment_id)

    def owe(self, payment_id: str, used_base: int, answer: StoredResponse) -> bool:
        """Record the amount used, together with the answer."""
        sql = (
            "UPDATE usages SET state = 'owed', used = ?2, answer = ?3 "
            "WHERE payment_id = ?1 AND state = 'working'"
        )
        return self._db.changed(sql, payment_id, used_base, msgspec.msgpack.encode(answer))

    def settle(self, payment_id: str, tx_hash: str, settled_base: int) -> bool:
        """Record the transaction and the amount that it moved; False if both were known."""
        sql = (
            "UPDATE usages SET state = 'settled', tx_hash = ?2, used = ?3 WHERE payment_id = ?1 "
            "AND state != 'working' AND (state, tx_hash) IS NOT ('settled', ?2)"
        )
        return self._db.changed(sql, payment_id, tx_hash, settled_base)

    def settled_by(self, tx_hash: str) -> list[Usage]:
        """Return the usages that a transaction has settled."""
        sql = f"SELECT {_COLUMNS} FROM usages WHERE state = 'settled' AND tx_hash = ?"
        return [Usage(*row) for row in self._db.execute(sql, tx_hash)]

    def undo(self, payment_id: str) -> bool:
        """Record that the chain has undone the transaction: the amount is owed again."""
        sql = "UPDATE usages SET state = 'owed' WHERE payment_id = ? AND state = 'settled'"
        return self._db.changed(sql, payment_id)

    def fail(self, payment_id: str) -> bool:
        """Record that the message can never be settled; the answer is deleted."""
        sql = (
            "UPDATE usages SET state = 'failed', answer = NULL "
            "WHERE payment_id = ? AND state IN ('owed', 'settled')"
        )
        return self._db.changed(sql, payment_id)

    def set_deep(self, payment_id: str) -> None:
        """Record that the transaction needs no more looks."""
        self._db.execute("UPDATE usages SET is_deep = 1 WHERE payment_id = ?", payment_id)

    def delivered(self, payment_id: str) -> None:
        """Delete the answer: the payer has it."""
        self._db.execute("UPDATE usages SET answer = NULL WHERE payment_id = ?", payment_id)

    def due(self, now_s: int, limit: int) -> list[Usage]:
        """Return usages to look at, those with the fewest looks first, and count the look.

        Work that ended in a crash, and whose message has expired, is deleted.
        """
        self._db.execute("DELETE FROM usages WHERE state = 'working' AND until_s < ?", now_s)
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM usages WHERE state IN ('owed', 'settled') AND NOT is_deep "
            "AND state != 'failed' ORDER BY looks LIMIT ?",
            limit,
        )
        found = [Usage(*row) for row in rows]
        for each in found:
            sql = "UPDATE usages SET looks = looks + 1 WHERE payment_id = ?"
            self._db.execute(sql, each.payment_id)
        return found
