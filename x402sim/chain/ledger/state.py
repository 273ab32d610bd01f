"""The chain's state: dictionaries behind an undo log. Every write logs the value that it replaces.
Undoing to a mark serves reverted calls, reorganised blocks, snapshots and older states alike. The
token's supply is a running total of the writes of balances, so that nobody has to add them up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from x402sim.chain.base import Block, Transaction, TxReceipt
from x402sim.protocol.crypto import Address, Hash

K = TypeVar("K")
V = TypeVar("V")
_ABSENT: Any = object()


class LedgerState:
    """The token's storage, the accounts, the blocks and the mempool."""

    def __init__(self) -> None:
        self.balances: dict[Address, int] = {}
        self.supply = 0
        """The token's total supply in base units: the sum of all balances."""
        self.authorizations: dict[tuple[Address, bytes], bool] = {}
        """The nonces of each payer that are used or cancelled."""
        self.blacklisted: dict[Address, bool] = {}
        self.minter_allowances: dict[Address, int] = {}
        """How much each minter of Circle's token may still mint, in base units."""
        self.codes: dict[Address, bytes] = {}
        """The code of each contract, the token's included."""
        self.slots: dict[tuple[Address, bytes], bytes] = {}
        """The words that were set in the storage of contracts other than the token."""
        self.allowances: dict[tuple[Address, Address], int] = {}
        """What each owner allows each spender to take, in base units."""
        self.permit_nonces: dict[Address, int] = {}
        """How many permits of each owner were used."""
        self.switches: dict[str, bool] = {}
        self.roles: dict[str, Address] = {}
        """Who may do what at the token, by the name of the function that tells it."""
        self.native: dict[Address, int] = {}
        self.account_nonces: dict[Address, int] = {}
        self.blocks: dict[int, Block] = {}
        self.block_numbers: dict[Hash, int] = {}
        self.transactions: dict[Hash, Transaction] = {}
        self.receipts: dict[Hash, TxReceipt] = {}
        self.waiting: dict[Hash, int] = {}
        """The mempool: the order of arrival of each transaction in it."""
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._forgotten = 0

    @property
    def head(self) -> Block:
        """The newest block."""
        return self.blocks[len(self.blocks) - 1]

    def put(self, mapping: dict[K, V], key: K, value: V) -> V | None:
        """Write one value; return the value that it replaces."""
        old = mapping.get(key, _ABSENT)
        self._undo.append((mapping, key, old))
        if mapping is self.balances:
            self._set(mapping, key, value)
        else:
            mapping[key] = value
        return None if old is _ABSENT else old

    def remove(self, mapping: dict[K, V], key: K) -> None:
        """Delete one value."""
        self._undo.append((mapping, key, mapping[key]))
        self._set(mapping, key, _ABSENT)

    def mark(self) -> int:
        """Return a mark of the present state, for `undo`."""
        return self._forgotten + len(self._undo)

    def undo(self, mark: int) -> None:
        """Go back to a moment."""
        for _ in range(self.mark() - mark):
            self._set(*self._undo.pop())

    @contextmanager
    def rewound(self, mark: int) -> Iterator[None]:
        """Go back to a moment in a `with` block; afterwards everything is as before."""
        redo = []
        while self.mark() > mark:
            mapping, key, old = self._undo.pop()
            redo.append((mapping, key, mapping.get(key, _ABSENT)))
            self._set(mapping, key, old)
        try:
            yield
        finally:
            self.undo(mark)
            for mapping, key, new in reversed(redo):
                self._undo.append((mapping, key, mapping.get(key, _ABSENT)))
                self._set(mapping, key, new)

    def forget(self, mark: int) -> None:
        """Give up going back further than a moment."""
        del self._undo[: mark - self._forgotten]
        self._forgotten = mark

    def _set(self, mapping: dict[K, V], key: K, value: V) -> None:
        """Write one value, or delete it, without a log."""
        if mapping is self.balances:
            self.supply += (0 if value is _ABSENT else value) - mapping.get(key, 0)  # type: ignore[operator]
        if value is _ABSENT:
            del mapping[key]
        else:
            mapping[key] = value
