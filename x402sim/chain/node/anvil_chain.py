"""A chain on an anvil of our own, with all control over it.

It begins as a ledger does: block 0 holds the token at the network's own address, the
balances, and the gas money. Each block has the time of the world's clock, and anvil
sends for any account without its key.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from x402sim.chain import contract
from x402sim.chain.base import Block, Call, ChainError, Mining, Minting, Rewinding
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.ledger import PLENTY_WEI
from x402sim.chain.ledger.machine import GAS_PRICE_WEI
from x402sim.chain.node import objects
from x402sim.chain.node.anvil import AnvilProcess
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.chain.node.evm_chain import GAS_LIMIT, POLL_S, EvmChain, require_fit
from x402sim.chain.rpc.jsonrpc import Json, quantity, read_hash, read_quantity
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, to_hex
from x402sim.protocol.networks import Network

MAX_BLOCKS = 10_000
"""How many blocks can be mined at a time."""
TIMEOUT_S = 60
"""Mining ten thousand blocks takes a while."""
MAX_LOOKS = 500
"""How often to look whether a block that is due has come; each look takes a millisecond."""
TOO_LITTLE_GAS = 100
"""The gas of a call that is forced to revert: it ends before it does anything."""
MINER = b"x402sim/mine"
"""The coinbase of a replacement block, with a number behind it."""
_SENT_AS = (
    "from",
    "to",
    "value",
    "input",
    "nonce",
    "gas",
    "gasPrice",
    "maxFeePerGas",
    "maxPriorityFeePerGas",
)


@dataclass(frozen=True, slots=True)
class _Again:
    """How to send a transaction once more: the JSON-RPC call that gives the same hash."""

    hash: Hash
    method: str
    argument: Any


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a snapshot is besides anvil's own: its height, and what waited."""

    height: int
    waiting: list[_Again]


