"""Keeps the transactions of old blocks in a temporary file, to save memory.

A transaction goes there with its receipt when no reorganisation can reach its block any more.
"""

import pickle
from tempfile import TemporaryFile

from x402sim.chain.base import Transaction, TxReceipt
from x402sim.protocol.crypto import Hash

Mined = tuple[Transaction, TxReceipt]


class Archive:
    """Mined transactions by hash, in a file that is deleted when it is closed."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - it is open as long as the chain is
        self._end = 0
        self._at: dict[Hash, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def put(self, mined: Mined) -> None:
        """Store a transaction and its receipt; raises `OSError`."""
        self._file.seek(self._end)
        self._at[mined[1].tx_hash] = self._end
        self._end += self._file.write(pickle.dumps(mined))

    def get(self, tx_hash: Hash) -> Mined | None:
        """Return a transaction and its receipt; None if it is not here."""
        at = self._at.get(tx_hash)
        if at is None:
            return None
        self._file.seek(at)
        mined: Mined = pickle.load(self._file)  # noqa: S301 - our own file, which has no name
        return mined

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
