"""The service's database: what must survive a crash, in SQLite.

`database.py` holds the tables and the one connection, `payment_records.py` the payment records,
`session_budgets.py` the session budgets and their refunds, and `served.py` what was served, with
the answers that payers can ask for again. Every change is committed before the service answers, so
`kill -9` loses nothing that was answered. The database itself enforces one settlement per payment
id, one use of an authorization, one session per deposit, and released <= deposited.
"""

from pathlib import Path

from x402sim.service.store.database import Database
from x402sim.service.store.payment_records import PaymentRecords
from x402sim.service.store.served import Served
from x402sim.service.store.session_budgets import SessionBudgets


class Store(Database):
    """The database of one service, with its payment records, session budgets and served marks."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(file)
        self.sessions = SessionBudgets(self)
        self.payments = PaymentRecords(self, self.sessions)
        self.served = Served(self)

    def secret(self, name: str, new: bytes) -> bytes:
        """Return the stored secret of this name; store `new` first if there is none."""
        self.execute("INSERT OR IGNORE INTO secrets VALUES (?, ?)", name, new)
        return bytes(self.one("SELECT value FROM secrets WHERE name = ?", name)[0])