class AnvilChain(EvmChain):
    """A chain on an anvil that it starts and stops; a `WorldChain` that offers all control."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        *,
        owner: Address,
        balances: Mapping[Address, int] | None = None,
        native: Mapping[Address, int] | None = None,
        program: Path | None = None,
        in_line: bool = False,
    ) -> None:
        """Start a node and put the token on it; blocks until both is done.

        With `in_line` the process blocks while the node is asked, as virtual time needs.
        Raises `ChainError` if there is no anvil (saying how to get it), or it fails.
        """
        self.owner = owner
        self._anvil = AnvilProcess(network.chain_id, clock.now_s(), program)
        node = JsonRpcNode(self._anvil.url, timeout_s=TIMEOUT_S, parallel=0 if in_line else 1)
        super().__init__(node, network, clock)
        self._turn = asyncio.Lock()
        """Held while an operation is done, which takes several questions."""
        self._automine = True
        self._forced_reverts = 0
        self._reorgs = 0
        self._snapshots: dict[int, _Saved] = {}
        self._native: dict[Address, int] = {owner: PLENTY_WEI, **(native or {})}
        self._wakers: set[asyncio.Future[None]] = set()
        try:
            self._furnish(network, dict(balances or {}))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The node's JSON-RPC address, for clients of its own."""
        return self._anvil.url

    def _furnish(self, network: Network, balances: dict[Address, int]) -> None:
        """Put the token and the money into block 0.

        The constructor runs at the address where the token shall be, so what it keeps
        there, the EIP-712 domain above all, is that address's own.
        """
        ask, token = self.node.ask_now, to_hex(self.token)
        ask("anvil_setCode", token, to_hex(contract.creation_code(network, self.owner)))
        runtime = ask("eth_call", {"to": token}, "latest")
        ask("anvil_setCode", token, runtime)
        for slot, word in contract.storage(network, self.owner, balances).items():
            ask("anvil_setStorageAt", token, to_hex(slot), to_hex(word))
        for account, amount_wei in self._native.items():
            ask("anvil_setBalance", to_hex(account), quantity(amount_wei))
        ask("anvil_setBlockTimestampInterval", 0)  # or else its own clock adds a second at times
        self._genesis = int(ask("evm_snapshot"), 16)
        first = ask("eth_getBlockByNumber", "0x0", False)
        self._first = [objects.block(first)], sum(balances.values())

    # --- what every chain offers -----------------------------------------------------

    async def _as_of(self) -> tuple[Json, ...]:
        """Let a call see the block that would be mined now."""
        head = await self._head()
        now = {"number": quantity(head.number + 1), "time": quantity(self._next_time_s(head))}
        return {}, now

    async def gas_price(self) -> int:
        """Return the price of one unit of gas in wei."""
        return GAS_PRICE_WEI

    async def send(self, call: Call) -> Hash:
        """Put a transaction of any account into the mempool; raises `ChainError`."""
        require_fit(call)
        async with self._turn:
            asked = {
                **objects.call_object(call),
                "nonce": quantity(await self.account_nonce(call.sender)),
                "gas": quantity(self._gas_limit(call)),
                "gasPrice": quantity(GAS_PRICE_WEI),
            }
            if self._automine:
                await self._set_time()
                into = objects.transaction_hash
                tx_hash = await self.node.read(into, "eth_sendTransactionSync", asked)
            else:
                tx_hash = await self.node.read(read_hash, "eth_sendTransaction", asked)
        await self.notify()
        return tx_hash

    def _gas_limit(self, call: Call) -> int:
        if self._forced_reverts and call.to == self.token:
            self._forced_reverts -= 1
            return gas.intrinsic(call.data) + TOO_LITTLE_GAS
        return GAS_LIMIT

    async def _pause(self) -> None:
        """Wait for the next operation, or a moment: clients may use the node directly."""
        loop = asyncio.get_running_loop()
        waker = loop.create_future()
        self._wakers.add(waker)
        alarm = loop.call_later(POLL_S, _wake, waker)
        try:
            await waker
        finally:
            alarm.cancel()
            self._wakers.discard(waker)

    async def pass_on(self, body: bytes, *, writes: bool) -> bytes:
        """Return the node's answer to a JSON-RPC request; what it mines has our time."""
        if not writes:
            return await super().pass_on(body, writes=False)
        async with self._turn:
            await self._set_time()
            answer = await self.node.forward(body)
            await self._until_mined()
        await self.notify()
        return answer

    async def _until_mined(self) -> None:
        """Wait until the node has mined what a client sent: it answers before it does."""
        for _ in range(MAX_LOOKS):
            if not self._automine or not await self._in("pending"):
                return

    # --- what only a chain under test offers -----------------------------------------

    @property
    def automine(self) -> bool:
        """Whether every transaction is mined at once."""
        return self._automine

    @property
    def minting(self) -> Minting:
        """This chain: it mints."""
        return self

    @property
    def mining(self) -> Mining:
        """This chain: it mines on demand."""
        return self

    @property
    def rewinding(self) -> Rewinding:
        """This chain: it rewinds."""
        return self

    def at_first(self) -> tuple[list[Block], int]:
        """Return block 0 and the supply in it."""
        return self._first

    async def waiting(self) -> int:
        """Return how many transactions wait in the mempool, for a block or for a nonce."""
        status = await self.node.ask("txpool_status")
        return sum(read_quantity(status[which]) for which in ("pending", "queued"))

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens, in a transaction of the token's owner; raises `ChainError`."""
        await self._send_and_check(Call(self.owner, self.token, abi.mint(account, amount_base)))

    async def mine(self, blocks: int = 1) -> int:
        """Mine blocks, the first with every waiting transaction; return the new height."""
        if not 1 <= blocks <= MAX_BLOCKS:
            raise ChainError(f"mine 1 to {MAX_BLOCKS} blocks at a time, not {blocks}")
        async with self._turn:
            await self._mine(blocks)
        await self.notify()
        return await self.height()

    async def set_automine(self, on: bool) -> None:
        """Mine every transaction at once (on), or only when `mine` is called (off)."""
        async with self._turn:
            self._automine = on
            await self._resume()
        await self.notify()

    async def snapshot(self) -> int:
        """Remember this state; returns the snapshot's id."""
        async with self._turn:
            saved = _Saved(await self.height(), await self._in("pending"))
            snapshot = int(await self.node.ask("evm_snapshot"), 16)
            self._snapshots[snapshot] = saved
        return snapshot

    async def revert(self, snapshot: int) -> None:
        """Go back to a snapshot, which is used up with all later ones; raises `ChainError`."""
        async with self._turn:
            saved = self._snapshots.get(snapshot)
            if saved is None:
                known = ", ".join(map(str, self._snapshots)) or "none"
                raise ChainError(f"no snapshot {snapshot}; there are: {known}")
            await self._go_back_to(snapshot)
            await self._put_back(saved.waiting)
            await self._resume()
            self._keep_snapshots(lambda number, _: number < snapshot)
        await self.notify()

    async def reorg(self, depth: int, drop: Collection[Hash] = ()) -> None:
        """Replace the last `depth` blocks by as many others; raises `ChainError`.

        Unlike on the ledger, what an account sent after a dropped transaction waits on
        until the missing nonce has come, as on any real chain.
        """
        async with self._turn:
            height = await self.height()
            base = height - depth
            if not 0 <= base < height:
                text = f"cannot replace the last {depth} blocks; the last {height} can be"
                raise ChainError(text)
            lost = [again for n in range(base + 1, height + 1) for again in await self._in(n)]
            lost += await self._in("pending")
            await self.node.ask("anvil_rollback", depth)
            self._keep_snapshots(lambda _, saved: saved.height <= base)
            await self._tell_apart()
            await self._restore_native()
            await self._put_back([])
            if depth > 1:
                await self._mine(depth - 1)
            await self._put_back([again for again in lost if again.hash not in drop])
            await self._mine(1)
            await self._resume()
        await self.notify()

    async def drop(self) -> None:
        """Forget every transaction in the mempool, as a node short of memory does."""
        await self.node.ask("anvil_dropAllTransactions")
        await self.notify()

    async def set_native_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance, without a transaction."""
        self._native[account] = amount_wei
        await self.node.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    async def force_revert(self, calls: int) -> None:
        """Make the next `calls` calls of the token that are sent run out of gas."""
        self._forced_reverts = calls

    async def reset(self) -> None:
        """Go back to block 0. Automining stays as it was set."""
        async with self._turn:
            await self._go_back_to(self._genesis)
            await self.node.ask("anvil_dropAllTransactions")
            self._genesis = int(await self.node.ask("evm_snapshot"), 16)
            self._snapshots.clear()
        await self.notify()

    def close(self) -> None:
        """Stop the node."""
        self._anvil.stop()
        super().close()

    # --- how it is done --------------------------------------------------------------

    async def _send_and_check(self, call: Call) -> None:
        receipt = await self.receipt(await self.send(call))
        if receipt and receipt.revert_reason is not None:
            raise ChainError(receipt.revert_reason)

    async def _head(self) -> Block:
        return await self.node.read(objects.block, "eth_getBlockByNumber", "latest", False)

    def _next_time_s(self, head: Block) -> int:
        return max(self._clock.now_s(), head.timestamp_s)

    async def _set_time(self) -> None:
        """Give the next block the world's time, but never one before its parent's."""
        await self.node.ask("evm_setNextBlockTimestamp", self._next_time_s(await self._head()))

    async def _mine(self, blocks: int) -> None:
        await self._set_time()
        await self.node.ask("anvil_mine", quantity(blocks), "0x0")  # all at the same second

    async def _in(self, block: int | Literal["pending"]) -> list[_Again]:
        """Return the transactions of a block in order; those that wait are the pending one's."""
        which = quantity(block) if isinstance(block, int) else block
        found = await self.node.ask("eth_getBlockByNumber", which, True)
        return [await self._again(tx) for tx in found["transactions"]]

    async def _again(self, tx: Json) -> _Again:
        """Return how to send a transaction again: signed as it was, or for its sender."""
        if read_quantity(tx["r"]):
            raw = await self.node.ask("eth_getRawTransactionByHash", tx["hash"])
            return _Again(read_hash(tx["hash"]), "eth_sendRawTransaction", raw)
        asked = {name: tx[name] for name in _SENT_AS if tx.get(name) is not None}
        if "maxFeePerGas" in asked:
            del asked["gasPrice"]
        return _Again(read_hash(tx["hash"]), "eth_sendTransaction", asked)

    async def _put_back(self, transactions: list[_Again]) -> None:
        """Make these, and no others, wait in the mempool, until `_resume`."""
        await self.node.ask("evm_setAutomine", False)
        await self.node.ask("anvil_dropAllTransactions")
        for again in transactions:
            await self.node.ask(again.method, again.argument)

    async def _resume(self) -> None:
        """Mine at once or on demand, as it was set; at once includes what waits already."""
        if self._automine and await self._in("pending"):
            await self._mine(1)
        await self.node.ask("evm_setAutomine", self._automine)

    async def _tell_apart(self) -> None:
        """Let the blocks to come differ from those they replace, even if nothing else does."""
        self._reorgs += 1
        await self.node.ask("anvil_setCoinbase", to_hex(MINER + self._reorgs.to_bytes(8)))

    async def _restore_native(self) -> None:
        """Set native balances again that were set without a transaction, so are in no block."""
        for account, amount_wei in self._native.items():
            await self.node.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    def _keep_snapshots(self, wanted: Callable[[int, _Saved], bool]) -> None:
        self._snapshots = {n: saved for n, saved in self._snapshots.items() if wanted(n, saved)}

    async def _go_back_to(self, snapshot: int) -> None:
        if not await self.node.ask("evm_revert", hex(snapshot)):
            raise ChainError(f"the node has forgotten snapshot {snapshot}")

    async def notify(self) -> None:
        """Call the watchers, then wake those who wait for a receipt."""
        await super().notify()
        for waker in self._wakers:
            _wake(waker)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
