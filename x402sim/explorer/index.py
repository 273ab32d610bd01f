"""The explorer's view of the chain: the blocks that are at least `lag_s` seconds old, as objects.

The mempool is visible only without lag. The answers common to all dialects are here, too.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from x402sim.chain.base import Block, Chain, Transaction, TxReceipt
from x402sim.chain.rpc import jsonrpc
from x402sim.clock import Clock
from x402sim.durations import ServiceTime, require_servers
from x402sim.protocol.crypto import Hash
from x402sim.protocol.rpc_values import Json
from x402sim.text.arguments import FromZero, WholeAboveZero, WholeFromZero, explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerSettings:
    """The settings of the explorer. Raises `ValueError` for an impossible value.

    lag_s
        Seconds after its time until it shows a block.
    interval_s
        Seconds between its polls of the chain, the first when the world begins; 0 shows each block
        at once.
    servers, service_time_s, queue_length
        How many requests it serves at a time, how long each takes, and how many can wait, as in
        `FacilitatorSettings`; of the explorers of several networks together.
    """

    lag_s: FromZero = 0.0
    interval_s: FromZero = 0.0
    servers: WholeAboveZero | None = None
    service_time_s: ServiceTime | None = None
    queue_length: WholeFromZero | None = None

    def __post_init__(self) -> None:
        require_servers(self.servers, self.service_time_s, self.queue_length)


KEPT_QUERIES = 20_000
"""How many of the newest queries are remembered."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query about a transaction, known or not: the hash, and the time (epoch ms)."""

    tx_hash: Hash
    at_ms: int


@dataclass(slots=True)
class Index:
    """The explorer's view of a chain, `lag_s` seconds late by `clock`; the lag can change.

    With `interval_s` the chain is polled every so many seconds, counted from the beginning of the
    index. `queries` are the newest queries about transactions and receipts, oldest first.
    """

    chain: Chain
    clock: Clock
    lag_s: float = 0.0
    interval_s: float = 0.0
    queries: deque[Query] = field(default_factory=lambda: deque(maxlen=KEPT_QUERIES))
    _since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._since_s = self.clock.now()

    @property
    def is_prompt(self) -> bool:
        """Whether it shows every block at once."""
        return self.lag_s <= 0 and self.interval_s <= 0

    async def transaction(self, tx_hash: Hash) -> Transaction | None:
        """Return a transaction; None if unknown or not visible yet."""
        self.queries.append(Query(tx_hash, self.clock.now_ms()))
        tx = await self.chain.transaction(tx_hash)
        return tx if tx is None or await self._sees(tx.block_hash) else None

    async def receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return a transaction's receipt; None if unknown, waiting or not visible yet."""
        self.queries.append(Query(tx_hash, self.clock.now_ms()))
        receipt = await self.chain.receipt(tx_hash)
        return receipt if receipt is None or await self._sees(receipt.block_hash) else None

    async def height(self) -> int:
        """Return the number of the newest visible block; 0 if there is none."""
        number = await self.chain.height()
        while number and not self._is_due(await self.chain.block(number)):
            number -= 1
        return number

    async def block(self, number: int) -> Block | None:
        """Return a block; None for an unknown number, or a block that is not visible yet."""
        block = await self.chain.block(number)
        return block if block is not None and self._is_due(block) else None

    async def _sees(self, block_hash: Hash | None) -> bool:
        if self.is_prompt:
            return True
        return block_hash is not None and self._is_due(await self.chain.block(block_hash))

    def _is_due(self, block: Block | None) -> bool:
        if self.is_prompt:
            return True
        looked_s = self.clock.now()
        if self.interval_s > 0:
            looked_s -= (looked_s - self._since_s) % self.interval_s
        return block is not None and block.timestamp_s + self.lag_s <= looked_s


Fields = Mapping[str, str]
Answer = Callable[[Index, Fields], Awaitable[Json]]
"""Returns a dialect's answer at a path to a request with some fields."""
ByHash = Callable[[Index, Hash], Awaitable[Json | None]]


async def _transaction(index: Index, tx_hash: Hash) -> Json | None:
    tx = await index.transaction(tx_hash)
    number = tx.block_number if tx else None
    block = None if number is None else await index.block(number)
    at_s = block.timestamp_s if block else None
    return jsonrpc.transaction_object(tx, index.chain.chain_id, at_s) if tx else None


async def _receipt(index: Index, tx_hash: Hash) -> Json | None:
    receipt = await index.receipt(tx_hash)
    return jsonrpc.receipt_object(receipt) if receipt else None


BY_HASH: dict[str, ByHash] = {"TransactionByHash": _transaction, "TransactionReceipt": _receipt}
"""The queries by name; a dialect prefixes `eth_get` or `get`."""


def ok(value: Json | None) -> Json:
    """Return an answer in the envelope of the queries that are not JSON-RPC."""
    return {"status": "1", "message": "OK", "result": value}


async def block(index: Index, tag: str, *, full: bool) -> Json | None:
    """Return the block of a number or tag, `full` with whole transactions; None if not visible.

    Raises `BadParams` for what is neither.
    """
    number = jsonrpc.read_block_number(tag, await index.height())
    found = await index.block(number)
    if found is None:
        return None
    return await jsonrpc.whole_block(index.chain, found, full=full)


async def _receipt_status(index: Index, tx_hash: Hash) -> Json:
    """Return "1" or "0" for a mined transaction, and "" for an unknown or waiting transaction."""
    receipt = await index.receipt(tx_hash)
    return {"status": "" if receipt is None else str(int(receipt.succeeded))}


async def execution_status(index: Index, tx_hash: Hash) -> Json:
    """Return whether a transaction failed. An unknown transaction has not: the answer is no proof
    of payment.
    """
    receipt = await index.receipt(tx_hash)
    has_failed = receipt is not None and not receipt.succeeded
    reason = receipt.revert_reason if receipt is not None and has_failed else ""
    return {"isError": str(int(has_failed)), "errDescription": reason or ""}


OUTCOMES: dict[str, ByHash] = {"gettxreceiptstatus": _receipt_status, "getstatus": execution_status}
"""The queries about the outcome of a transaction, by the name of the action."""
