"""A chain on a test node started by the world, with full control.

As on the ledger, block 0 holds the token and the balances, and each block has the time of the
world's clock. The node sends transactions of any account without its key.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from x402sim.chain import contract
from x402sim.chain.base import GAS_LIMIT, PLENTY_WEI, Call, ChainError
from x402sim.chain.ledger import gas
from x402sim.chain.node import objects
from x402sim.chain.node.anvil import AnvilNode
from x402sim.chain.node.controls import Controls
from x402sim.chain.node.evm_chain import POLL_S, EvmChain
from x402sim.clock import Clock
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import CONTRACTS
from x402sim.protocol.rpc_values import Json, quantity, read_bytes, read_hash, read_quantity

TOO_LITTLE_GAS = 100
"""The gas limit of a call that is forced to revert: it runs out of gas immediately."""
Install = Callable[[AnvilNode, Network, Address, Mapping[Address, int]], None]
"""Writes a network's token, its owner and the balances into a node's block 0; blocks until done."""


def install_stablecoin(
    node: AnvilNode, network: Network, owner: Address, balances: Mapping[Address, int]
) -> None:
    """Write the contract of `chain/contract`, an `Install`.

    The constructor runs at the token's address, as an `eth_call`: the returned code contains this
    address (in the EIP-712 domain).
    """
    ask, token = node.rpc.ask_now, to_hex(network.asset)
    ask("anvil_setCode", token, to_hex(contract.creation_code(network, owner)))
    ask("anvil_setCode", token, ask("eth_call", {"to": token}, "latest"))
    for slot, word in contract.storage(network, owner, dict(balances)).items():
        ask("anvil_setStorageAt", token, to_hex(slot), to_hex(word))


class LocalChain(EvmChain):
    """A chain on a node, which stops with the chain; a `Chain` with `Controls`."""

    def __init__(
        self,
        node: AnvilNode,
        network: Network,
        clock: Clock,
        *,
        owner: Address,
        balances: Mapping[Address, int] | None = None,
        native: Mapping[Address, int] | None = None,
        install: Install = install_stablecoin,
        gas_price: Callable[[], int] | None = None,
        calls_at_block_time: bool = False,
    ) -> None:
        """Write the token and the balances into block 0 of an empty node; blocks until done.

        `install` writes another token than ours.

        Raises `ChainError` if the node fails; it is stopped then.
        """
        super().__init__(node.rpc, network, clock)
        self.owner = owner
        self._local, self._gas_price = node, gas_price or (lambda: network.base_fee_wei)
        self._at_block_time, self._changed = calls_at_block_time, asyncio.Event()
        held, rich = dict(balances or {}), {owner: PLENTY_WEI, **(native or {})}
        ask = node.rpc.ask_now
        try:
            install(node, network, owner, held)
            for account, code in contract.shared_codes().items():
                ask("anvil_setCode", to_hex(account), to_hex(code))
            for account, amount_wei in rich.items():
                ask("anvil_setBalance", to_hex(account), quantity(amount_wei))
            genesis = int(ask("evm_snapshot"), 16)
            first = objects.block(ask("eth_getBlockByNumber", "0x0", False))
        except BaseException:
            self.close()
            raise
        self.at_first = [first], sum(held.values())
        self.controls = Controls(node.rpc, clock, self.notify, genesis=genesis, native=rich)

    # --- what every chain offers -----------------------------------------------------

    async def call(self, call: Call) -> bytes:
        """Run a call as if in a block mined now, or at the newest block's time, and discard its
        effects; raises `Reverted`.
        """
        at = {} if self._at_block_time else await self.next_block()
        shown = objects.call_object(call)
        return await self.node.read(read_bytes, "eth_call", shown, "latest", {}, at)

    async def next_block(self) -> Json:
        """Return the number and the time of a block mined now, as a parameter of a call."""
        head = await self.controls.head()
        time_s = self.controls.next_time_s(head)
        return {"number": quantity(head.number + 1), "time": quantity(time_s)}

    async def send(self, call: Call) -> Hash:
        """Put a transaction of any account into the mempool; raises `ChainError`."""
        gas.require_fit(call.data)
        limit = GAS_LIMIT
        async with self.controls.operation():
            if call.to in (self.token, *CONTRACTS) and self.controls.forced_reverts.strike(call):
                self.controls.forced_reverts = self.controls.forced_reverts.less_one()
                limit = max(gas.intrinsic(call.data) + TOO_LITTLE_GAS, gas.floor(call.data))
            request = {
                **objects.call_object(call),
                "nonce": quantity(await self.account_nonce(call.sender)),
                "gas": quantity(limit),
                "gasPrice": quantity(self._gas_price()),
            }
            if self.controls.automine:
                await self.controls.set_time()
                receipt = await self.node.ask("eth_sendTransactionSync", request)
                tx_hash = read_hash(receipt["transactionHash"])
            else:
                tx_hash = await self.node.read(read_hash, "eth_sendTransaction", request)
        return tx_hash

    async def send_signed(self, raw: bytes) -> Hash:
        """Put a signed transaction into the mempool, which is mined at once with automine."""
        async with self.controls.operation():
            if self.controls.automine:
                await self.controls.set_time()
            return await super().send_signed(raw)

    async def _pause(self, pause_s: float) -> None:
        """Wait for the next operation, or a short time, as clients may use the node directly."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()

    async def pass_on(self, body: bytes, *, writes: bool) -> bytes:
        """Return the node's answer to a JSON-RPC request; new blocks have the world's time."""
        if not writes:
            return await super().pass_on(body, writes=False)
        async with self.controls.operation():
            await self.controls.set_time()
            answer = await self.node.forward(body)
            await self.controls.follow_automine()
            await self.controls.wait_until_mined()
        return answer

    # --- what only a chain under test offers -----------------------------------------

    async def waiting(self) -> int:
        """Return how many transactions wait in the mempool, including those behind a nonce gap."""
        status = await self.node.ask("txpool_status")
        return sum(read_quantity(status[which]) for which in ("pending", "queued"))

    async def fund(self, account: Address, amount_base: int) -> None:
        """Mint tokens, in a transaction of the token's owner; raises `ChainError`."""
        call = Call(self.owner, self.token, abi.mint(account, amount_base))
        receipt = await self.receipt(await self.send(call))
        if receipt and receipt.revert_reason is not None:
            raise ChainError(receipt.revert_reason)

    def close(self) -> None:
        """Stop the node and close the connections to it."""
        self._local.stop()

    async def notify(self) -> None:
        """Call the watchers, then resolve the waits for receipts."""
        await super().notify()
        self._changed.set()
        self._changed = asyncio.Event()
