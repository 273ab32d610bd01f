"""Mining on a test node: immediately or on demand, at the world's time. And sending transactions
again with the same hash, as the node forgets those that a reorganisation or a revert removes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from x402sim.chain.base import Block, ChainError
from x402sim.chain.node import objects
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.clock import Clock
from x402sim.protocol.crypto import Hash
from x402sim.protocol.rpc_values import Json, quantity, read_hash, read_quantity

MAX_BLOCKS = 10_000
"""The most blocks that one request mines."""
MAX_LOOKS = 500
"""How often to poll for a block that is due; one poll takes a millisecond."""
_FEES = ("gasPrice", "maxFeePerGas", "maxPriorityFeePerGas")
_SENT_AS = ("from", "to", "value", "input", "nonce", "gas", *_FEES)


@dataclass(frozen=True, slots=True)
class Resend:
    """A transaction, and the JSON-RPC call that sends it again."""

    hash: Hash
    method: str
    argument: Any


class LocalMining:
    """Control over a test node's blocks and mempool; a `Mining`.

    `turn` is held during an operation, which takes several requests. The methods after
    `set_automine` are parts of operations: their caller holds it. `notify` is called after
    each operation.
    """

    def __init__(
        self, rpc: JsonRpcNode, clock: Clock, notify: Callable[[], Awaitable[None]]
    ) -> None:
        self.turn = asyncio.Lock()
        self.notify = notify
        self._rpc, self._clock = rpc, clock
        self.automine = True
        """Whether each transaction is mined immediately."""

    async def mine(self, blocks: int = 1) -> int:
        """Mine blocks; the first includes every waiting transaction. Return the new height."""
        if not 1 <= blocks <= MAX_BLOCKS:
            raise ChainError(f"mine 1 to {MAX_BLOCKS} blocks at a time, not {blocks}")
        async with self.turn:
            await self.mine_blocks(blocks)
        await self.notify()
        return await self.height()

    async def set_automine(self, on: bool) -> None:
        """Mine each transaction immediately (on), or only when `mine` is called (off)."""
        async with self.turn:
            self.automine = on
            await self.resume()
        await self.notify()

    async def height(self) -> int:
        """Return the number of the newest block."""
        return await self._rpc.read(read_quantity, "eth_blockNumber")

    async def head(self) -> Block:
        """Return the newest block."""
        return await self._rpc.read(objects.block, "eth_getBlockByNumber", "latest", False)

    def next_time_s(self, head: Block) -> int:
        """Return the time of the block after `head`: the world's, or its own if that is later."""
        return max(self._clock.now_s(), head.timestamp_s)

    async def set_time(self) -> None:
        """Set the time of the next block."""
        await self._rpc.ask("evm_setNextBlockTimestamp", self.next_time_s(await self.head()))

    async def mine_blocks(self, blocks: int) -> None:
        """Mine blocks; all have the same time."""
        await self.set_time()
        await self._rpc.ask("anvil_mine", quantity(blocks), "0x0")

    async def waiting(self) -> list[Resend]:
        """Return the transactions in the mempool that the next block would include."""
        return await resends_of(self._rpc, "pending")

    async def wait_until_mined(self) -> None:
        """Wait until the node has mined a client's transaction: it answers before."""
        for _ in range(MAX_LOOKS):
            if not self.automine or not await self.waiting():
                return

    async def replace_mempool(self, transactions: list[Resend]) -> None:
        """Replace the mempool by these transactions, and stop mining until `resume`."""
        await self._rpc.ask("evm_setAutomine", False)
        await self._rpc.ask("anvil_dropAllTransactions")
        for tx in transactions:
            await self._rpc.ask(tx.method, tx.argument)

    async def resume(self) -> None:
        """Restore the automine setting; if it is on, mine the waiting transactions."""
        if self.automine and await self.waiting():
            await self.mine_blocks(1)
        await self._rpc.ask("evm_setAutomine", self.automine)


async def resends_of(node: JsonRpcNode, block: int | Literal["pending"]) -> list[Resend]:
    """Return the transactions of a block in order; "pending" has those in the mempool."""
    which = quantity(block) if isinstance(block, int) else block
    found = await node.ask("eth_getBlockByNumber", which, True)
    return [await _resend(node, tx) for tx in found["transactions"]]


async def _resend(node: JsonRpcNode, tx: Json) -> Resend:
    """Return the request that sends a transaction again: raw if signed, else impersonated."""
    if read_quantity(tx["r"]):
        raw = await node.ask("eth_getRawTransactionByHash", tx["hash"])
        return Resend(read_hash(tx["hash"]), "eth_sendRawTransaction", raw)
    asked = {name: tx[name] for name in _SENT_AS if tx.get(name) is not None}
    if "maxFeePerGas" in asked:
        del asked["gasPrice"]
    return Resend(read_hash(tx["hash"]), "eth_sendTransaction", asked)
