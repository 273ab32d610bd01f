"""The methods that read: the chain, its blocks, transactions, logs and accounts, and calls.

The chain has the states of its newest blocks: a request for an older one is an error.
"""

from typing import Any

from msgspec.structs import replace

from x402sim.chain.base import Block, Call
from x402sim.chain.rpc.context import RpcContext, known_block, number, state
from x402sim.chain.rpc.filters import EVERYTHING
from x402sim.chain.rpc.jsonrpc import read_block_number, read_call, read_log_filter
from x402sim.chain.rpc.objects import (
    log_object,
    mined_block,
    pending_block,
    receipt_object,
    transaction_object,
)
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    quantity,
    read_address,
    read_bool,
    read_hash,
    read_object,
    read_slot,
    read_text,
    shown,
)
from x402sim.version import VERSION

WHOLE = "whether to give whole transactions"


# --- the chain -----------------------------------------------------------------------


async def client_version(rpc: RpcContext) -> str:
    """Return the name and version of this server."""
    return f"x402sim/{VERSION}"


async def net_version(rpc: RpcContext) -> str:
    """Return the chain id in decimal."""
    return str(rpc.chain.chain_id)


async def chain_id(rpc: RpcContext) -> Any:
    """Return the chain id."""
    return quantity(rpc.chain.chain_id)


async def syncing(rpc: RpcContext) -> bool:
    """Return false: the chain is always in sync."""
    return False


async def height(rpc: RpcContext) -> Any:
    """Return the number of the newest block."""
    return quantity(await rpc.chain.height())


# --- blocks and transactions ---------------------------------------------------------


async def block_by_number(rpc: RpcContext, block: Any, full: Any = False) -> Json | None:
    """Return a block by tag or number, null if not mined; `pending` is the next one."""
    if block == "pending":
        return await pending_block(
            rpc.chain, rpc.chain.pending_block(), full=read_bool(full, WHOLE)
        )
    return await _block_object(rpc, await rpc.chain.block(await number(rpc, block)), full)


async def block_by_hash(rpc: RpcContext, block_hash: Any, full: Any = False) -> Json | None:
    """Return a block by hash, null if unknown."""
    return await _block_object(rpc, await rpc.chain.block(read_hash(block_hash)), full)


async def _block_object(rpc: RpcContext, block: Block | None, full: Any) -> Json | None:
    whole = read_bool(full, WHOLE)
    return None if block is None else await mined_block(rpc.chain, block, full=whole)


async def transaction(rpc: RpcContext, tx_hash: Any) -> Json | None:
    """Return a transaction, null if unknown; v=r=s=0 if the chain sent it without a signature."""
    tx = await rpc.chain.transaction(read_hash(tx_hash))
    return transaction_object(tx, rpc.chain.chain_id) if tx else None


async def raw_transaction(rpc: RpcContext, tx_hash: Any) -> str | None:
    """Return a signed transaction as it was sent."""
    tx = await rpc.chain.transaction(read_hash(tx_hash))
    return to_hex(tx.signed.raw) if tx and tx.signed else None


async def receipt(rpc: RpcContext, tx_hash: Any) -> Json | None:
    """Return the receipt of a transaction, null until it is mined."""
    found = await rpc.chain.receipt(read_hash(tx_hash))
    return receipt_object(found) if found else None


async def block_receipts(rpc: RpcContext, block: Any) -> list[Json] | None:
    """Return the receipts of a block's transactions, in order, null if it is not mined."""
    is_hash = isinstance(block, str) and len(block) == 66
    which = read_hash(block) if is_hash else await state(rpc, block)
    mined = await rpc.chain.block(await rpc.chain.height() if which is None else which)
    if mined is None:
        return None
    found = [await rpc.chain.receipt(tx_hash) for tx_hash in mined.tx_hashes]
    return [receipt_object(each) for each in found if each]


# --- logs ----------------------------------------------------------------------------


async def logs(rpc: RpcContext, filter: Any) -> list[Json]:  # noqa: A002 - shown on the page
    """Return events, by fromBlock and toBlock or blockHash, address, topics."""
    fields = read_object(filter, "a filter")
    wanted = read_log_filter(fields, *await _range(rpc, fields))
    head = await rpc.chain.height()
    if wanted.from_block > head:
        return []
    found = await rpc.chain.logs(replace(wanted, to_block=min(wanted.to_block, head)))
    return [log_object(log) for log in found]


