"""The queries about a transaction hash, and the JSON-RPC object of each answer."""

from collections.abc import Awaitable, Callable

from x402sim.chain.rpc.jsonrpc import Json, receipt_object, transaction_object
from x402sim.explorer.index import Index
from x402sim.protocol.crypto import Hash

ByHash = Callable[[Index, Hash], Awaitable[Json | None]]


async def _transaction(index: Index, tx_hash: Hash) -> Json | None:
    tx = await index.transaction(tx_hash)
    return transaction_object(tx, index.chain.chain_id) if tx else None


async def _receipt(index: Index, tx_hash: Hash) -> Json | None:
    receipt = await index.receipt(tx_hash)
    return receipt_object(receipt) if receipt else None


BY_HASH: dict[str, ByHash] = {"TransactionByHash": _transaction, "TransactionReceipt": _receipt}
"""The queries by name; a dialect prefixes `eth_get` or `get`."""
