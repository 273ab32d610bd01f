"""The JSON-RPC methods, and the table of them. The chain has the states of its newest blocks: a
request for an older one is an error.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from x402sim.chain.base import Block, Call, Chain, ChainError, LogFilter
from x402sim.chain.rpc.jsonrpc import (
    BLOCK_GAS_LIMIT,
    NEWEST_TAGS,
    BadParams,
    Json,
    block_object,
    log_object,
    quantity,
    read_address,
    read_addresses,
    read_block_number,
    read_bool,
    read_call,
    read_hash,
    read_object,
    read_quantity,
    read_topics,
    receipt_object,
    shown,
    transaction_object,
)
from x402sim.protocol.crypto import Address, to_hex
from x402sim.version import VERSION

MAX_FEE_HISTORY = 1024


@dataclass(frozen=True, slots=True)
class RpcContext:
    """A chain, the accounts to list, and whether callers may send from them."""

    chain: Chain
    accounts: tuple[Address, ...]
    unlocked: bool


# --- what the methods share ----------------------------------------------------------


async def _number(rpc: RpcContext, which: Any) -> int:
    return read_block_number(which, await rpc.chain.height())


async def _state(rpc: RpcContext, which: Any) -> int | None:
    """Return the number of the block whose state is asked for, None for the newest state.

    `which` may be an EIP-1898 object. Raises `BadParams` and `ChainError`.
    """
    if which is None or which in NEWEST_TAGS:
        return None
    return await (_named_block if isinstance(which, dict) else _number)(rpc, which)


async def _named_block(rpc: RpcContext, which: Json) -> int:
    fields = read_object(which, "a block")
    if fields.keys() & {"blockHash", "blockNumber"} == {"blockNumber"}:
        return read_quantity(fields["blockNumber"], "blockNumber")
    if "blockNumber" in fields or "blockHash" not in fields:
        raise BadParams(f"a block: expected blockHash or blockNumber, got {shown(which)}")
    return (await _known_block(rpc, fields["blockHash"])).number


async def _known_block(rpc: RpcContext, block_hash: Any) -> Block:
    block = await rpc.chain.block(read_hash(block_hash, "blockHash"))
    if block is None:
        raise ChainError(f"unknown block {block_hash}")
    return block


async def _block_object(rpc: RpcContext, block: Block | None, full: Any) -> Json | None:
    whole = read_bool(full, "whether to give whole transactions")
    if block is None:
        return None
    hashes = block.tx_hashes
    found = [await rpc.chain.transaction(h) for h in hashes] if whole else []
    return block_object(
        block,
        transactions=[transaction_object(tx, rpc.chain.chain_id) for tx in found if tx]
        if whole
        else [to_hex(tx_hash) for tx_hash in hashes],
        logs=await rpc.chain.logs(LogFilter(block.number, block.number)),
        base_fee_wei=await rpc.chain.gas_price(),
    )


def _no_overrides(overrides: Any) -> None:
    if overrides is not None:
        raise BadParams(f"state overrides are not offered, got {shown(overrides)}")


# --- the methods ---------------------------------------------------------------------


async def _client_version(rpc: RpcContext) -> str:
    return f"x402sim/{VERSION}"


async def _net_version(rpc: RpcContext) -> str:
    return str(rpc.chain.chain_id)


async def _chain_id(rpc: RpcContext) -> Any:
    return quantity(rpc.chain.chain_id)


async def _syncing(rpc: RpcContext) -> bool:
    return False


async def _height(rpc: RpcContext) -> Any:
    return quantity(await rpc.chain.height())


async def _gas_price(rpc: RpcContext) -> Any:
    return quantity(await rpc.chain.gas_price())


async def _priority_fee(rpc: RpcContext) -> Any:
    return quantity(0)


async def _fee_history(rpc: RpcContext, count: Any, newest: Any, percentiles: Any = None) -> Json:
    size = count if type(count) is int else read_quantity(count, "count")
    if not 1 <= size <= MAX_FEE_HISTORY:
        raise BadParams(f"count: expected 1 to {MAX_FEE_HISTORY}, got {size}")
    if not isinstance(percentiles, list | None) or len(percentiles or ()) > 100:
        raise BadParams(f"percentiles: expected a list of at most 100, got {shown(percentiles)}")
    last = await _number(rpc, newest)
    head = await rpc.chain.height()
    if last > head:
        raise ChainError(f"block {last} is not mined yet; the newest is block {head}")
    numbers = range(max(0, last - size + 1), last + 1)
    blocks = [await rpc.chain.block(n) for n in numbers]
    reward = {} if percentiles is None else {"reward": [["0x0"] * len(percentiles)] * len(blocks)}
    return {
        "oldestBlock": quantity(numbers.start),
        "baseFeePerGas": [await _gas_price(rpc)] * (len(blocks) + 1),
        "gasUsedRatio": [b.gas_used / BLOCK_GAS_LIMIT if b else 0.0 for b in blocks],
        **reward,
    }


async def _accounts(rpc: RpcContext) -> list[str]:
    return [to_hex(account) for account in rpc.accounts]


async def _balance(rpc: RpcContext, address: Any, block: Any = None) -> Any:
    account = read_address(address)
    return quantity(await rpc.chain.native_balance(account, await _state(rpc, block)))


async def _transaction_count(rpc: RpcContext, address: Any, block: Any = None) -> Any:
    account = read_address(address)
    return quantity(await rpc.chain.account_nonce(account, await _state(rpc, block)))


async def _code(rpc: RpcContext, address: Any, block: Any = None) -> str:
    account = read_address(address)
    return to_hex(await rpc.chain.code(account, await _state(rpc, block)))


async def _block_by_number(rpc: RpcContext, block: Any, full: Any = False) -> Json | None:
    number = await _number(rpc, block)
    return await _block_object(rpc, await rpc.chain.block(number), full)


async def _block_by_hash(rpc: RpcContext, block_hash: Any, full: Any = False) -> Json | None:
    return await _block_object(rpc, await rpc.chain.block(read_hash(block_hash)), full)


async def _transaction(rpc: RpcContext, tx_hash: Any) -> Json | None:
    tx = await rpc.chain.transaction(read_hash(tx_hash))
    return transaction_object(tx, rpc.chain.chain_id) if tx else None


async def _receipt(rpc: RpcContext, tx_hash: Any) -> Json | None:
    receipt = await rpc.chain.receipt(read_hash(tx_hash))
    return receipt_object(receipt) if receipt else None


async def _logs(rpc: RpcContext, filter: Any) -> list[Json]:  # noqa: A002 - shown on the page
    fields = read_object(filter, "a filter")
    first, last = await _range(rpc, fields)
    addresses, topics = read_addresses(fields.get("address")), read_topics(fields.get("topics"))
    if first > last:  # the range begins after the newest block
        return []
    found = await rpc.chain.logs(LogFilter(first, last, addresses, topics))
    return [log_object(log) for log in found]


async def _range(rpc: RpcContext, fields: Json) -> tuple[int, int]:
    if "blockHash" in fields:
        if fields.keys() & {"fromBlock", "toBlock"}:
            raise BadParams("a filter: expected blockHash, or fromBlock and toBlock, not both")
        number = (await _known_block(rpc, fields["blockHash"])).number
        return number, number
    first = await _number(rpc, fields.get("fromBlock"))
    last = await _number(rpc, fields.get("toBlock"))
    if first > last:
        raise BadParams(f"a filter: fromBlock {first} is after toBlock {last}")
    return first, min(last, await rpc.chain.height())


async def _call(rpc: RpcContext, transaction: Any, block: Any = None, overrides: Any = None) -> str:
    call = read_call(transaction)
    _no_overrides(overrides)
    return to_hex(await rpc.chain.call(call, await _state(rpc, block)))


async def _estimate_gas(
    rpc: RpcContext, transaction: Any, block: Any = None, overrides: Any = None
) -> Any:
    call = read_call(transaction)
    _no_overrides(overrides)
    return quantity(await rpc.chain.estimate_gas(call, await _state(rpc, block)))


async def _send_transaction(rpc: RpcContext, transaction: Any) -> str:
    call = read_call(transaction)
    fields = read_object(transaction, "a transaction")
    if "from" not in fields:
        raise BadParams("a transaction: expected `from`, an account of eth_accounts")
    _only_unlocked(rpc, call)
    await _only_matching(rpc, call, fields)
    return to_hex(await rpc.chain.send(call))


def _only_unlocked(rpc: RpcContext, call: Call) -> None:
    if not rpc.unlocked:
        raise ChainError("no account is unlocked: this chain takes no transactions over JSON-RPC")
    if call.sender not in rpc.accounts:
        raise ChainError(f"account {to_hex(call.sender)} is not unlocked; see eth_accounts")


async def _only_matching(rpc: RpcContext, call: Call, fields: Json) -> None:
    """Raise `ChainError` for a chain id or a nonce that differs from the transaction's."""
    real = {"chainId": rpc.chain.chain_id, "nonce": await rpc.chain.account_nonce(call.sender)}
    for name, wanted in real.items():
        if name in fields and (seen := read_quantity(fields[name], name)) != wanted:
            raise ChainError(f"{name} is {seen}, but must be {wanted}")


