"""What every dialect answers: the JSON-RPC objects of a hash or a block, and an outcome."""

from collections.abc import Awaitable, Callable, Mapping

from x402sim.chain.rpc.jsonrpc import read_block_number
from x402sim.chain.rpc.objects import receipt_object, transaction_object, whole_block
from x402sim.explorer.index import Index
from x402sim.protocol.crypto import Hash
from x402sim.protocol.rpc_values import Json

Fields = Mapping[str, str]
Answer = Callable[[Index, Fields], Awaitable[Json]]
"""Returns what a dialect answers at a path to a request with these fields."""
ByHash = Callable[[Index, Hash], Awaitable[Json | None]]


async def _transaction(index: Index, tx_hash: Hash) -> Json | None:
    tx = await index.transaction(tx_hash)
    number = tx.block_number if tx else None
    block = None if number is None else await index.block(number)
    at_s = block.timestamp_s if block else None
    return transaction_object(tx, index.chain.chain_id, at_s) if tx else None


async def _receipt(index: Index, tx_hash: Hash) -> Json | None:
    receipt = await index.receipt(tx_hash)
    return receipt_object(receipt) if receipt else None


BY_HASH: dict[str, ByHash] = {"TransactionByHash": _transaction, "TransactionReceipt": _receipt}
"""The queries by name; a dialect prefixes `eth_get` or `get`."""


def ok(value: Json | None) -> Json:
    """Return an answer in the envelope of the queries that are not JSON-RPC."""
    return {"status": "1", "message": "OK", "result": value}


async def block(index: Index, tag: str, *, full: bool) -> Json | None:
    """Return the block of a number or tag, `full` with whole transactions; None if not visible.

    Raises `BadParams` for what is neither.
    """
    number = read_block_number(tag, await index.height())
    found = await index.block(number)
    if found is None:
        return None
    return await whole_block(index.chain, found, full=full)


async def _receipt_status(index: Index, tx_hash: Hash) -> Json:
    """Return "1" or "0" for a mined transaction, and "" for one that is unknown or waits."""
    receipt = await index.receipt(tx_hash)
    return {"status": "" if receipt is None else str(int(receipt.succeeded))}


async def execution_status(index: Index, tx_hash: Hash) -> Json:
    """Return whether a transaction failed. An unknown one did not: it is no proof of payment."""
    receipt = await index.receipt(tx_hash)
    has_failed = receipt is not None and not receipt.succeeded
    reason = receipt.revert_reason if receipt is not None and has_failed else ""
    return {"isError": str(int(has_failed)), "errDescription": reason or ""}


OUTCOMES: dict[str, ByHash] = {"gettxreceiptstatus": _receipt_status, "getstatus": execution_status}
"""The queries about the outcome of a transaction, by the name of the action."""
