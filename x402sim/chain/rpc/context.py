"""What the JSON-RPC methods share: the chain, its accounts, and how a block is named."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from x402sim.chain.base import Block, ChainError
from x402sim.chain.ledger.ledger import PENDING, LedgerChain, Which
from x402sim.chain.rpc.filters import Filters
from x402sim.chain.rpc.jsonrpc import NEWEST_TAGS, read_block_number
from x402sim.chain.rpc.subscriptions import Subscriptions
from x402sim.protocol.crypto import Address
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    read_hash,
    read_object,
    read_quantity,
    shown,
)

DEVELOP = "x402sim.develop"
"""The key in the scope of a request that may control the world: how to, a `Develop`."""
Develop = Callable[["RpcContext", str, list[Any]], Awaitable[Any]]


class RpcContext(msgspec.Struct, frozen=True):
    """A chain, the keys of the accounts to list, and whether callers may sign with them."""

    chain: LedgerChain
    keys: Mapping[Address, bytes]
    unlocked: bool
    filters: Filters = msgspec.field(default_factory=Filters)
    impersonated: set[Address] = msgspec.field(default_factory=set)
    """The accounts that those send for without a key who may control the world."""
    subscriptions: Subscriptions | None = None
    """Those of the WebSocket on which this was asked."""
    develop: Develop | None = None
    """Performs a development method for this request; None if it may not."""


async def number(rpc: RpcContext, which: Any) -> int:
    """Return the number of a block given by tag or number; `pending` is the newest."""
    return read_block_number(which, await rpc.chain.height())


async def state(rpc: RpcContext, which: Any) -> Which:
    """Return the block whose state is asked for: its number, None for the newest, or `PENDING`.

    `which` may be an EIP-1898 object. Raises `BadParams` and `ChainError`.
    """
    if which == PENDING:
        return PENDING
    if which is None or which in NEWEST_TAGS:
        return None
    return await (_named_block if isinstance(which, dict) else number)(rpc, which)


async def _named_block(rpc: RpcContext, which: Json) -> int:
    fields = read_object(which, "a block")
    if fields.keys() & {"blockHash", "blockNumber"} == {"blockNumber"}:
        return read_quantity(fields["blockNumber"], "blockNumber")
    if "blockNumber" in fields or "blockHash" not in fields:
        raise BadParams(f"a block: expected blockHash or blockNumber, got {shown(which)}")
    return (await known_block(rpc, fields["blockHash"])).number


async def known_block(rpc: RpcContext, block_hash: Any) -> Block:
    """Return a block by hash; raises `ChainError` if there is none."""
    block = await rpc.chain.block(read_hash(block_hash, "blockHash"))
    if block is None:
        raise ChainError(f"unknown block {block_hash}")
    return block
