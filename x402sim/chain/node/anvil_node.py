"""An anvil process and anvil's own JSON-RPC methods. Another test node is a class like this one."""

from collections.abc import Mapping
from pathlib import Path

from x402sim.chain.node import objects
from x402sim.chain.node.anvil import AnvilProcess, DevAccounts
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.protocol.crypto import Address, Hash, to_hex
from x402sim.protocol.rpc_values import Json, quantity

TIMEOUT_S = 60
"""Seconds for one request, as mining ten thousand blocks takes long."""


class AnvilNode:
    """An anvil that is started with this object and ended by `stop`."""

    def __init__(
        self,
        chain_id: int,
        genesis_s: int,
        *,
        program: Path | None = None,
        in_line: bool = False,
        accounts: DevAccounts | None = None,
    ) -> None:
        """Start a node with an empty chain; blocks until it answers.

        With `in_line`, each request blocks the process, as virtual time needs. Raises
        `ChainError` if there is no anvil (saying how to get it), or it does not start.
        """
        self._process = AnvilProcess(chain_id, genesis_s, program, accounts)
        self.url = self._process.url
        self.rpc = JsonRpcNode(self.url, timeout_s=TIMEOUT_S, parallel=0 if in_line else 1)
        try:  # without an interval, its own clock sometimes adds a second
            self.rpc.ask_now("anvil_setBlockTimestampInterval", 0)
        except BaseException:
            self.stop()
            raise

    def set_code_now(self, account: Address, code: bytes) -> None:
        """Set a contract's code."""
        self.rpc.ask_now("anvil_setCode", to_hex(account), to_hex(code))

    def set_storage_now(self, account: Address, slot: bytes, word: bytes) -> None:
        """Set one word of a contract's storage."""
        self.rpc.ask_now("anvil_setStorageAt", to_hex(account), to_hex(slot), to_hex(word))

    def set_balance_now(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance."""
        self.rpc.ask_now("anvil_setBalance", to_hex(account), quantity(amount_wei))

    def set_base_fee_now(self, fee_wei: int) -> None:
        """Set the base fee of the next block, near which those after it stay if not full."""
        self.rpc.ask_now("anvil_setNextBlockBaseFeePerGas", quantity(fee_wei))

    async def set_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance."""
        await self.rpc.ask("anvil_setBalance", to_hex(account), quantity(amount_wei))

    async def set_code(self, account: Address, code: bytes, slots: Mapping[bytes, bytes]) -> None:
        """Set a contract's code, and words of its storage."""
        await self.rpc.ask("anvil_setCode", to_hex(account), to_hex(code))
        for slot, word in slots.items():
            await self.rpc.ask("anvil_setStorageAt", to_hex(account), to_hex(slot), to_hex(word))

    async def send_and_mine(self, asked: Json) -> Hash:
        """Send a transaction object with automine on; return its hash once it is mined."""
        return await self.rpc.read(objects.transaction_hash, "eth_sendTransactionSync", asked)

    async def mine(self, blocks: int) -> None:
        """Mine blocks, all at the time of the first."""
        await self.rpc.ask("anvil_mine", quantity(blocks), "0x0")

    async def roll_back(self, depth: int) -> None:
        """Remove the newest `depth` blocks."""
        await self.rpc.ask("anvil_rollback", depth)

    async def drop_waiting(self) -> None:
        """Drop every transaction from the mempool."""
        await self.rpc.ask("anvil_dropAllTransactions")

    async def set_coinbase(self, account: Address) -> None:
        """Set the account that blocks name as their miner."""
        await self.rpc.ask("anvil_setCoinbase", to_hex(account))

    def stop(self) -> None:
        """End the process and close the connections."""
        self._process.stop()
        self.rpc.close()
