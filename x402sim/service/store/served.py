"""The marks of served payments, and of those that are being answered now.

A payment in one step buys one answer (decision 5/authorization-once). A request takes the answer
before it is written; once it was written, the payment counts as served.
"""

from x402sim.service.store.database import Database

ANSWERING_S = 5
"""Seconds after which an answer that is being written counts as lost: its process has ended."""
_BEGIN = f"""INSERT INTO answering SELECT ?1, ?2
    WHERE NOT EXISTS(SELECT 1 FROM served WHERE payment_id = ?1)
    ON CONFLICT(payment_id) DO UPDATE SET since_s = ?2
    WHERE since_s NOT BETWEEN ?2 - {ANSWERING_S} AND ?2 + {ANSWERING_S}"""


class Served:
    """The marks of served payments in the database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def mark(self, payment_id: str, resource: str) -> None:
        """Record that a payment was served."""
        self._db.execute("INSERT OR IGNORE INTO served VALUES (?, ?)", payment_id, resource)

    def is_marked(self, payment_id: str) -> bool:
        """Tell whether a payment was served."""
        return self._db.one("SELECT 1 FROM served WHERE payment_id = ?", payment_id) is not None

    def begin(self, payment_id: str, now_s: float) -> bool:
        """Take the one answer of a payment; False if it is taken.

        It is free again after `end`, or after `ANSWERING_S`: then the process that took it has
        ended. A start frees nothing, as other processes on this database may be answering. A mark
        from a clock that is as far ahead counts as old, too.
        """
        return self._db.changed(_BEGIN, payment_id, now_s)

    def end(self, payment_id: str, resource: str, *, is_served: bool) -> None:
        """Record that the answer was written, or that the client has not waited for it."""
        with self._db.transaction():
            if is_served:
                self.mark(payment_id, resource)
            self._db.execute("DELETE FROM answering WHERE payment_id = ?", payment_id)
