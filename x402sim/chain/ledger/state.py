"""The chain's state: dictionaries behind an undo log. Every write logs the replaced value. Undoing
to a mark serves reverted calls, reorganised blocks and snapshots alike. The token's supply is a
running total of the writes of balances, so that nobody has to add up balances.

The undo log of old blocks is deleted, so that no reorganisation reaches these blocks. But each
value keeps the blocks of changes and the earlier values: the state after any block can be read with
a binary search per value, without undoing later writes.

To save memory, transactions and receipts move to a temporary file when no reorganisation can reach
the block any more. An index finds logs by their topics without reading every block, as a node does.
The caller filters again: the index may still have a block that was replaced.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from functools import cached_property
from tempfile import TemporaryFile
from typing import IO, Any, TypeAlias, TypeVar
from weakref import finalize

import msgspec

from x402sim.chain.base import Block, Log, LogFilter, Transaction, TxReceipt
from x402sim.protocol.crypto import Address, Hash
from x402sim.spilling import Spilling

K = TypeVar("K")
V = TypeVar("V")
_ABSENT: Any = object()
_WIDTHS = (8, 16, 33)
"""The widths of integers in `Changes`, in bytes: enough for token amounts, for wei, for any."""


class Changes:
    """The blocks that changed a value, ascending, and the value before each.

    A merchant of a million payments has a million of them. So integers from 0, nearly all of the
    values, take eight bytes each, or as many as the largest needs, and a block's number four.
    """

    __slots__ = ("_blocks", "_olds", "_width")

    def __init__(self) -> None:
        self._blocks = array("I")
        self._olds: bytearray | list[Any] = bytearray()
        """Integers of `_width` bytes: the value plus 1, or 0 for an absent value."""
        self._width = _WIDTHS[0]

    def note(self, block: int, old: Any) -> None:
        """Note the value before the newest block's change, unless already noted."""
        if self._blocks and self._blocks[-1] == block:
            return
        self._blocks.append(block)
        if isinstance(self._olds, bytearray):
            if old is _ABSENT or (type(old) is int and old >= 0):
                try:
                    self._olds += (0 if old is _ABSENT else old + 1).to_bytes(self._width)
                except OverflowError:
                    self._widen(old)
                return
            self._olds = list(map(self._old, range(len(self._blocks) - 1)))
        self._olds.append(old)

    def _widen(self, old: int) -> None:
        """Write all integers with more bytes, as wide as a new integer needs."""
        olds = [*map(self._old, range(len(self._blocks) - 1)), old]
        self._width = next(width for width in _WIDTHS if old < 1 << 8 * width - 1)
        numbers = (0 if each is _ABSENT else each + 1 for each in olds)
        self._olds = bytearray(b"".join(each.to_bytes(self._width) for each in numbers))

    def _old(self, at: int) -> Any:
        if isinstance(self._olds, list):
            return self._olds[at]
        number = int.from_bytes(self._olds[at * self._width : (at + 1) * self._width])
        return number - 1 if number else _ABSENT

    def before(self, block: int, now: Any) -> Any:
        """Return the value after a block, given the present value."""
        at = bisect_right(self._blocks, block)
        return self._old(at) if at < len(self._blocks) else now

    def forget(self, height: int) -> int:
        """Forget what blocks above a height have changed; return how many changes are left."""
        kept = bisect_right(self._blocks, height)
        del self._blocks[kept:]
        del self._olds[kept * (1 if isinstance(self._olds, list) else self._width) :]
        return kept


Past: TypeAlias = int | Changes
"""The changes of a value; just the block's number for a value that one block has set and none has
changed, such as a nonce.
"""


class _Write(msgspec.Struct, gc=False):
    """A write of the undo log. Tuples would be walked by the collector: a transaction has many."""

    mapping: MutableMapping[Any, Any]
    key: Any
    old: Any
    """The replaced value; `_ABSENT` if there was none."""


