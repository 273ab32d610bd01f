"""The methods of the mempool, geth's: `pending` are the transactions that the next block takes, and
`queued` those behind a gap in the nonces of their sender.
"""

from collections.abc import Callable
from typing import Any

from x402sim.chain.base import Transaction
from x402sim.chain.rpc.context import RpcContext
from x402sim.chain.rpc.objects import transaction_object
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.rpc_values import Json, quantity, read_address


async def txpool_status(rpc: RpcContext) -> Json:
    state = rpc.chain.machine.state
    return {"pending": quantity(len(state.waiting)), "queued": quantity(len(state.queued))}


async def txpool_content(rpc: RpcContext) -> Json:
    return _by_sender(rpc, lambda tx: transaction_object(tx, rpc.chain.chain_id))


async def txpool_contentFrom(rpc: RpcContext, address: Any) -> Json:
    sender = to_hex(read_address(address))
    return {which: found.get(sender, {}) for which, found in (await txpool_content(rpc)).items()}


async def txpool_inspect(rpc: RpcContext) -> Json:
    return _by_sender(rpc, _line)


def _line(tx: Transaction) -> str:
    call, fee = tx.call, tx.signed.max_fee_wei if tx.signed else tx.gas_price
    return f"{to_hex(call.to)}: {call.value} wei + {tx.gas_limit} gas × {fee} wei"  # noqa: RUF001


def _by_sender(rpc: RpcContext, shown: Callable[[Transaction], Any]) -> Json:
    state = rpc.chain.machine.state
    found: Json = {"pending": {}, "queued": {}}
    for tx_hash in rpc.chain.machine.pool():
        tx = state.transactions[tx_hash]
        which = found["pending" if tx_hash in state.waiting else "queued"]
        which.setdefault(to_hex(tx.call.sender), {})[str(tx.nonce)] = shown(tx)
    return found
