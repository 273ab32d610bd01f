"""Control over a test node: mining at the world's time, snapshots and reorganisations.

The node forgets the transactions that a revert or a reorganisation removes. So the transactions are
read before, and sent again with the same hash.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from x402sim.chain.base import Block, ChainError, ForcedReverts, require_depth
from x402sim.chain.node import objects
from x402sim.chain.node.any_node import AnyNode
from x402sim.clock import Clock
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, to_hex
from x402sim.protocol.rpc_values import Json, quantity, read_hash, read_quantity

MAX_BLOCKS = 10_000
"""The most blocks of a request."""
MAX_LOOKS = 500
"""How often to poll for a block that is due; one poll takes a millisecond."""
MINER = b"x402sim/mine"
"""The beginning of the coinbase of a replacement block; a number completes it."""
_FEES = ("gasPrice", "maxFeePerGas", "maxPriorityFeePerGas")
_SENT_AS = ("from", "to", "value", "input", "nonce", "gas", *_FEES)


@dataclass(frozen=True, slots=True)
class Resend:
    """A transaction, and the JSON-RPC call that sends the same again."""

    hash: Hash
    method: str
    argument: Any


class Controls:
    """Control over a test node's blocks, mempool, history and state; implements `base.Controls`."""

    def __init__(
        self,
        rpc: AnyNode,
        clock: Clock,
        notify: Callable[[], Awaitable[None]],
        *,
        genesis: int,
        native: Mapping[Address, int],
    ) -> None:
        """Take over a node in block 0, given the id of its snapshot and the native balances.
        `notify` is called after each operation.
        """
        self._rpc, self._clock, self._notify = rpc, clock, notify
        self._turn = asyncio.Lock()
        self.automine = True
        """Whether each transaction is mined immediately."""
        self._genesis = genesis
        self._native = {account: (0, amount_wei) for account, amount_wei in native.items()}
        self._snapshots: dict[int, tuple[int, list[Resend]]] = {}
        """The height and the mempool of each snapshot: the node restores no mempool."""
        self._codes: dict[Address, tuple[bytes, Mapping[bytes, bytes]]] = {}
        self._reorgs, self.forced_reverts = 0, ForcedReverts()

    @asynccontextmanager
    async def operation(self) -> AsyncIterator[None]:
        """Run an operation of several requests in a `with` block, one operation at a time."""
        async with self._turn:
            yield
        await self._notify()

    async def mine(self, blocks: int = 1) -> int:
        """Mine blocks; the first includes every waiting transaction. Return the new height."""
        if not 1 <= blocks <= MAX_BLOCKS:
            raise ChainError(f"mine 1 to {MAX_BLOCKS} blocks at a time, not {blocks}")
        async with self.operation():
            await self.mine_blocks(blocks)
        return await self.height()

    async def set_automine(self, on: bool) -> None:
        """Mine each transaction immediately (on), or only when `mine` is called (off)."""
        async with self.operation():
            self.automine = on
            await self.resume()

    @property
    def snapshots(self) -> Collection[int]:
        """The ids of the snapshots that `revert` can go back to."""
        return self._snapshots.keys()

    async def snapshot(self) -> int:
        """Take a snapshot of the state; return its id."""
        async with self._turn:
            saved = await self.height(), await self.pool()
            snapshot = await self._take_snapshot()
            self._snapshots[snapshot] = saved
        return snapshot

    async def revert(self, snapshot: int) -> None:
        """Revert to a snapshot, and delete all snapshots from this on; raises `ChainError`."""
        async with self.operation():
            if snapshot not in self._snapshots:
                known = ", ".join(map(str, self._snapshots)) or "none"
                raise ChainError(f"no snapshot {snapshot}; there are: {known}")
            await self._revert_to(snapshot)
            await self._write_codes()
            await self.replace_mempool(self._snapshots[snapshot][1])
            await self.resume()
            self._snapshots = {n: it for n, it in self._snapshots.items() if n < snapshot}

    async def deepest_reorg(self) -> int:
        """Return how many of the last blocks `reorg` can replace: all but the first."""
        return await self.height()

    async def reorg(self, depth: int, drop: Collection[Hash] = ()) -> None:
        """Replace the last `depth` blocks by as many new ones; raises `ChainError`. Unlike on the
        ledger, an account's transactions after a dropped one stay in the mempool until the missing
        nonce is sent, as on any real chain.
        """
        async with self.operation():
            height = await self.height()
            base = height - depth
            require_depth(depth, height)
            lost: list[Resend] = []
            for number in range(base + 1, height + 1):
                lost += await resends_of(self._rpc, number)
            lost += await self.pool()
            await self._rpc.ask("anvil_rollback", depth)
            self._snapshots = {n: it for n, it in self._snapshots.items() if it[0] <= base}
            self._reorgs += 1  # another coinbase: new blocks differ from the old ones
            await self._rpc.ask("anvil_setCoinbase", to_hex(MINER + self._reorgs.to_bytes(8)))
            for account, (set_at, amount_wei) in self._native.items():
                if set_at >= base:  # the rollback has taken it away
                    await self._write_native(account, amount_wei)
            await self._write_codes()
            await self.replace_mempool([])
            if depth > 1:
                await self.mine_blocks(depth - 1)
            await self.replace_mempool([tx for tx in lost if tx.hash not in drop])
            await self.mine_blocks(1)
            await self.resume()

    async def reset(self) -> None:
        """Revert to block 0. The automine setting is kept."""
        async with self.operation():
            await self._revert_to(self._genesis)
            await self._rpc.ask("anvil_dropAllTransactions")
            nobody = to_hex(ZERO_ADDRESS)  # which has a price in gas
            await self._rpc.ask("anvil_setCoinbase", nobody)
            self._genesis = await self._take_snapshot()
            self._snapshots.clear()
            self._codes.clear()

    async def drop(self, only: Hash | None = None) -> bool:
        """Drop every transaction from the mempool, as a node short of memory does; with `only`,
        this transaction and the account's later ones. Return whether there was any. The node drops
        none behind a gap in nonces alone.
        """
        async with self.operation():
            if only is not None:
                return await self._rpc.ask("anvil_dropTransaction", to_hex(only)) is not None
            was = await self.waiting()
            await self._rpc.ask("anvil_dropAllTransactions")
            return bool(was)

    async def force_revert(self, calls: int, account: Address | None = None) -> None:
        """Make the next calls of the token, or only calls that name an account, run out of gas.
        Calls count when sent.
        """
        self.forced_reverts = ForcedReverts(calls, account)

    async def set_native_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance, without a transaction."""
        self._native[account] = await self.height(), amount_wei
        await self._write_native(account, amount_wei)

    async def set_code(
        self, account: Address, code: bytes, slots: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Set an account's code and words of its storage, without a transaction."""
        self._codes[account] = code, slots or {}
        await self._write_codes(account)

    # --- parts of operations ---------------------------------------------------------

    async def height(self) -> int:
        """Return the number of the newest block."""
        return await self._rpc.read(read_quantity, "eth_blockNumber")

    async def head(self) -> Block:
        """Return the newest block."""
        return await self._rpc.read(objects.block, "eth_getBlockByNumber", "latest", False)

    def next_time_s(self, head: Block) -> int:
        """Return the time of the block after `head`: the world's time, or the head's if later."""
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

    async def pool(self) -> list[Resend]:
        """Return the transactions in the mempool, those behind a gap in nonces last."""
        queued = (await self._rpc.ask("txpool_content"))["queued"]
        behind = [tx for account in queued.values() for tx in account.values()]
        return await self.waiting() + [await _resend(self._rpc, tx) for tx in behind]

    async def wait_until_mined(self) -> None:
        """Wait until the node has mined a client's transaction: it answers before."""
        for _ in range(MAX_LOOKS):
            if not self.automine or not await self.waiting():
                return

    async def follow_automine(self) -> None:
        """Take over the node's automine setting, which a client may have switched directly."""
        on = await self._rpc.ask("anvil_getAutomine")
        if on != self.automine:
            self.automine = on
            await self.resume()

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

    async def _take_snapshot(self) -> int:
        return int(await self._rpc.ask("evm_snapshot"), 16)

    async def _revert_to(self, snapshot: int) -> None:
        if not await self._rpc.ask("evm_revert", hex(snapshot)):
            raise ChainError(f"the node has forgotten snapshot {snapshot}")

    async def _write_native(self, account: Address, amount_wei: int) -> None:
        await self._rpc.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    async def _write_codes(self, *accounts: Address) -> None:
        """Set contracts without a transaction: of these accounts, or again of all accounts set
        before.
        """
        for account in accounts or self._codes:
            code, slots = self._codes[account]
            await self._rpc.ask("anvil_setCode", to_hex(account), to_hex(code))
            for slot, word in slots.items():
                params = to_hex(account), to_hex(slot), to_hex(word)
                await self._rpc.ask("anvil_setStorageAt", *params)


async def resends_of(node: AnyNode, block: int | Literal["pending"]) -> list[Resend]:
    """Return the transactions of a block in order; "pending" has those in the mempool."""
    which = quantity(block) if isinstance(block, int) else block
    found = await node.ask("eth_getBlockByNumber", which, True)
    return [await _resend(node, tx) for tx in found["transactions"]]


async def _resend(node: AnyNode, tx: Json) -> Resend:
    """Return the request that sends a transaction again: raw if signed, else impersonated."""
    if read_quantity(tx["r"]):
        raw = await node.ask("eth_getRawTransactionByHash", tx["hash"])
        return Resend(read_hash(tx["hash"]), "eth_sendRawTransaction", raw)
    request = {name: tx[name] for name in _SENT_AS if tx.get(name) is not None}
    if "maxFeePerGas" in request:
        del request["gasPrice"]
    return Resend(read_hash(tx["hash"]), "eth_sendTransaction", request)