class LedgerState:
    """The token's storage, the accounts, the blocks and the mempool."""

    def __init__(self) -> None:
        self.balances: dict[Address, int] = {}
        self.supply = 0
        """The token's total supply in base units: the sum of all balances."""
        self.authorizations: MutableMapping[tuple[Address, bytes], int] = Spilling(
            tuple[bytes, bytes], int
        )
        """The block that used or cancelled a nonce, by payer and nonce."""
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
        self.nonce_bitmaps: dict[tuple[Address, int], int] = {}
        """The used nonces of each owner at Permit2: by word, a bit each."""
        self.switches: dict[str, bool] = {}
        self.native: dict[Address, int] = {}
        self.account_nonces: dict[Address, int] = {}
        """How many transactions of each account are mined."""
        self.next_nonces: dict[Address, int] = {}
        """The first nonce of each account that no transaction has, mined or waiting."""
        self.blocks: MutableMapping[int, Block] = Spilling(int, Block)
        self.height = -1
        """The number of the newest block; -1 if there is none."""
        self.block_numbers: MutableMapping[Hash, int] = Spilling(bytes, int)
        self.transactions: dict[Hash, Transaction] = {}
        self.receipts: dict[Hash, TxReceipt] = {}
        self.waiting: dict[Hash, int] = {}
        """The mempool: the order of arrival of each transaction that the next block takes."""
        self.queued: dict[tuple[Address, int], Hash] = {}
        """The transactions behind a gap in an account's nonces, by account and nonce."""
        self._undo: list[_Write] = []
        self._forgotten = 0
        kept = (
            *(self.balances, self.blacklisted, self.minter_allowances),
            *(self.codes, self.slots, self.allowances, self.permit_nonces, self.switches),
            *(self.native, self.account_nonces, self.nonce_bitmaps),
        )
        self._past: dict[int, MutableMapping[Any, Past]] = {id(mapping): {} for mapping in kept}
        """The past of each value in the state after a block, by the mapping's id."""
        self._supplies: dict[None, Past] = {}
        self._recorded, self._supply_was = 0, 0
        """The mark up to which the past is recorded, and the supply then."""
        self._newest: Block | None = None
        """The newest block, unless it was undone: then it is looked up."""

    @property
    def head(self) -> Block:
        """The newest block."""
        return self._newest or self.blocks[self.height]

    def after(self, block: Block) -> "LedgerState":
        """Return the state after a block. Writing to the copy leaves this state unchanged."""
        self.record()
        then = LedgerState()
        for name, mapping in vars(self).items():
            if name[0] != "_" and name not in ("supply", "height"):
                # a nonce is used once: its block is its past
                is_past = mapping is self.authorizations
                past = mapping if is_past else self._past.get(id(mapping), {})
                setattr(then, name, _Then(mapping, past, block.number))
        supplied = self._supplies.get(None)
        supply = self.supply if supplied is None else _before(supplied, block.number, self.supply)
        then.supply, then._newest = 0 if supply is _ABSENT else supply, block
        then.height = block.number
        return then

    def record(self) -> None:
        """Record each value before the newest block's change.

        A change between two blocks, such as a balance set by an operator, counts for the older
        block.
        """
        block = self.height
        changes = self._undo[self._recorded - self._forgotten :] if block >= 0 else ()
        for write in changes:
            past = self._past.get(id(write.mapping))
            if past is not None:
                past[write.key] = _with(past.get(write.key), block, write.old)
        if block >= 0 and self.supply != self._supply_was:
            self._supplies[None] = _with(self._supplies.get(None), block, self._supply_was)
        self._recorded, self._supply_was = self.mark(), self.supply

    def put(self, mapping: MutableMapping[K, V], key: K, value: V) -> V | None:
        """Write one value; return the replaced value."""
        old = mapping.get(key, _ABSENT)
        self._undo.append(_Write(mapping, key, old))
        if mapping is self.balances or mapping is self.blocks:
            self._set(mapping, key, value)
        else:
            mapping[key] = value
        return None if old is _ABSENT else old

    def remove(self, mapping: MutableMapping[K, V], key: K) -> None:
        """Delete one value."""
        self._undo.append(_Write(mapping, key, mapping[key]))
        self._set(mapping, key, _ABSENT)

    def mark(self) -> int:
        """Return a mark of the present state, for `undo`."""
        return self._forgotten + len(self._undo)

    def undo(self, mark: int) -> None:
        """Undo every write since a mark."""
        recorded = self._undo[mark - self._forgotten : self._recorded - self._forgotten]
        for _ in range(self.mark() - mark):
            write = self._undo.pop()
            self._set(write.mapping, write.key, write.old)
        if not recorded:
            return
        height = self.height
        pasts = [(self._past.get(id(write.mapping), {}), write.key) for write in recorded]
        for past, key in (*pasts, (self._supplies, None)):
            _forget(past, key, height)
        self._recorded, self._supply_was = mark, self.supply

    def forget(self, mark: int) -> None:
        """Delete the undo log before a mark: `undo` goes back no further."""
        del self._undo[: mark - self._forgotten]
        self._forgotten = mark

    def _set(self, mapping: MutableMapping[K, V], key: K, value: V) -> None:
        """Write or delete one value, without a log."""
        if mapping is self.balances:
            now: Any = 0 if value is _ABSENT else value
            self.supply += now - mapping.get(key, 0)
        elif mapping is self.blocks:
            self.height += -1 if value is _ABSENT else 1
            self._newest = None if value is _ABSENT else value  # type: ignore[assignment]
        if value is _ABSENT:
            del mapping[key]
        else:
            mapping[key] = value


