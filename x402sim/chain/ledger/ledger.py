"""The chain in memory: the machine, a clock, and an optional log on disk.

With a file, the ledger logs each operation before running it, and replays the log at the next
start: the chain survives a kill -9 at any moment. An operation that cannot be logged, because the
disk is full, does not run and raises `ChainUnavailable`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from x402sim.chain.base import (
    PLENTY_WEI,
    Block,
    Call,
    ChainError,
    Log,
    LogFilter,
    Reverted,
    Transaction,
    TxReceipt,
)
from x402sim.chain.contract import MULTICALL
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.frame import Frame, Token
from x402sim.chain.ledger.machine import Machine, Which, admit
from x402sim.chain.ledger.multicall import NO_TRANSACTIONS
from x402sim.chain.ledger.operations import ARRIVALS, OPERATIONS, Operation, OperationLog, signed_of
from x402sim.chain.ledger.permit2 import Running
from x402sim.chain.ledger.state import LedgerState
from x402sim.chain.ledger.storage import word_at
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash
from x402sim.protocol.networks import Network

AT_A_TURN = 16
"""Transactions of the next block that are executed in a turn: some milliseconds."""


class LedgerChain:
    """A chain in memory with one token; a `Chain` and its `Controls`.

    `origin` and `accounts` identify the database and the first balances that belong to the file;
    `left_out` are rules of its token: (name of the table, clause).
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        *,
        owner: Address,
        balances: Mapping[Address, int] | None = None,
        native: Mapping[Address, int] | None = None,
        file: Path | None = None,
        origin: bytes = b"",
        accounts: bytes = b"",
        has_history: bool = False,
        left_out: Iterable[tuple[str, str]] = (),
        gas_price: Callable[[], int] | None = None,
        calls_at_block_time: bool = False,
    ) -> None:
        self.chain_id = network.chain_id
        self.token = network.asset
        self.owner = owner
        self._identity = [network.chain_id, owner, origin, accounts]
        """What the file begins with, before the base fee."""
        self._has_history = has_history
        self._base_fee_wei, self._at_block_time = network.base_fee_wei, calls_at_block_time
        self._gas_price = gas_price or (lambda: network.base_fee_wei)
        self._clock = clock
        self._new_machine: Callable[[int, int], Machine] = lambda genesis_s, most_wei: Machine(
            Token(network, owner, left_out),
            genesis_s,
            balances or {},
            {owner: PLENTY_WEI, **(native or {})},
            most_wei,
        )
        self.watchers: list[Callable[[], Awaitable[None]]] = []
        """Functions to call after every operation."""
        self._waiters: dict[asyncio.Future[TxReceipt], Hash] = {}
        self._pending_turn = asyncio.Lock()
        self._log = OperationLog(file) if file else None
        try:
            self.machine = self._open()
        except BaseException:
            if self._log:
                self._log.close()
            raise
        self.at_first = list(self.machine.state.blocks.values()), self.machine.state.supply

    # --- what every chain offers -----------------------------------------------------

    async def height(self) -> int:
        """Return the number of the newest block."""
        return self.machine.state.height

    async def block(self, which: int | Hash) -> Block | None:
        """Return a block by number or hash."""
        state = self.machine.state
        number = which if isinstance(which, int) else state.block_numbers.get(which, -1)
        return state.blocks.get(number)

    async def transaction(self, tx_hash: Hash) -> Transaction | None:
        """Return a transaction, mined or waiting."""
        return self.machine.transaction(tx_hash)

    async def receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt of a mined transaction."""
        return self.machine.receipt(tx_hash)

    async def logs(self, wanted: LogFilter) -> list[Log]:
        """Return the logs that pass the filter, oldest first."""
        return self.machine.logs(wanted)

    async def call(self, call: Call, block: Which = None) -> bytes:
        """Run a call and discard its effects; raises `Reverted`, and `ChainError` for the block."""
        return self._call(call, block)[0]

    async def estimate_gas(self, call: Call, block: Which = None) -> int:
        """Return the gas a call needs; raises as `call` does, and for Multicall3."""
        _, frame = self._call(call, block)
        if call.to == MULTICALL:
            raise Reverted(NO_TRANSACTIONS)
        needed = frame.least() if frame else 0
        return max(gas.intrinsic(call.data) + needed, gas.floor(call.data))

    def _call(self, call: Call, block: Which) -> tuple[bytes, Frame | Running | None]:
        """Run a call in the state after a block; return the result and the frame.

        The time is that of the block. But the pending state has the present time, and so has the
        newest state, unless this node calls at block time.
        """
        state = self.machine.at(block)
        is_newest = state is self.machine.state and not self._at_block_time
        is_now = state is block or is_newest
        return self.machine.call(call, self._clock.now_s() if is_now else 0, state)

    async def pending(self, turn: Callable[[], Awaitable[None]]) -> LedgerState:
        """Return the state after the block that would be mined now, executed in some transactions
        a `turn`. It is only to be read, and before the next await.

        One call at a time executes: two of different seconds would undo each other's work.
        """
        async with self._pending_turn:
            at_s = self._clock.now_s()
            while (state := self.machine.pending(at_s, AT_A_TURN)) is None:
                await turn()
            return state

    async def send(self, call: Call) -> Hash:
        """Put a transaction into the mempool; raises `ChainError`."""
        if call.value < 0:
            raise ChainError(f"a transaction cannot carry {call.value} wei")
        await self._follow_gas_price()
        tx_hash: Hash = await self._apply("send", call.sender, call.to, call.data, str(call.value))
        return tx_hash

    async def send_signed(self, raw: bytes) -> Hash:
        """Put a signed transaction into the mempool, given as the bytes that nodes exchange.

        Raises `ChainError` in the words of real nodes.
        """
        await self._follow_gas_price()
        # before `_apply`, so that no refused transaction gets into the file: anybody can send them
        admit(self.machine, signed_of(raw))
        tx_hash: Hash = await self._apply("raw", raw)
        return tx_hash

    async def _follow_gas_price(self) -> None:
        price_wei = self._gas_price()
        if price_wei != self.machine.gas_price_wei:
            await self._apply("gas_price", str(price_wei))

    async def wait(self, tx_hash: Hash, timeout_s: float) -> TxReceipt:
        """Return the receipt once the transaction is mined; raises `TimeoutError`."""
        receipt = self.machine.receipt(tx_hash)
        if receipt:
            return receipt
        waiter: asyncio.Future[TxReceipt] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = tx_hash
        try:
            async with asyncio.timeout(timeout_s):
                return await waiter
        finally:
            del self._waiters[waiter]

    async def native_balance(self, account: Address, block: Which = None) -> int:
        """Return an account's native balance in wei; raises `ChainError` for the block."""
        return self.machine.at(block).native.get(account, 0)

    async def account_nonce(self, account: Address) -> int:
        """Return how many transactions an account has sent, waiting ones included."""
        return self.machine.state.next_nonces.get(account, 0)

    async def mined_nonce(self, account: Address, block: Which = None) -> int:
        """Return how many transactions of an account are mined; raises `ChainError`."""
        return self.machine.at(block).account_nonces.get(account, 0)

    async def code(self, account: Address, block: Which = None) -> bytes:
        """Return a contract's code, of the token a placeholder; raises `ChainError`."""
        return self.machine.at(block).codes.get(account, b"")

    async def storage(self, account: Address, slot: bytes, block: Which = None) -> bytes:
        """Return a word of a contract's storage, zero for any other account; raises `ChainError`
        for the block.
        """
        return word_at(self.machine.at(block), self.machine.token, account, slot)

    def pending_block(self) -> Block:
        """Return the block that would be mined now, with the waiting transactions."""
        return self.machine.pending_block(self._clock.now_s())

    async def gas_price(self) -> int:
        """Return the price of one unit of gas in wei."""
        return self._gas_price()

    # --- what only a chain under test offers -----------------------------------------

    @property
    def automine(self) -> bool:
        """Whether each transaction is mined immediately."""
        return self.machine.automine

    @property
    def controls(self) -> "LedgerChain":
        """This chain, which offers every control."""
        return self

    async def balance(self, account: Address) -> int:
        """Return an account's balance of the token, in base units."""
        return self.machine.state.balances.get(account, 0)

    async def supply(self) -> int:
        """Return the token's total supply, in base units."""
        return self.machine.state.supply

    async def waiting(self) -> int:
        """Return how many transactions wait in the mempool."""
        return len(self.machine.pool())

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens, in a transaction of the token's owner; raises `ChainError`."""
        call = Call(self.owner, self.token, abi.mint(account, amount_base))
        receipt = await self.receipt(await self.send(call))
        if receipt and receipt.revert_reason is not None:
            raise ChainError(receipt.revert_reason)

    async def mine(self, blocks: int = 1) -> int:
        """Mine blocks; the first includes every waiting transaction. Return the new height."""
        if not 1 <= blocks <= 10_000:
            raise ChainError(f"mine 1 to 10000 blocks at a time, not {blocks}")
        await self._apply("mine", blocks)
        return await self.height()

    async def set_automine(self, on: bool) -> None:
        """Mine each transaction immediately (on), or only when `mine` is called (off)."""
        await self._apply("automine", on)

    @property
    def snapshots(self) -> Collection[int]:
        """The ids of the snapshots that `revert` can go back to."""
        return self.machine.snapshots

    async def snapshot(self) -> int:
        """Take a snapshot of the state; return its id."""
        snapshot: int = await self._apply("snapshot")
        return snapshot

    async def revert(self, snapshot: int) -> None:
        """Revert to a snapshot, and delete all snapshots from this on; raises `ChainError`."""
        await self._apply("revert", snapshot)

    async def deepest_reorg(self) -> int:
        """Return how many of the last blocks `reorg` can replace."""
        return self.machine.deepest_reorg

    async def reorg(self, depth: int, drop: Collection[Hash] = ()) -> None:
        """Replace the last `depth` blocks by as many new ones; raises `ChainError`."""
        await self._apply("reorg", depth, sorted(drop))

    async def drop(self, only: Hash | None = None) -> bool:
        """Drop every transaction from the mempool, as a node short of memory does; return whether
        there was any. With `only`, drop this transaction and the account's later ones.
        """
        dropped: bool = await self._apply("drop", *([] if only is None else [only]))
        return dropped

    async def set_native_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance, without a transaction."""
        await self._apply("set_native_balance", account, str(amount_wei))

    async def set_code(
        self, account: Address, code: bytes, slots: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Set an account's code and words of its storage, without a transaction."""
        await self._apply("code", account, code, dict(slots or {}))

    async def put_code(self, account: Address, code: bytes) -> None:
        """Set an account's code, as a test node does: undoing blocks takes the code away again."""
        await self._apply("put_code", account, code)

    async def set_nonce(self, account: Address, nonce: int) -> None:
        """Set the nonce of an account's next transaction."""
        await self._apply("nonce", account, nonce)

    async def force_revert(self, calls: int, account: Address | None = None) -> None:
        """Make the next calls of the token, or calls that name an account, revert when mined."""
        await self._apply("force_revert", calls, *([] if account is None else [account]))

    async def reset(self) -> None:
        """Revert to block 0. The automine setting is kept."""
        old, automine = self.machine, self.machine.automine
        new = self._begin()  # first: on a full disk the old chain goes on, with its archive
        self.machine, new.arrivals = new, old.arrivals
        old.close()
        if not automine:
            await self._apply("automine", False)
        await self._notify()

    def close(self) -> None:
        """Close the files, if there are any."""
        if self._log:
            self._log.close()
        self.machine.close()

    # --- operations ------------------------------------------------------------------

    def _open(self) -> Machine:
        operations = self._log.read() if self._log else []
        if not operations and self._has_history:
            raise ChainError("the chain file is empty, but its database has payments")
        if not operations:
            return self._begin()
        try:
            return self._replay(operations)
        except (LookupError, TypeError, ValueError) as error:
            raise ChainError(f"the chain file is damaged: {error!r}") from error

    def _begin(self) -> Machine:
        at_s = self._clock.now_s()
        price_wei = self._base_fee_wei
        if self._log:
            self._log.begin(at_s, *self._identity, str(price_wei))
        return self._new_machine(at_s, price_wei)

    def _replay(self, operations: list[Operation]) -> Machine:
        """Return a machine after a replay of these operations; the first is the genesis.

        Raises `ChainError` for the log of another network, seed or database.
        """
        genesis_s, _, (*identity, price_wei) = operations[0]
        chain_id, owner, origin, accounts = identity
        _, _, our_origin, our_accounts = self._identity
        if chain_id != self.chain_id:
            raise ChainError(f"the file holds chain {chain_id}, not {self.chain_id}")
        if owner != self.owner:
            raise ChainError("the file was made with another seed")
        if accounts != our_accounts:
            raise ChainError("the file was made with other accounts: another phrase or number")
        if origin != our_origin:
            raise ChainError("the file's chain belongs to another database, or has another token")
        machine = self._new_machine(genesis_s, int(price_wei))
        for at_s, name, arguments in operations[1:]:
            try:
                OPERATIONS[name](machine, at_s, *arguments)
            except ChainError:
                continue  # the operation failed when it was logged, and fails again
        return machine

    async def _apply(self, name: str, *arguments: Any) -> Any:
        """Log an operation, run it, then notify watchers and waiters."""
        at_s = self._clock.now_s()
        if self._log:
            self._log.write(at_s, name, *arguments)
        result = OPERATIONS[name](self.machine, at_s, *arguments)
        if name not in ARRIVALS:
            self.machine.forget_pending()
        await self._notify()
        return result

    async def _notify(self) -> None:
        """Call the watchers, then resolve the waits for receipts.

        In this order the journal has a block's events before a facilitator answers with the
        receipt.
        """
        for watcher in self.watchers:
            await watcher()
        receipts = self.machine.state.receipts
        for waiter, tx_hash in self._waiters.items():
            if tx_hash in receipts and not waiter.done():
                waiter.set_result(receipts[tx_hash])
