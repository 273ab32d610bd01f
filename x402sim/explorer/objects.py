"""What every dialect answers with: the JSON-RPC objects of a hash or a block, and an outcome."""

from collections.abc import Awaitable, Callable

from x402sim.chain.base import Block, LogFilter
from x402sim.chain.rpc.jsonrpc import read_block_number
from x402sim.chain.rpc.objects import block_object, receipt_object, transaction_object
from x402sim.explorer.index import Index
from x402sim.protocol.crypto import Hash, to_hex
from x402sim.protocol.rpc_values import Json

ByHash = Callable[[Index, Hash], Awaitable[Json | None]]


async def _transaction(index: Index, tx_hash: Hash) -> Json | None:
    tx = await index.transaction(tx_hash)
    return transaction_object(tx, index.chain.chain_id) if tx else None


async def _receipt(index: Index, tx_hash: Hash) -> Json | None:
    receipt = await index.receipt(tx_hash)
    return receipt_object(receipt) if receipt else None


BY_HASH: dict[str, ByHash] = {"TransactionByHash": _transaction, "TransactionReceipt": _receipt}
"""The queries by name; a dialect prefixes `eth_get` or `get`."""


async def block(index: Index, tag: str, *, full: bool) -> Json | None:
    """Return the block of a number or tag, `full` with whole transactions; None if not visible.

    Raises `BadParams` for what is neither.
    """
    number = read_block_number(tag, await index.height())
    found = await index.block(number)
    if found is None:
        return None
    logs = await index.chain.logs(LogFilter(number, number))
    hashes = list(map(to_hex, found.tx_hashes))
    return block_object(
        found,
        transactions=await _whole(index, found) if full else hashes,
        logs=logs,
    )


async def _whole(index: Index, block: Block) -> list[Json]:
    found = [await index.chain.transaction(each) for each in block.tx_hashes]
    return [transaction_object(tx, index.chain.chain_id) for tx in found if tx is not None]


async def receipt_status(index: Index, tx_hash: Hash) -> str:
    """Return "1" or "0" for a mined transaction, and "" for one that is unknown or waits."""
    receipt = await index.receipt(tx_hash)
    return "" if receipt is None else str(int(receipt.succeeded))


async def execution_status(index: Index, tx_hash: Hash) -> Json:
    """Return whether a transaction failed. An unknown one did not: it is no proof of payment."""
    receipt = await index.receipt(tx_hash)
    has_failed = receipt is not None and not receipt.succeeded
    reason = receipt.revert_reason if receipt is not None and has_failed else ""
    return {"isError": str(int(has_failed)), "errDescription": reason or ""}
