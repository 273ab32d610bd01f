"""The service's database: what must survive a crash, in SQLite.

`database.py` has the tables and the connection, `payment_records.py` the payment records,
`session_budgets.py` the session budgets and refunds, `usages.py` the payments in `upto`, and
`served.py` the marks of served payments and stored answers. Every change is committed before the
service answers, so `kill -9` loses nothing behind an answer. The database enforces: a payment id is
settled once, an authorization used once, a deposit opens one session, and released <= deposited.
"""

from pathlib import Path

from x402sim.service.store.database import Database
from x402sim.service.store.payment_records import PaymentRecords
from x402sim.service.store.served import Served
from x402sim.service.store.session_budgets import SessionBudgets
from x402sim.service.store.usages import Usages


class Store(Database):
    """A service's database, with payment records, session budgets and served marks."""

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(file)
        self.sessions = SessionBudgets(self)
        self.payments = PaymentRecords(self, self.sessions)
        self.served = Served(self)
        self.usages = Usages(self)

    def secret(self, name: str, new: bytes) -> bytes:
        """Return the stored secret of this name; without a stored secret, store `new` first."""
        self.execute("INSERT OR IGNORE INTO secrets VALUES (?, ?)", name, new)
        return bytes(self.one("SELECT value FROM secrets WHERE name = ?", name)[0])
