"""The service's database: what must survive a crash, in SQLite.

`database.py` holds the tables and the one connection, `payment_records.py` the payment records,
`session_budgets.py` the session budgets and their refunds, `served.py` what was served. Every
change is committed before the service answers, so `kill -9` loses nothing that was answered. The
database itself enforces one settlement per payment id, one use of an authorization, one session per
deposit, and released <= deposited.
"""

import sqlite3
from pathlib import Path

from x402sim.service.store.database import Database
from x402sim.service.store.payment_records import Payments
from x402sim.service.store.served import Served
from x402sim.service.store.session_budgets import Sessions


class Store:
    """The database of one service; `file` None keeps it in memory, or with `spill` in a temporary
    file once it is large.

    Raises `sqlite3.Error` if the file cannot be used.
    """

    def __init__(self, file: Path | None = None, *, spill: bool = False) -> None:
        self.database = Database(file, spill=spill)
        self.sessions = Sessions(self.database)
        self.payments = Payments(self.database, self.sessions)
        self.served = Served(self.database)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def secret(self, name: str, new: bytes) -> bytes:
        """Return the stored secret of this name; store `new` first if there is none."""
        self.database.execute("INSERT OR IGNORE INTO secrets VALUES (?, ?)", name, new)
        return bytes(self.database.one("SELECT value FROM secrets WHERE name = ?", name)[0])

    def forget_answers(self) -> None:
        """Forget which answers were being written, as a restart does."""
        self.database.forget_answers()

    def copy(self) -> sqlite3.Connection:
        """Return a copy of the whole database, in memory."""
        return self.database.copy()

    def restore(self, copy: sqlite3.Connection) -> None:
        """Replace the whole database with a copy."""
        self.database.restore(copy)

    def clear(self) -> None:
        """Delete every row, but not the secrets."""
        self.database.clear()

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        return self.database.counts()
