"""A token on any JSON-RPC node: what it tells, and the wait for a transaction.

Every wait has a limit. If the node did not answer when a transaction was sent, it may be mined or
not: `wait` returns the receipt, or raises `TimeoutError` (not known yet) or `ChainError` (it can
never be mined).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from x402sim.chain import reverts
from x402sim.chain.base import (
    Block,
    Call,
    ChainError,
    Log,
    LogFilter,
    Reverted,
    Transaction,
    TxReceipt,
)
from x402sim.chain.fees import GAS_LIMIT
from x402sim.chain.ledger import gas
from x402sim.chain.node import objects
from x402sim.chain.node.any_node import AnyNode
from x402sim.chain.node.sender import Replaced, Sender
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, checksum, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import Json, quantity, read_bytes, read_quantity

POLL_S = 0.25
REVERTED = "execution reverted"
NOT_KNOWN = "the reason is not known"
T = TypeVar("T")


class EvmChain:
    """The part of a `Chain` that is alike on every node."""

    def __init__(
        self, node: AnyNode, network: Network, clock: Clock, keys: Iterable[bytes] = ()
    ) -> None:
        self.network = network
        self.chain_id, self.token = network.chain_id, network.asset
        self.node = node
        self._clock = clock
        self._sender = Sender(node, network.chain_id, keys)
        self.watchers: list[Callable[[], Awaitable[None]]] = []
        """Functions to call after every operation."""

    # --- reading ---------------------------------------------------------------------

    async def height(self) -> int:
        """Return the number of the newest block."""
        return await self.node.read(read_quantity, "eth_blockNumber")

    async def block(self, which: int | Hash) -> Block | None:
        """Return a block by number or hash."""
        into = _maybe(objects.block)
        if isinstance(which, bytes):
            return await self.node.read(into, "eth_getBlockByHash", to_hex(which), False)
        if which < 0:
            return None
        return await self.node.read(into, "eth_getBlockByNumber", quantity(which), False)

    async def transaction(self, tx_hash: Hash) -> Transaction | None:
        """Return a transaction, mined or waiting."""
        into = _maybe(objects.transaction)
        return await self.node.read(into, "eth_getTransactionByHash", to_hex(tx_hash))

    async def receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt of a mined transaction."""
        hash_hex = to_hex(tx_hash)
        found, tx = await self.node.ask_all(
            ("eth_getTransactionReceipt", hash_hex), ("eth_getTransactionByHash", hash_hex)
        )
        if found is None or tx is None:
            return None
        read = self.node.understand(objects.transaction, "eth_getTransactionByHash", tx)
        status = self.node.understand(
            lambda given: given.get("status"), "eth_getTransactionReceipt", found
        )
        reason = None if status == "0x1" else await self._revert_reason(read)
        into = partial(objects.receipt, call=read.call, revert_reason=reason)
        return self.node.understand(into, "eth_getTransactionReceipt", found)

    async def _revert_reason(self, tx: Transaction) -> str:
        """Return why a mined transaction failed, by a trace or a call on the block before."""
        params = to_hex(tx.hash), {"tracer": "callTracer"}
        try:
            trace = await self.node.ask("debug_traceTransaction", *params)
        except ChainError:  # few public nodes offer traces
            return await self._tried_again(tx)
        output = read_bytes(trace.get("output") or "0x")
        return reverts.text_of(output) if output else _error(trace)

    async def _tried_again(self, tx: Transaction) -> str:
        """Call again on the block before, then on its own, whose time it had."""
        number = tx.block_number or 1
        for block in (number - 1, number):
            try:
                await self.node.ask("eth_call", objects.call_object(tx.call), quantity(block))
            except Reverted as reverted:
                return str(reverted)
            except ChainError as unknown:
                return f"{NOT_KNOWN}: {unknown}"
        return f"{NOT_KNOWN}: it would not have failed in the block before or in its own"

    async def logs(self, wanted: LogFilter) -> list[Log]:
        """Return the logs that pass the filter, oldest first."""
        first, last = max(0, wanted.from_block), min(await self.height(), wanted.to_block)
        if first > last:
            return []
        params = objects.filter_object(wanted, first, last)
        return await self.node.read(objects.logs, "eth_getLogs", params)

    async def call(self, call: Call) -> bytes:
        """Run a call and discard its effects; raises `Reverted`."""
        return await self.node.read(read_bytes, "eth_call", objects.call_object(call), "latest")

    async def native_balance(self, account: Address) -> int:
        """Return an account's native balance in wei."""
        return await self.node.read(read_quantity, "eth_getBalance", to_hex(account), "latest")

    async def account_nonce(self, account: Address) -> int:
        """Return the number of transactions an account has sent, waiting ones included."""
        params = to_hex(account), "pending"
        return await self.node.read(read_quantity, "eth_getTransactionCount", *params)

    async def code(self, account: Address) -> bytes:
        """Return a contract's code; empty for an account without any."""
        return await self.node.read(read_bytes, "eth_getCode", to_hex(account), "latest")

    async def balance(self, account: Address) -> int:
        """Return an account's balance of the token, in base units."""
        return int.from_bytes(await self.call(Call(account, self.token, abi.balance_of(account))))

    async def supply(self) -> int:
        """Return the token's total supply, in base units."""
        return int.from_bytes(await self.call(Call(self.token, self.token, abi.TOTAL_SUPPLY)))

    # --- sending and waiting ---------------------------------------------------------

    async def send(self, call: Call) -> Hash:
        """Sign a transaction and put it into the node's mempool.

        Raises `ChainError` without a key for the account, or if the node rejects it.
        """
        gas.require_fit(call.data)
        params = {"to": checksum(call.to), "data": call.data, "value": call.value}
        return await self._sender.send(call.sender, {**params, "gas": GAS_LIMIT})

    async def wait(self, tx_hash: Hash, timeout_s: float) -> TxReceipt:
        """Return the receipt once the transaction is mined.

        Raises `TimeoutError` if it is not mined in time, though it may be later, and `ChainError`
        if another transaction has used its nonce.
        """
        receipt = await self._find_receipt(tx_hash)
        try:
            async with asyncio.timeout(timeout_s):
                while receipt is None:
                    await self._pause()
                    receipt = await self._find_receipt(tx_hash)
        except TimeoutError:
            raise TimeoutError(f"{to_hex(tx_hash)} was not mined within {timeout_s} s") from None
        self._sender.forget(tx_hash)
        return receipt

    async def _find_receipt(self, tx_hash: Hash) -> TxReceipt | None:
        """Return the receipt; None if there is none yet, or the node does not tell.

        Whatever it says instead, such as that it is asked too often, the transaction was sent: only
        one that is replaced can never be mined. Raises `Replaced`.
        """
        try:
            receipt = await self.receipt(tx_hash)
            if receipt is None:
                await self._sender.see_to(tx_hash)
        except Replaced:
            raise
        except ChainError:
            return None
        return receipt

    async def _pause(self) -> None:
        """Wait until a receipt may be there; a chain in virtual time mines meanwhile."""
        await self._clock.sleep(POLL_S)

    # --- others ----------------------------------------------------------------------

    async def pass_on(self, body: bytes, *, writes: bool) -> bytes:
        """Return the node's answer to a JSON-RPC request, unchanged; raises `ChainError`.

        With `writes`, the request may change the chain, and the watchers are called.
        """
        answer = await self.node.forward(body)
        if writes:
            await self.notify()
        return answer

    async def notify(self) -> None:
        """Call the watchers, as the chain may have changed."""
        for watcher in self.watchers:
            await watcher()

    def close(self) -> None:
        """Close the connections to the node."""
        self.node.close()


def _maybe(into: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Return a parser that passes null through."""
    return lambda given: None if given is None else into(given)


def _error(trace: Json) -> str:
    """Return the error of a call, or of the last one in it that made it revert without data."""
    error = str(trace.get("error", ""))
    if error != REVERTED:
        return error
    calls = [call for call in trace.get("calls", ()) if call.get("error")]
    return _error(calls[-1]) if calls else ""