Method = Callable[..., Awaitable[Any]]
METHODS: dict[str, tuple[Method, str]] = {
    "web3_clientVersion": (_client_version, "the name and version of this server"),
    "net_version": (_net_version, "the chain id, as a decimal string"),
    "eth_chainId": (_chain_id, "the chain id"),
    "eth_syncing": (_syncing, "false: the chain is always in sync"),
    "eth_blockNumber": (_height, "the number of the newest block"),
    "eth_gasPrice": (_gas_price, "the price of one unit of gas in wei; it is all base fee"),
    "eth_maxPriorityFeePerGas": (_priority_fee, "zero: a tip is not needed"),
    "eth_feeHistory": (_fee_history, "base fees and how full the blocks were; tips are zero"),
    "eth_accounts": (_accounts, "the accounts of this server"),
    "eth_getBalance": (_balance, "an account's native balance in wei"),
    "eth_getTransactionCount": (
        _transaction_count,
        "how many transactions an account has sent, the waiting ones too under every tag",
    ),
    "eth_getCode": (_code, "a contract's code; 0x for any other account"),
    "eth_getBlockByNumber": (_block_by_number, "a block by tag or number, null if not mined"),
    "eth_getBlockByHash": (_block_by_hash, "a block by hash, null if unknown"),
    "eth_getTransactionByHash": (
        _transaction,
        "a transaction, null if unknown; unsigned (v=r=s=0)",
    ),
    "eth_getTransactionReceipt": (_receipt, "the receipt of a transaction, null until mined"),
    "eth_getLogs": (_logs, "events, by fromBlock and toBlock or blockHash, address, topics"),
    "eth_call": (_call, "the result of a call"),
    "eth_estimateGas": (_estimate_gas, "the gas a call would use"),
    "eth_sendTransaction": (
        _send_transaction,
        "send from an unlocked account; gas and fees are the chain's own",
    ),
}
