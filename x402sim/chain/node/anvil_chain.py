"""A chain on an anvil that this process starts, with every control. It starts as a ledger does:
block 0 has the token at the network's own address, the balances, and native currency for gas.
Blocks have the world's time, and anvil sends for any account without its key.
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
"""The most blocks that one request mines."""
TIMEOUT_S = 60
"""Seconds for one request, as mining ten thousand blocks takes long."""
MAX_LOOKS = 500
"""How often to poll for a block that is due; one poll takes a millisecond."""
TOO_LITTLE_GAS = 100
"""The gas limit of a call that is forced to revert: it runs out of gas immediately."""
MINER = b"x402sim/mine"
"""The beginning of the coinbase of a replacement block; a number completes it."""
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
    """The JSON-RPC call that sends a transaction again, with the same hash."""

    hash: Hash
    method: str
    argument: Any


@dataclass(frozen=True, slots=True)
class _Saved:
    """What we store of a snapshot besides anvil's own: its height and the mempool."""

    height: int
    waiting: list[_Again]


class AnvilChain(EvmChain):
    """A chain on an anvil that it starts and stops; a `WorldChain` that offers every control."""

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
        """Start a node and install the token; blocks until both are done. With `in_line` each
        request blocks the process, as virtual time requires. Raises `ChainError` if there is no
        anvil (saying how to get it), or it fails.
        """
        self.owner = owner
        self._anvil = AnvilProcess(network.chain_id, clock.now_s(), program)
        node = JsonRpcNode(self._anvil.url, timeout_s=TIMEOUT_S, parallel=0 if in_line else 1)
        super().__init__(node, network, clock)
        self._turn = asyncio.Lock()
        """Held during an operation, which takes several requests."""
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
        """Write the token and the balances into block 0. The constructor runs at the token's final
        address, so that the stored EIP-712 domain names it.
        """
        ask, token = self.node.ask_now, to_hex(self.token)
        ask("anvil_setCode", token, to_hex(contract.creation_code(network, self.owner)))
        runtime = ask("eth_call", {"to": token}, "latest")
        ask("anvil_setCode", token, runtime)
        for slot, word in contract.storage(network, self.owner, balances).items():
            ask("anvil_setStorageAt", token, to_hex(slot), to_hex(word))
        for account, amount_wei in self._native.items():
            ask("anvil_setBalance", to_hex(account), quantity(amount_wei))
        ask(
            "anvil_setBlockTimestampInterval", 0
        )  # otherwise anvil's own clock adds a second at times
        self._genesis = int(ask("evm_snapshot"), 16)
        first = ask("eth_getBlockByNumber", "0x0", False)
        self._first = [objects.block(first)], sum(balances.values())

    # --- what every chain offers -----------------------------------------------------

    async def _as_of(self) -> tuple[Json, ...]:
        """Return the overrides that give a call the time of a block mined now."""
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
        """Wait for the next operation, or a short time, as clients may use the node directly."""
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
        """Return the node's answer to a JSON-RPC request; new blocks have the world's time."""
        if not writes:
            return await super().pass_on(body, writes=False)
        async with self._turn:
            await self._set_time()
            answer = await self.node.forward(body)
            await self._until_mined()
        await self.notify()
        return answer

    async def _until_mined(self) -> None:
        """Wait until the node has mined a client's transaction: it answers before."""
        for _ in range(MAX_LOOKS):
            if not self._automine or not await self._in("pending"):
                return

    # --- what only a chain under test offers -----------------------------------------

    @property
    def automine(self) -> bool:
        """Whether each transaction is mined immediately."""
        return self._automine

    @property
    def minting(self) -> Minting:
        """This chain, which can mint."""
        return self

    @property
    def mining(self) -> Mining:
        """This chain, which can mine on demand."""
        return self

    @property
    def rewinding(self) -> Rewinding:
        """This chain, which can rewind."""
        return self

    def at_first(self) -> tuple[list[Block], int]:
        """Return block 0 and the supply in it."""
        return self._first

    async def waiting(self) -> int:
        """Return how many transactions wait in the mempool, including those behind a nonce gap."""
        status = await self.node.ask("txpool_status")
        return sum(read_quantity(status[which]) for which in ("pending", "queued"))

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens, in a transaction of the token's owner; raises `ChainError`."""
        await self._send_and_check(Call(self.owner, self.token, abi.mint(account, amount_base)))

    async def mine(self, blocks: int = 1) -> int:
        """Mine blocks; the first includes every waiting transaction. Return the new height."""
        if not 1 <= blocks <= MAX_BLOCKS:
            raise ChainError(f"mine 1 to {MAX_BLOCKS} blocks at a time, not {blocks}")
        async with self._turn:
            await self._mine(blocks)
        await self.notify()
        return await self.height()

    async def set_automine(self, on: bool) -> None:
        """Mine each transaction immediately (on), or only when `mine` is called (off)."""
        async with self._turn:
            self._automine = on
            await self._resume()
        await self.notify()

    async def snapshot(self) -> int:
        """Take a snapshot of the state; return its id."""
        async with self._turn:
            saved = _Saved(await self.height(), await self._in("pending"))
            snapshot = int(await self.node.ask("evm_snapshot"), 16)
            self._snapshots[snapshot] = saved
        return snapshot

    async def revert(self, snapshot: int) -> None:
        """Revert to a snapshot, and delete it and all later ones; raises `ChainError`."""
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
        """Replace the last `depth` blocks by as many new ones; raises `ChainError`. Unlike on the
        ledger, an account's transactions after a dropped one stay in the mempool until the missing
        nonce is sent, as on any real chain.
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
        """Drop every transaction from the mempool, as a node short of memory does."""
        await self.node.ask("anvil_dropAllTransactions")
        await self.notify()

    async def set_native_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance, without a transaction."""
        self._native[account] = amount_wei
        await self.node.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    async def force_revert(self, calls: int) -> None:
        """Make the next `calls` calls of the token run out of gas."""
        self._forced_reverts = calls

    async def reset(self) -> None:
        """Revert to block 0. The automine setting is kept."""
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
        """Set the next block's time to the world's, or to its parent's if that is later."""
        await self.node.ask("evm_setNextBlockTimestamp", self._next_time_s(await self._head()))

    async def _mine(self, blocks: int) -> None:
        await self._set_time()
        await self.node.ask("anvil_mine", quantity(blocks), "0x0")  # all have the same time

    async def _in(self, block: int | Literal["pending"]) -> list[_Again]:
        """Return the transactions of a block in order; block "pending" has the mempool's."""
        which = quantity(block) if isinstance(block, int) else block
        found = await self.node.ask("eth_getBlockByNumber", which, True)
        return [await self._again(tx) for tx in found["transactions"]]

    async def _again(self, tx: Json) -> _Again:
        """Return the request that sends a transaction again: raw if signed, else impersonated."""
        if read_quantity(tx["r"]):
            raw = await self.node.ask("eth_getRawTransactionByHash", tx["hash"])
            return _Again(read_hash(tx["hash"]), "eth_sendRawTransaction", raw)
        asked = {name: tx[name] for name in _SENT_AS if tx.get(name) is not None}
        if "maxFeePerGas" in asked:
            del asked["gasPrice"]
        return _Again(read_hash(tx["hash"]), "eth_sendTransaction", asked)

    async def _put_back(self, transactions: list[_Again]) -> None:
        """Replace the mempool by these transactions, and stop mining until `_resume`."""
        await self.node.ask("evm_setAutomine", False)
        await self.node.ask("anvil_dropAllTransactions")
        for again in transactions:
            await self.node.ask(again.method, again.argument)

    async def _resume(self) -> None:
        """Restore the automine setting; if it is on, mine the waiting transactions."""
        if self._automine and await self._in("pending"):
            await self._mine(1)
        await self.node.ask("evm_setAutomine", self._automine)

    async def _tell_apart(self) -> None:
        """Change the coinbase, so that new blocks differ from the blocks that they replace."""
        self._reorgs += 1
        await self.node.ask("anvil_setCoinbase", to_hex(MINER + self._reorgs.to_bytes(8)))

    async def _restore_native(self) -> None:
        """Set again the native balances that were set without a transaction."""
        for account, amount_wei in self._native.items():
            await self.node.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    def _keep_snapshots(self, wanted: Callable[[int, _Saved], bool]) -> None:
        self._snapshots = {n: saved for n, saved in self._snapshots.items() if wanted(n, saved)}

    async def _go_back_to(self, snapshot: int) -> None:
        if not await self.node.ask("evm_revert", hex(snapshot)):
            raise ChainError(f"the node has forgotten snapshot {snapshot}")

    async def notify(self) -> None:
        """Call the watchers, then resolve the waits for receipts."""
        await super().notify()
        for waker in self._wakers:
            _wake(waker)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
