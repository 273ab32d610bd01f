"""Keeps the transactions of old blocks in a temporary file, to save memory.

A transaction goes there with its receipt when no reorganisation can reach its block any more.
"""

from functools import cached_property
from tempfile import TemporaryFile
from typing import IO
from weakref import finalize

import msgspec

from x402sim.chain.base import Transaction, TxReceipt
from x402sim.protocol.crypto import Hash
from x402sim.spilling import Spilling

Mined = tuple[Transaction, TxReceipt]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Mined).decode


class Archive:
    """Mined transactions by hash, in a file that is deleted when it is closed."""

    def __init__(self) -> None:
        self._end, self._is_at_end = 0, True
        self._at = Spilling[Hash, int](bytes, int)

    @cached_property
    def _file(self) -> IO[bytes]:
        """The file; most worlds are too short to need one."""
        file = TemporaryFile()  # noqa: SIM115 - it is open as long as the chain is
        finalize(self, file.close)
        return file

    def __len__(self) -> int:
        return len(self._at)

    def put(self, mined: Mined) -> None:
        """Store a transaction and its receipt; raises `OSError`."""
        if not self._is_at_end:  # to seek there would write what is buffered, each time
            self._file.seek(self._end)
            self._is_at_end = True
        self._at[mined[1].tx_hash] = self._end
        self._end += self._file.write(_encode(mined) + b"\n")

    def get(self, tx_hash: Hash) -> Mined | tuple[None, None]:
        """Return a transaction and its receipt; None for both if they are not here."""
        at = self._at.get(tx_hash)
        if at is None:
            return None, None
        self._is_at_end = False
        self._file.seek(at)
        mined: Mined = _decode(self._file.readline())
        return mined

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
