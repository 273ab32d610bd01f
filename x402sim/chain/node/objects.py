"""Parses the JSON-RPC objects of a node, and writes calls and filters for it; all pure.

`rpc/jsonrpc.py` is the other direction: it writes our own chain as JSON-RPC objects.
"""

from x402sim.chain.base import Block, Call, Log, LogFilter, Transaction, TxReceipt
from x402sim.protocol.crypto import ZERO_ADDRESS, to_hex
from x402sim.protocol.rpc_values import (
    Json,
    quantity,
    read_address,
    read_bytes,
    read_hash,
    read_quantity,
)


def block(given: Json) -> Block:
    """Return a block, given with its transactions' hashes; raises `BadParams`."""
    return Block(
        number=read_quantity(given["number"]),
        hash=read_hash(given["hash"]),
        parent=read_hash(given["parentHash"]),
        timestamp_s=read_quantity(given["timestamp"]),
        tx_hashes=tuple(map(read_hash, given["transactions"])),
        gas_used=read_quantity(given["gasUsed"]),
        base_fee_wei=read_quantity(given.get("baseFeePerGas") or "0x0"),
    )


def transaction(given: Json) -> Transaction:
    """Return a transaction, mined or waiting; the call of a deployment is to the zero address.
    Raises `BadParams`.
    """
    mined = given.get("blockHash") is not None  # a pending transaction may name the next block
    return Transaction(
        hash=read_hash(given["hash"]),
        call=Call(
            sender=read_address(given["from"]),
            to=read_address(given["to"]) if given.get("to") else ZERO_ADDRESS,
            data=read_bytes(given["input"]),
            value=read_quantity(given["value"]),
        ),
        nonce=read_quantity(given["nonce"]),
        gas_limit=read_quantity(given["gas"]),
        gas_price=read_quantity(given.get("gasPrice") or given["maxFeePerGas"]),
        block_number=read_quantity(given["blockNumber"]) if mined else None,
        block_hash=read_hash(given["blockHash"]) if mined else None,
        index=read_quantity(given["transactionIndex"]) if mined else None,
    )


def receipt(given: Json, call: Call, revert_reason: str | None) -> TxReceipt:
    """Return a receipt, with call and revert reason; raises `BadParams`."""
    return TxReceipt(
        tx_hash=read_hash(given["transactionHash"]),
        block_number=read_quantity(given["blockNumber"]),
        block_hash=read_hash(given["blockHash"]),
        index=read_quantity(given["transactionIndex"]),
        call=call,
        gas_used=read_quantity(given["gasUsed"]),
        gas_price=read_quantity(given["effectiveGasPrice"]),
        cumulative_gas_used=read_quantity(given["cumulativeGasUsed"]),
        logs=tuple(logs(given["logs"])),
        revert_reason=revert_reason,
    )


def logs(given: list[Json]) -> list[Log]:
    """Return events; raises `BadParams`."""
    return [
        Log(
            address=read_address(each["address"]),
            topics=tuple(map(read_hash, each["topics"])),
            data=read_bytes(each["data"]),
            block_number=read_quantity(each["blockNumber"]),
            block_hash=read_hash(each["blockHash"]),
            tx_hash=read_hash(each["transactionHash"]),
            tx_index=read_quantity(each["transactionIndex"]),
            index=read_quantity(each["logIndex"]),
            timestamp_s=read_quantity(each.get("blockTimestamp") or "0x0"),
        )
        for each in given
    ]


def call_object(call: Call) -> Json:
    """Return a call as a parameter of eth_call and eth_sendTransaction."""
    return {
        "from": to_hex(call.sender),
        "to": to_hex(call.to),
        "input": to_hex(call.data),
        "value": quantity(call.value),
    }


def filter_object(wanted: LogFilter, first: int, last: int) -> Json:
    """Return a filter as a parameter of eth_getLogs, between two blocks that exist."""
    return {
        "fromBlock": quantity(first),
        "toBlock": quantity(last),
        "address": list(map(to_hex, wanted.addresses)),
        "topics": [list(map(to_hex, any_of)) or None for any_of in wanted.topics],
    }
