"""The operations of a ledger, and the log in the ledger's file: a write-ahead log that survives a
kill -9.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from x402sim.chain.base import Call, ChainError, ChainUnavailable, ForcedReverts
from x402sim.chain.ledger.machine import Machine
from x402sim.chain.ledger.storage import put_code
from x402sim.http.limits import MAX_TRANSACTION_BYTES
from x402sim.protocol.crypto import Address, Hash
from x402sim.protocol.raw_transaction import BadTransaction, SignedTransaction, read


def _send(
    machine: Machine, at_s: int, sender: Address, to: Address, data: bytes, value: str
) -> Hash:
    return machine.send(at_s, Call(sender, to, data, int(value)))


def signed_of(raw: bytes) -> SignedTransaction:
    """Return a signed transaction; raises `ChainError`."""
    if (size := len(raw)) > MAX_TRANSACTION_BYTES:  # before it is decoded
        raise ChainError(f"oversized data: transaction size {size}, limit {MAX_TRANSACTION_BYTES}")
    try:
        return read(raw)
    except BadTransaction as wrong:
        raise ChainError(str(wrong)) from wrong


def _automine(machine: Machine, at_s: int, on: bool) -> None:
    machine.automine = on
    machine.mine_arrived(at_s)


def _force_revert(machine: Machine, _: int, calls: int, account: Address | None = None) -> None:
    machine.forced_reverts = ForcedReverts(calls, account)


def _set_native_balance(machine: Machine, _: int, account: Address, amount_wei: str) -> None:
    machine.state.put(machine.state.native, account, int(amount_wei))


def _set_gas_price(machine: Machine, _: int, price_wei: str) -> None:
    machine.gas_price_wei = int(price_wei)


def _set_code(
    machine: Machine, _: int, account: Address, code: bytes, slots: dict[bytes, bytes]
) -> None:
    """Set a contract; no reorganisation and no snapshot takes it away."""
    machine.state.codes[account] = code
    machine.state.slots.update({(account, slot): word for slot, word in slots.items()})


# These names are stored in files: renaming one makes older files unreadable.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "send": _send,
    "raw": lambda machine, at_s, raw: machine.send_signed(at_s, signed_of(raw)),
    "automine": _automine,
    "mine": Machine.mine,
    "drop": lambda machine, _, *only: machine.drop(*only),
    "force_revert": _force_revert,
    "set_native_balance": _set_native_balance,
    "gas_price": _set_gas_price,
    "code": _set_code,
    "put_code": lambda machine, _, *given: put_code(machine.state, machine.token, *given),
    "nonce": Machine.set_nonce,
    "snapshot": lambda machine, _: machine.snapshot(),
    "revert": lambda machine, _, snapshot: machine.revert(snapshot),
    "reorg": Machine.reorg,
}
ARRIVALS = ("send", "raw")
"""The operations that add one transaction to the mempool and leave the earlier ones as before."""


# --- the log ----------------------------------------------------------------------------

Operation = tuple[int, str, list[Any]]
"""Time, name and arguments of an operation."""


class OperationLog:
    """A SQLite table of operations: a msgpack row for each, committed one by one."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, isolation_level=None, timeout=0.5)
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")  # one process may write
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS operations(seq INTEGER PRIMARY KEY, op BLOB)"
            )
        except sqlite3.Error:
            self.close()
            raise

    def write(self, at_s: int, name: str, *arguments: Any) -> None:
        """Log one operation; raises `ChainUnavailable`, and `ChainError` for a number too large."""
        row = _row(at_s, name, arguments)
        with _explained():
            self._db.execute("INSERT INTO operations(op) VALUES (?)", (row,))

    def begin(self, at_s: int, *arguments: Any) -> None:
        """Replace all operations by a genesis, in one transaction; raises `ChainUnavailable`."""
        row = _row(at_s, "genesis", arguments)
        with _explained(), self._db:
            self._db.execute("BEGIN")
            self._db.execute("DELETE FROM operations")
            self._db.execute("INSERT INTO operations(op) VALUES (?)", (row,))

    def read(self) -> list[Operation]:
        """Return all operations; raises `ChainError` if the file is damaged."""
        rows = self._db.execute("SELECT op FROM operations ORDER BY seq")
        try:
            return [msgspec.msgpack.decode(row) for (row,) in rows]
        except msgspec.MsgspecError as error:
            raise ChainError(f"the chain file is damaged: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@contextmanager
def _explained() -> Iterator[None]:
    """Raise an error of SQLite as the error of a chain."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ChainUnavailable(f"the chain file cannot be written: {error}") from error


def _row(at_s: int, name: str, arguments: tuple[Any, ...]) -> bytes:
    try:
        return msgspec.msgpack.encode((at_s, name, arguments))
    except OverflowError as error:
        raise ChainError(f"{name}: {error}") from error
