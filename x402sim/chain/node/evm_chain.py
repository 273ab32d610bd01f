"""A token on any JSON-RPC node.

Every wait has a limit. If the node did not answer when a transaction was sent, it may be mined or
not: `wait` returns the receipt, or raises `TimeoutError` (not known yet) or `ChainError` (it can
never be mined).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from x402sim.chain import contract, reverts
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
from x402sim.chain.node import objects, token
from x402sim.chain.node.evm import JsonRpcNode, NodeGone
from x402sim.chain.node.sender import Sender
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, checksum, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import Json, quantity, read_address, read_bytes, read_quantity

DEPLOY_TIMEOUT_S = 120
POLL_S = 0.25
REVERTED = "execution reverted"
NOT_KNOWN = "the reason is not known"
T = TypeVar("T")


class EvmChain:
    """A token on a node; implements `chain.base.Chain`. It sends for accounts whose keys it has."""

    def __init__(
        self, node: JsonRpcNode, network: Network, clock: Clock, keys: Iterable[bytes] = ()
    ) -> None:
        self.network = network
        self.chain_id = network.chain_id
        self.token = network.asset
        self.node = node
        self._clock = clock
        self._sender = Sender(node, network.chain_id, keys)
        self.watchers: list[Callable[[], Awaitable[None]]] = []
        """Functions to call after every operation."""

    @property
    def keys(self) -> list[Address]:
        """The accounts whose keys we have, in the order of the keys."""
        return list(self._sender.keys)

    async def check(self, network: Network, *, read: bool = False) -> Network:
        """Return the network; with `read`, its token is what the contract at our address says.

        Raises `ChainError` unless the node has this network's chain, and its token or such a one.
        """
        await self.check_id(network)
        if not await self.code(self.token):
            raise ChainError(f"no contract at {checksum(self.token)} on {self.node.name}")
        look = token.described if read else token.check
        return await look(self, self.node.name, network)

    async def check_id(self, network: Network) -> None:
        """Raise `ChainError` unless the node has this network's chain."""
        seen = await self.node.read(read_quantity, "eth_chainId")
        if seen != network.chain_id:
            wanted = f"{network.chain_id} ({network.name})"
            raise ChainError(f"{self.node.name} is chain {seen}, not {wanted}")

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
        asked = to_hex(tx_hash)
        found, tx = await self.node.ask_all(
            ("eth_getTransactionReceipt", asked), ("eth_getTransactionByHash", asked)
        )
        if found is None or tx is None:
            return None
        read = self.node.understand(objects.transaction, "eth_getTransactionByHash", tx)
        reason = None if found.get("status") == "0x1" else await self._revert_reason(read)
        into = partial(objects.receipt, asked=read.call, revert_reason=reason)
        return self.node.understand(into, "eth_getTransactionReceipt", found)

    async def _revert_reason(self, tx: Transaction) -> str:
        """Return why a mined transaction failed, by a trace or a call on the block before."""
        asked = to_hex(tx.hash), {"tracer": "callTracer"}
        try:
            trace = await self.node.ask("debug_traceTransaction", *asked)
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
        asked = objects.filter_object(wanted, first, last)
        return await self.node.read(objects.logs, "eth_getLogs", asked)

    async def call(self, call: Call, block: int | None = None) -> bytes:
        """Run a call and discard its effects; raises `Reverted`, and `ChainError` for the block."""
        asked = objects.call_object(call), *await self._state(block)
        return await self.node.read(read_bytes, "eth_call", *asked)

    async def estimate_gas(self, call: Call, block: int | None = None) -> int:
        """Return the gas a call would use; raises as `call` does."""
        asked = objects.call_object(call), *await self._state(block)
        return await self.node.read(read_quantity, "eth_estimateGas", *asked)

    async def _state(self, block: int | None) -> tuple[Any, ...]:
        """Return the parameters for the state of a call: the block."""
        return ("latest" if block is None else quantity(block),)

    async def native_balance(self, account: Address, block: int | None = None) -> int:
        """Return an account's native balance in wei; raises `ChainError` for the block."""
        asked = to_hex(account), "latest" if block is None else quantity(block)
        return await self.node.read(read_quantity, "eth_getBalance", *asked)

    async def account_nonce(self, account: Address, block: int | None = None) -> int:
        """Return the number of transactions an account has sent, in the newest state waiting ones
        included; raises `ChainError` for the block.
        """
        asked = to_hex(account), "pending" if block is None else quantity(block)
        return await self.node.read(read_quantity, "eth_getTransactionCount", *asked)

    async def code(self, account: Address, block: int | None = None) -> bytes:
        """Return a contract's code; raises `ChainError` for the block."""
        asked = to_hex(account), "latest" if block is None else quantity(block)
        return await self.node.read(read_bytes, "eth_getCode", *asked)

    async def gas_price(self) -> int:
        """Return the price of one unit of gas in wei."""
        return await self.node.read(read_quantity, "eth_gasPrice")

    async def supply(self) -> int:
        """Return the token's total supply, in base units."""
        return int.from_bytes(await self.call(Call(self.token, self.token, abi.TOTAL_SUPPLY)))

    # --- sending ---------------------------------------------------------------------

    async def send(self, call: Call) -> Hash:
        """Sign a transaction and put it into the node's mempool.

        Raises `ChainError` without a key for the account, or if the node rejects it.
        """
        gas.require_fit(call.data)
        asked = {"to": checksum(call.to), "data": call.data, "value": call.value}
        return await self._sender.send(call.sender, {**asked, "gas": GAS_LIMIT})

    async def deploy(self, network: Network, owner: Address, sender: Address) -> Address:
        """Deploy a network's token, minted by `owner`; return its address.

        Raises `ChainError`, and `TimeoutError` if it is not mined in two minutes.
        """
        code = contract.creation_code(network, owner)
        call = {"from": to_hex(sender), "input": to_hex(code)}
        needed = await self.node.read(read_quantity, "eth_estimateGas", call)
        tx_hash = await self._sender.send(sender, {"data": code, "value": 0, "gas": needed})
        if not (await self.wait(tx_hash, DEPLOY_TIMEOUT_S)).succeeded:
            raise ChainError(f"the token could not be deployed: {to_hex(tx_hash)}")
        asked = "eth_getTransactionReceipt", to_hex(tx_hash)
        return await self.node.read(lambda made: read_address(made["contractAddress"]), *asked)

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
        """Return the receipt; None if there is none yet or the node does not answer."""
        try:
            receipt = await self.receipt(tx_hash)
            if receipt is None:
                await self._sender.see_to(tx_hash)
        except NodeGone:
            return None
        return receipt

    async def _pause(self) -> None:
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