class _Then(MutableMapping[K, V]):
    """A mapping as it was after a block; what is written is kept here."""

    def __init__(
        self, now: MutableMapping[K, V], past: MutableMapping[K, Past], block: int
    ) -> None:
        self._now, self._past, self._block = now, past, block
        self._written: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        found = self._written.get(key, self)
        if found is self:
            found = self._now.get(key, _ABSENT)
            past = self._past.get(key)
            if past is not None:
                found = _before(past, self._block, found)
        if found is _ABSENT:
            raise KeyError(key)
        return found  # type: ignore[return-value]

    def __setitem__(self, key: K, value: V) -> None:
        self._written[key] = value

    def __delitem__(self, key: K) -> None:
        self._written[key] = _ABSENT

    def __iter__(self) -> Iterator[K]:
        return (key for key in {**self._now, **self._past, **self._written} if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _before(past: Past, block: int, now: Any) -> Any:
    if isinstance(past, int):
        return _ABSENT if block < past else now
    return past.before(block, now)


def _with(past: "Past | None", block: int, old: Any) -> Past:
    if past == block or (past is None and old is _ABSENT):
        return block
    if past is None or isinstance(past, int):
        changes = Changes()
        if past is not None:
            changes.note(past, _ABSENT)
        past = changes
    past.note(block, old)
    return past


def _forget(past: MutableMapping[K, Past], key: K, height: int) -> None:
    """Forget what blocks above a height have changed."""
    known = past.get(key)
    if known is None:
        return
    if known > height if isinstance(known, int) else not known.forget(height):
        del past[key]


# --- old transactions, on disk ----------------------------------------------------------

Mined = tuple[Transaction, TxReceipt]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Mined).decode


class Archive:
    """Mined transactions by hash, in a file that `close` deletes."""

    def __init__(self) -> None:
        self._end, self._is_at_end = 0, True
        self._at = Spilling[Hash, int](bytes, int)

    @cached_property
    def _file(self) -> IO[bytes]:
        """The file; most worlds are too short to need one."""
        file = TemporaryFile()  # noqa: SIM115 - it is open as long as the chain is
        finalize(self, file.close)
        return file

    def put(self, mined: Mined) -> None:
        """Store a transaction and its receipt; raises `OSError`."""
        if not self._is_at_end:  # a seek flushes the buffer: one for each put would be slow
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


# --- logs by topic ----------------------------------------------------------------------

Span = tuple[Sequence[int], int, int]
"""Numbers of blocks, and a range: from a position to before another."""


class LogIndex:
    """The numbers of the blocks by each topic of their logs.

    Most topics, such as a nonce, are in one block only: their entry is a number.
    """

    def __init__(self) -> None:
        self._only = Spilling[bytes, int](bytes, int)
        self._several: dict[bytes, array[int]] = {}

    def add(self, logs: Iterable[Log]) -> None:
        """Add the logs of a transaction in the newest block."""
        for log in logs:
            for topic in log.topics:
                self._note(topic, log.block_number)

    def _note(self, topic: bytes, number: int) -> None:
        """Note that a topic is in the newest block, and in no replaced block."""
        known = self._several.get(topic)
        if known is not None:
            while known and known[-1] >= number:
                known.pop()
            known.append(number)
            return
        first = self._only.get(topic, number)
        if first < number:
            self._several[topic] = array("I", (first, number))
            del self._only[topic]
        else:
            self._only[topic] = number

    def blocks(self, wanted: LogFilter, first: int, last: int) -> Sequence[int]:
        """Return the blocks of this range that can have wanted logs, oldest first.

        Only the list of the rarest wanted topic is read.
        """
        choices = [self._spans(accepted, first, last) for accepted in wanted.topics if accepted]
        rarest = min(choices, key=_size, default=None)
        if rarest is None or _size(rarest) > last - first:
            return range(first, last + 1)
        found = {n for known, begin, end in rarest for n in known[begin:end]}
        return sorted(found)

    def _spans(self, topics: tuple[bytes, ...], first: int, last: int) -> list[Span]:
        lists = filter(None, map(self._of, dict.fromkeys(topics)))
        return [(known, bisect_left(known, first), bisect_left(known, last + 1)) for known in lists]

    def _of(self, topic: bytes) -> Sequence[int]:
        known = self._several.get(topic)
        if known is not None:
            return known
        only = self._only.get(topic)
        return () if only is None else (only,)


def _size(spans: list[Span]) -> int:
    return sum(end - begin for _, begin, end in spans)


def passes(log: Log, wanted: LogFilter) -> bool:
    """Return whether a log passes a filter, whatever its block."""
    if wanted.addresses and log.address not in wanted.addresses:
        return False
    if len(wanted.topics) > len(log.topics):
        return False
    return all(
        not any_of or t in any_of for any_of, t in zip(wanted.topics, log.topics, strict=False)
    )
