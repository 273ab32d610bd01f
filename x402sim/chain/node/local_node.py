"""What must a test node offer, so that `LocalChain` can control it?

The methods of the `evm` namespace (evm_snapshot, evm_setAutomine, ...) are the same on anvil
and Hardhat, and `LocalChain` calls them itself. What each node names in its own way is here:
`anvil_node.py` implements it for anvil.
"""

from collections.abc import Mapping
from typing import Protocol

from x402sim.chain.node.evm import JsonRpcNode
from x402sim.protocol.crypto import Address, Hash
from x402sim.protocol.rpc_values import Json


class LocalNode(Protocol):
    """A running test node that sends for any account, and what only test nodes can do.

    Functions that end with `_now` block until the node has answered.
    """

    url: str
    rpc: JsonRpcNode

    def set_code_now(self, account: Address, code: bytes) -> None:
        """Set a contract's code."""

    def set_storage_now(self, account: Address, slot: bytes, word: bytes) -> None:
        """Set one word of a contract's storage."""

    def set_balance_now(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance."""

    async def set_balance(self, account: Address, amount_wei: int) -> None:
        """Set an account's native balance."""

    async def set_code(self, account: Address, code: bytes, slots: Mapping[bytes, bytes]) -> None:
        """Set a contract's code, and words of its storage."""

    async def send_and_mine(self, asked: Json) -> Hash:
        """Send a transaction object with automine on; return its hash once it is mined."""

    async def mine(self, blocks: int) -> None:
        """Mine blocks, all at the time of the first."""

    async def roll_back(self, depth: int) -> None:
        """Remove the newest `depth` blocks."""

    async def drop_waiting(self) -> None:
        """Drop every transaction from the mempool."""

    async def set_coinbase(self, account: Address) -> None:
        """Set the account that blocks name as their miner."""

    def stop(self) -> None:
        """Close the connections and end the process."""
