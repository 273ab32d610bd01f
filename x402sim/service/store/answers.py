"""The answers that are kept for payers who named their payments (extension payment-identifier).

Decision: 5/payment-identifier.
"""

from typing import Any

import msgspec

from x402sim.service.store.database import Database
from x402sim.service.store.served import Served


class KeptAnswer(msgspec.Struct, frozen=True):
    """An answer as it was written, head and body, and the digest of the payment it answered."""

    digest: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Answers:
    """The kept answers in the database, by the id of their payment."""

    def __init__(self, database: Database, served: Served) -> None:
        self._db, self._served = database, served

    def get(self, identifier: str) -> KeptAnswer | None:
        """Return the answer that is kept under an id, if there is one."""
        row: Any = self._db.one("SELECT answer FROM answers WHERE identifier = ?", identifier)
        return msgspec.msgpack.decode(row[0], type=KeptAnswer) if row else None

    def is_kept(self, payment_id: str) -> bool:
        """Tell whether the answer to a payment is kept."""
        return self._db.one("SELECT 1 FROM answers WHERE payment_id = ?", payment_id) is not None

    def keep(
        self, identifier: str, answer: KeptAnswer, sold: tuple[str, str], until_s: int, now_s: int
    ) -> None:
        """Keep an answer for a while: who has its id can ask again.

        So the payment counts as served for everybody else, `sold` being its id and its resource.
        What has ended is forgotten.
        """
        with self._db.transaction():
            self._db.execute("DELETE FROM answers WHERE until_s < ?", now_s)
            row = identifier, sold[0], msgspec.msgpack.encode(answer), until_s
            self._db.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", *row)
            self._served.mark(*sold)
