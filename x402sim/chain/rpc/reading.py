"""The JSON-RPC methods that read: chain, fees, accounts, blocks, transactions, logs, calls and
mempool; and the `RpcContext`, which every method gets.

A function has the name of its method. The history of fees has no tips: none is needed. Of the
mempool, `pending` are the transactions of the next block, and `queued` the transactions behind a
gap in the sender's nonces.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from x402sim.chain.base import BLOCK_GAS_LIMIT, Block, ChainError, LogFilter
from x402sim.chain.ledger import gas
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.ledger.state import LedgerState
from x402sim.chain.rpc import jsonrpc
from x402sim.chain.rpc.subscriptions import AT_ONCE, EVERYTHING, Filters, Subscriptions, TooManyLogs
from x402sim.http.limits import MAX_LOGS
from x402sim.protocol.crypto import Address, keccak256, to_hex
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    quantity,
    read_address,
    read_bool,
    read_bytes,
    read_hash,
    read_number,
    read_object,
    read_quantity,
    read_slot,
    read_text,
    shown,
)
from x402sim.tasks import Turns
from x402sim.version import VERSION

PENDING = "pending"
"""The tag of the block that would be mined now."""
DEVELOP = "x402sim.develop"
"""The key in the ASGI scope of a request that may control the world; its value is a `Develop`."""
Develop = Callable[["RpcContext", str, list[Any]], Awaitable[Any]]


class RpcContext(msgspec.Struct, frozen=True):
    """A chain, the keys of the accounts to list, and whether callers may sign with them."""

    chain: LedgerChain
    keys: Mapping[Address, bytes]
    unlocked: bool
    filters: Filters = msgspec.field(default_factory=Filters)
    impersonated: set[Address] = msgspec.field(default_factory=set)
    """The accounts that callers with control of the world send for without a key."""
    subscriptions: Subscriptions | None = None
    """The subscriptions of the WebSocket that the request came on; None over HTTP."""
    turns: Turns | None = None
    """The turns of all calls from outside: long calls of many clients delay the server as much as a
    single long call. None for the parts of this process."""
    develop: Develop | None = None
    """Performs a development method for this request; None if it may not."""

    async def turn(self) -> None:
        """Return when the next piece of the call may run."""
        if self.turns is not None:
            await self.turns.mine()


async def number(rpc: RpcContext, which: Any) -> int:
    """Return the number of a block given by tag, by number or as an EIP-1898 object; `pending` is
    the newest. Raises `BadParams` and `ChainError`.
    """
    if not isinstance(which, dict):
        return jsonrpc.read_block_number(which, await rpc.chain.height())
    fields = read_object(which, "a block")
    if fields.keys() & {"blockHash", "blockNumber"} == {"blockNumber"}:
        return read_quantity(fields["blockNumber"], "blockNumber")
    if "blockNumber" in fields or "blockHash" not in fields:
        raise BadParams(f"a block: expected blockHash or blockNumber, got {shown(which)}")
    return (await known_block(rpc, fields["blockHash"])).number


async def state(rpc: RpcContext, which: Any) -> int | LedgerState:
    """Return the block whose state is requested: the number, or the state after the next block."""
    return await rpc.chain.pending(rpc.turn) if which == PENDING else await number(rpc, which)


async def known_block(rpc: RpcContext, block_hash: Any) -> Block:
    """Return a block by hash; raises `ChainError` if there is none."""
    block = await rpc.chain.block(read_hash(block_hash, "blockHash"))
    if block is None:
        raise ChainError(f"unknown block {block_hash}")
    return block


MAX_FEE_HISTORY = 1024
MAX_PERCENTILES = 100
BLOB_FEE_WEI = 1
"""The least there is (EIP-4844): no block has blobs."""


# --- the chain -----------------------------------------------------------------------


async def web3_clientVersion(rpc: RpcContext) -> str:
    return f"x402sim/{VERSION}"


async def net_version(rpc: RpcContext) -> str:
    return str(rpc.chain.chain_id)


async def net_listening(rpc: RpcContext) -> bool:
    return True


async def web3_sha3(rpc: RpcContext, data: Any) -> str:
    return to_hex(keccak256(read_bytes(data)))


async def eth_chainId(rpc: RpcContext) -> Any:
    return quantity(rpc.chain.chain_id)


async def eth_syncing(rpc: RpcContext) -> bool:
    return False


async def eth_blockNumber(rpc: RpcContext) -> Any:
    return quantity(await rpc.chain.height())


# --- fees ----------------------------------------------------------------------------


async def eth_gasPrice(rpc: RpcContext) -> Any:
    return quantity(await rpc.chain.gas_price())


async def eth_maxPriorityFeePerGas(rpc: RpcContext) -> Any:
    return quantity(0)


async def eth_blobBaseFee(rpc: RpcContext) -> Any:
    return quantity(BLOB_FEE_WEI)


async def eth_feeHistory(rpc: RpcContext, count: Any, newest: Any, percentiles: Any = None) -> Json:
    size = read_number(count, "count", least=1, most=MAX_FEE_HISTORY)
    if percentiles is not None and not isinstance(percentiles, list):
        raise BadParams(f"percentiles: expected a list, got {shown(percentiles)}")
    tips = [quantity(0)] * len((percentiles or [])[:MAX_PERCENTILES])
    last = await number(rpc, newest)
    head = await rpc.chain.height()
    if last > head:
        raise ChainError(f"block {last} is not mined yet; the newest is block {head}")
    numbers = range(max(0, last - size + 1), last + 1)
    blocks = [block for n in numbers if (block := await rpc.chain.block(n))]
    after = await rpc.chain.block(last + 1) or rpc.chain.pending_block()
    return {
        "oldestBlock": quantity(numbers.start),
        "baseFeePerGas": [quantity(b.base_fee_wei) for b in (*blocks, after)],
        "gasUsedRatio": [b.gas_used / BLOCK_GAS_LIMIT for b in blocks],
        "baseFeePerBlobGas": [quantity(BLOB_FEE_WEI)] * (len(blocks) + 1),
        "blobGasUsedRatio": [0.0] * len(blocks),
        **({} if percentiles is None else {"reward": [tips] * len(blocks)}),
    }


# --- accounts ------------------------------------------------------------------------


async def eth_accounts(rpc: RpcContext) -> list[str]:
    return [to_hex(account) for account in rpc.keys]


eth_requestAccounts = eth_accounts


async def eth_getBalance(rpc: RpcContext, address: Any, block: Any = None) -> Any:
    account = read_address(address)
    return quantity(await rpc.chain.native_balance(account, await state(rpc, block)))


async def eth_getTransactionCount(rpc: RpcContext, address: Any, block: Any = None) -> Any:
    account = read_address(address)
    if block == PENDING:
        return quantity(await rpc.chain.account_nonce(account))
    return quantity(await rpc.chain.mined_nonce(account, await state(rpc, block)))


async def eth_getCode(rpc: RpcContext, address: Any, block: Any = None) -> str:
    account = read_address(address)
    return to_hex(await rpc.chain.code(account, await state(rpc, block)))


async def eth_getStorageAt(rpc: RpcContext, address: Any, slot: Any, block: Any = None) -> str:
    account, position = read_address(address), read_slot(slot)
    return to_hex(await rpc.chain.storage(account, position, await state(rpc, block)))


# --- blocks and transactions ---------------------------------------------------------


async def eth_getBlockByNumber(rpc: RpcContext, block: Any, full: Any = False) -> Json | None:
    return await _block_object(rpc, await _block(rpc, block), full, mined=block != PENDING)


async def eth_getBlockByHash(rpc: RpcContext, block_hash: Any, full: Any = False) -> Json | None:
    return await _block_object(rpc, await rpc.chain.block(read_hash(block_hash)), full)


async def _block_object(
    rpc: RpcContext, block: Block | None, full: Any, *, mined: bool = True
) -> Json | None:
    whole = read_bool(full, "whether to give whole transactions")
    if block is None:
        return None
    return await jsonrpc.whole_block(rpc.chain, block, full=whole, mined=mined)


async def eth_getBlockReceipts(rpc: RpcContext, block: Any) -> list[Json] | None:
    is_hash = isinstance(block, str) and len(block) == 66
    mined = await rpc.chain.block(read_hash(block) if is_hash else await number(rpc, block))
    if mined is None or block == PENDING:
        return None
    found = [await rpc.chain.receipt(tx_hash) for tx_hash in mined.tx_hashes]
    return [jsonrpc.receipt_object(each) for each in found if each]


async def eth_getTransactionByHash(rpc: RpcContext, tx_hash: Any) -> Json | None:
    tx = await rpc.chain.transaction(read_hash(tx_hash))
    block = await rpc.chain.block(tx.block_hash) if tx and tx.block_hash else None
    at_s = block.timestamp_s if block else None
    return jsonrpc.transaction_object(tx, rpc.chain.chain_id, at_s) if tx else None


async def eth_getTransactionByBlockHashAndIndex(
    rpc: RpcContext, block_hash: Any, index: Any
) -> Json | None:
    return await _transaction_of(rpc, await rpc.chain.block(read_hash(block_hash)), index)


async def eth_getTransactionByBlockNumberAndIndex(
    rpc: RpcContext, block: Any, index: Any
) -> Json | None:
    return await _transaction_of(rpc, await _block(rpc, block), index)


async def _transaction_of(rpc: RpcContext, block: Block | None, index: Any) -> Json | None:
    place = read_quantity(index, "an index")
    if block is None or place >= len(block.tx_hashes):
        return None
    return await eth_getTransactionByHash(rpc, to_hex(block.tx_hashes[place]))


async def eth_getBlockTransactionCountByHash(rpc: RpcContext, block_hash: Any) -> Any:
    block = await rpc.chain.block(read_hash(block_hash))
    return None if block is None else quantity(len(block.tx_hashes))


async def eth_getBlockTransactionCountByNumber(rpc: RpcContext, block: Any) -> Any:
    found = await _block(rpc, block)
    return None if found is None else quantity(len(found.tx_hashes))


async def _block(rpc: RpcContext, which: Any) -> Block | None:
    if which == PENDING:
        return rpc.chain.pending_block()
    return await rpc.chain.block(await number(rpc, which))


async def eth_getTransactionReceipt(rpc: RpcContext, tx_hash: Any) -> Json | None:
    found = await rpc.chain.receipt(read_hash(tx_hash))
    return jsonrpc.receipt_object(found) if found else None


# --- logs ----------------------------------------------------------------------------


async def eth_getLogs(rpc: RpcContext, filter: Any) -> list[Json]:  # noqa: A002 - shown on the page
    fields = read_object(filter, "a filter")
    if "blockHash" not in fields:
        first = await number(rpc, fields.get("fromBlock"))
        last = await number(rpc, fields.get("toBlock"))
    elif fields.keys() & {"fromBlock", "toBlock"}:
        raise BadParams("a filter: expected blockHash, or fromBlock and toBlock, not both")
    else:
        first = last = (await known_block(rpc, fields["blockHash"])).number
    return await _logs(rpc, jsonrpc.read_log_filter(fields, first, last))


async def _logs(rpc: RpcContext, wanted: LogFilter) -> list[Json]:
    """Return the logs that pass a filter, some blocks a turn; raises `TooManyLogs`."""
    last, found = min(wanted.to_block, await rpc.chain.height()), list[Json]()
    for first in range(wanted.from_block, last + 1, AT_ONCE):
        if first > wanted.from_block:
            await rpc.turn()
        part = replace(wanted, from_block=first, to_block=min(last, first + AT_ONCE - 1))
        logs = await rpc.chain.logs(part)
        if len(found) + len(logs) > MAX_LOGS:
            raise TooManyLogs(f"query returned more than {MAX_LOGS} results")
        found += map(jsonrpc.log_object, logs)
    return found


async def eth_newFilter(rpc: RpcContext, filter: Any) -> str:  # noqa: A002 - shown on the page
    fields = read_object(filter, "a filter")
    if "blockHash" in fields:
        raise BadParams("a filter: expected fromBlock and toBlock; only eth_getLogs has blockHash")
    first = jsonrpc.read_block_number(fields.get("fromBlock"), await rpc.chain.height())
    last = jsonrpc.read_block_number(fields.get("toBlock"), EVERYTHING.to_block)
    wanted = jsonrpc.read_log_filter(fields, first, last)
    return rpc.filters.add(rpc.chain, "logs", wanted)


async def eth_newBlockFilter(rpc: RpcContext) -> str:
    return rpc.filters.add(rpc.chain, "blocks")


async def eth_newPendingTransactionFilter(rpc: RpcContext) -> str:
    return rpc.filters.add(rpc.chain, "transactions")


async def eth_getFilterChanges(rpc: RpcContext, filter_id: Any) -> list[Json] | list[str]:
    return await rpc.filters.changes(rpc.chain, read_text(filter_id, "a filter's id"), rpc.turn)


async def eth_getFilterLogs(rpc: RpcContext, filter_id: Any) -> list[Json]:
    return await _logs(rpc, rpc.filters.logs(read_text(filter_id, "a filter's id")))


async def eth_uninstallFilter(rpc: RpcContext, filter_id: Any) -> bool:
    return rpc.filters.remove(read_text(filter_id, "a filter's id"))


async def eth_subscribe(rpc: RpcContext, kind: Any, wanted: Any = None) -> str:
    return await _subscriptions(rpc).add(kind, wanted)


async def eth_unsubscribe(rpc: RpcContext, subscription: Any) -> bool:
    return _subscriptions(rpc).remove(read_text(subscription, "a subscription's id"))


def _subscriptions(rpc: RpcContext) -> Subscriptions:
    if rpc.subscriptions is None:
        raise ChainError("notifications not supported: connect by WebSocket, to the same address")
    return rpc.subscriptions


# --- calls ---------------------------------------------------------------------------


async def eth_call(
    rpc: RpcContext, transaction: Any, block: Any = None, overrides: Any = None
) -> str:
    _refuse_overrides(overrides)
    call = jsonrpc.read_call(transaction)
    return to_hex(await rpc.chain.call(call, await state(rpc, block)))


async def eth_estimateGas(
    rpc: RpcContext, transaction: Any, block: Any = None, overrides: Any = None
) -> Any:
    _refuse_overrides(overrides)
    call = jsonrpc.read_call(transaction)
    needed = await rpc.chain.estimate_gas(call, await state(rpc, block))
    return quantity(needed + gas.of_lists(*jsonrpc.read_lists(transaction)))


def _refuse_overrides(overrides: Any) -> None:
    if overrides:
        raise ChainError(jsonrpc.NO_EVM.format("a state override"))


# --- the mempool, as geth's -------------------------------------------------------------


async def txpool_status(rpc: RpcContext) -> Json:
    state = rpc.chain.machine.state
    return {"pending": quantity(len(state.waiting)), "queued": quantity(len(state.queued))}


async def txpool_content(rpc: RpcContext) -> Json:
    machine = rpc.chain.machine
    found: Json = {"pending": {}, "queued": {}}
    for tx in machine.pool():
        which = found["pending" if tx.hash in machine.state.waiting else "queued"]
        shown = jsonrpc.transaction_object(tx, rpc.chain.chain_id)
        which.setdefault(to_hex(tx.call.sender), {})[str(tx.nonce)] = shown
    return found
