"""Sends transactions again with the same hash.

A reorganisation and a revert to a snapshot need it: the node forgets what they remove.
"""

from dataclasses import dataclass
from typing import Any, Literal

from x402sim.chain.node.evm import JsonRpcNode
from x402sim.protocol.crypto import Hash
from x402sim.protocol.rpc_values import Json, quantity, read_hash, read_quantity

_FEES = ("gasPrice", "maxFeePerGas", "maxPriorityFeePerGas")
_SENT_AS = ("from", "to", "value", "input", "nonce", "gas", *_FEES)


@dataclass(frozen=True, slots=True)
class Resend:
    """A transaction, and the JSON-RPC call that sends it again."""

    hash: Hash
    method: str
    argument: Any


async def resends_of(node: JsonRpcNode, block: int | Literal["pending"]) -> list[Resend]:
    """Return the transactions of a block in order; "pending" has those in the mempool."""
    which = quantity(block) if isinstance(block, int) else block
    found = await node.ask("eth_getBlockByNumber", which, True)
    return [await _resend(node, tx) for tx in found["transactions"]]


async def _resend(node: JsonRpcNode, tx: Json) -> Resend:
    """Return the request that sends a transaction again: raw if signed, else impersonated."""
    if read_quantity(tx["r"]):
        raw = await node.ask("eth_getRawTransactionByHash", tx["hash"])
        return Resend(read_hash(tx["hash"]), "eth_sendRawTransaction", raw)
    asked = {name: tx[name] for name in _SENT_AS if tx.get(name) is not None}
    if "maxFeePerGas" in asked:
        del asked["gasPrice"]
    return Resend(read_hash(tx["hash"]), "eth_sendTransaction", asked)