async def _range(rpc: RpcContext, fields: Json) -> tuple[int, int]:
    if "blockHash" in fields:
        if fields.keys() & {"fromBlock", "toBlock"}:
            raise BadParams("a filter: expected blockHash, or fromBlock and toBlock, not both")
        only = (await known_block(rpc, fields["blockHash"])).number
        return only, only
    return await number(rpc, fields.get("fromBlock")), await number(rpc, fields.get("toBlock"))


async def new_filter(rpc: RpcContext, filter: Any) -> str:  # noqa: A002 - shown on the page
    """Make a filter of new events; it ends after 5 idle minutes."""
    fields = read_object(filter, "a filter")
    if "blockHash" in fields:
        raise BadParams("a filter: expected fromBlock and toBlock; only eth_getLogs has blockHash")
    first = read_block_number(fields.get("fromBlock"), await rpc.chain.height())
    last = read_block_number(fields.get("toBlock"), EVERYTHING.to_block)
    wanted = read_log_filter(fields, first, last)
    return rpc.filters.add(rpc.chain, "logs", wanted)


async def new_block_filter(rpc: RpcContext) -> str:
    """Make a filter of new blocks."""
    return rpc.filters.add(rpc.chain, "blocks")


async def new_transaction_filter(rpc: RpcContext) -> str:
    """Make a filter of arriving transactions."""
    return rpc.filters.add(rpc.chain, "transactions")


async def filter_changes(rpc: RpcContext, filter_id: Any) -> list[Json] | list[str]:
    """Return what is new for a filter since the last call."""
    return await rpc.filters.changes(rpc.chain, read_text(filter_id, "a filter's id"))


async def filter_logs(rpc: RpcContext, filter_id: Any) -> list[Json]:
    """Return every event that passes a filter of events."""
    wanted = rpc.filters.logs(read_text(filter_id, "a filter's id"))
    return [log_object(log) for log in await rpc.chain.logs(wanted)]


async def uninstall_filter(rpc: RpcContext, filter_id: Any) -> bool:
    """Forget a filter; false if it is unknown."""
    return rpc.filters.remove(read_text(filter_id, "a filter's id"))


# --- accounts ------------------------------------------------------------------------


async def balance(rpc: RpcContext, address: Any, block: Any = None) -> Any:
    """Return an account's native balance in wei."""
    account = read_address(address)
    return quantity(await rpc.chain.native_balance(account, await state(rpc, block)))


async def transaction_count(rpc: RpcContext, address: Any, block: Any = None) -> Any:
    """Return how many transactions an account has sent; with `pending`, the waiting ones too."""
    account = read_address(address)
    which = await state(rpc, block)
    if which is None and block != "pending":
        which = await rpc.chain.height()
    return quantity(await rpc.chain.account_nonce(account, which))


async def code(rpc: RpcContext, address: Any, block: Any = None) -> str:
    """Return a contract's code; 0x for any other account."""
    account = read_address(address)
    return to_hex(await rpc.chain.code(account, await state(rpc, block)))


async def storage(rpc: RpcContext, address: Any, slot: Any, block: Any = None) -> str:
    """Return a word of the token's storage, where Circle's FiatToken v2.2 has it."""
    account, position = read_address(address), read_slot(slot)
    return to_hex(await rpc.chain.storage(account, position, await state(rpc, block)))


# --- calls ---------------------------------------------------------------------------


async def call(rpc: RpcContext, transaction: Any, block: Any = None, overrides: Any = None) -> str:
    """Return the result of a call."""
    return to_hex(await rpc.chain.call(*await _asked(rpc, transaction, block, overrides)))


async def estimate_gas(
    rpc: RpcContext, transaction: Any, block: Any = None, overrides: Any = None
) -> Any:
    """Return the gas a call needs."""
    asked = await _asked(rpc, transaction, block, overrides)
    return quantity(await rpc.chain.estimate_gas(*asked))


async def _asked(
    rpc: RpcContext, transaction: Any, block: Any, overrides: Any
) -> tuple[Call, int | None]:
    asked = read_call(transaction)
    if overrides is not None:
        raise BadParams(f"state overrides are not offered, got {shown(overrides)}")
    return asked, await state(rpc, block)
