"""Offers, payment records, sessions and reputation: in memory, and each change also in SQLite."""

import sqlite3
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel

from .config import INDEX_BATCH, bug


class Row(BaseModel):
    """A kind of row; `KEY` names the field that identifies one."""

    KEY: ClassVar[str] = "payment_id"


class Offer(Row):
    """A payment requirement we issued. state: issued -> settling -> settled; settling -> issued if it failed."""

    payment_id: str
    terms: dict[str, Any]
    duration: int | None = None  # seconds of the session, when the offer is a deposit
    issued_at: float
    state: str = "issued"
    authorization: dict[str, Any] | None = None
    authorization_key: str | None = None
    settled_ms: int | None = None
    delivered: bool = False  # the receipt has been answered


class Payment(Row):
    payment_id: str
    tx_hash: str
    from_address: str
    to_address: str
    amount: str
    resource_url: str
    status: str
    block_number: int | None
    timestamp: int


class Budget(Row):
    """A session. state: open -> expired (refund due) -> refunded, or closed when nothing was left."""

    KEY = "id"
    id: str
    payment_id: str
    payer: str
    deposited: int
    released: int = 0
    expires_at: float
    state: str = "open"
    refund_tx: str | None = None
    refund_tries: int = 0
    refund_after: float = 0.0


class Reputation(Row):
    KEY = "resource"
    resource: str
    matched: int = 0


T = TypeVar("T", bound=Row)


class Store:
    def __init__(self, path: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS rows (kind, key, data, PRIMARY KEY (kind, key))"
        )
        self._rows: dict[type[Row], dict[str, Any]] = {}
        for kind in (Offer, Payment, Budget, Reputation):
            stored = self._db.execute("SELECT key, data FROM rows WHERE kind = ?", [kind.__name__])
            self._rows[kind] = {key: kind.model_validate_json(data) for key, data in stored}

    def close(self) -> None:
        self._db.close()

    def get(self, kind: type[T], key: str) -> T | None:
        return self._rows[kind].get(key)

    def all(self, kind: type[T]) -> list[T]:
        return [*self._rows[kind].values()]

    def save(self, row: Row, **changes: Any) -> None:
        for name, value in changes.items():
            setattr(row, name, value)
        kind, key = type(row), getattr(row, row.KEY)
        self._rows[kind][key] = row
        stored = kind.__name__, key, row.model_dump_json()
        self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", stored)

    def drop_old_offers(self, before: float) -> None:
        for offer in self.all(Offer):
            if offer.state == "issued" and offer.issued_at < before:
                del self._rows[Offer][offer.payment_id]
                self._db.execute("DELETE FROM rows WHERE key = ?", [offer.payment_id])

    def unindexed(self) -> list[Payment]:
        """Return the newest payments without a block."""
        left = [payment for payment in self.all(Payment) if payment.block_number is None]
        return sorted(left, key=lambda payment: -payment.timestamp)[:INDEX_BATCH]

    def matched(self, payment: Payment, block: int) -> None:
        self.save(payment, block_number=block)
        if bug("no_reputation"):
            return
        resource = payment.resource_url
        known = self.get(Reputation, resource) or Reputation(resource=resource)
        self.save(known, matched=known.matched + 1)
