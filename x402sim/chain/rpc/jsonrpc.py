"""Converts chain objects to Ethereum's JSON-RPC objects, and parses parameters; all pure.

Bytes are lower-case hex as geth writes them, addresses too; quantities are hex without leading
zeros. Fields that the chain lacks (tries, uncles, a miner, blobs) are zero or empty.
"""

import re
from collections.abc import Sequence
from typing import Any

from x402sim.chain.base import Block, Call, Log, Transaction, TxReceipt
from x402sim.chain.ledger.admission import BLOCK_GAS_LIMIT
from x402sim.protocol.crypto import ZERO_ADDRESS, Address, Hash, from_hex, keccak256, to_hex
from x402sim.protocol.messages import encode
from x402sim.protocol.raw_transaction import LEGACY, SignedTransaction

Json = dict[str, Any]
MAX_TOPICS = 4
NEWEST_TAGS = ("latest", "pending", "safe", "finalized")
"""All mean the newest state: blocks are final immediately, as on Cronos."""

_ZERO_HASH = to_hex(bytes(32))
_NO_UNCLES = to_hex(keccak256(b"\xc0"))
_EMPTY_TRIE = to_hex(keccak256(b"\x80"))
_HEADER_BYTES = 540
_QUANTITY = re.compile("0x(0|[1-9a-fA-F][0-9a-fA-F]{0,63})")


class BadParams(ValueError):
    """Invalid parameters of a method; the text says what was expected and what was given."""


# --- envelopes -----------------------------------------------------------------------


def result(request_id: Any, value: Any) -> Json:
    """Return the body of a call that succeeded."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: Any, code: int, message: str, data: str | None = None) -> Json:
    """Return the body of a call that failed; `data` is the hex data of a revert."""
    more = {} if data is None else {"data": data}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": code, "message": message, **more},
    }


def why_invalid(request: Any) -> str | None:
    """Return why a value is not a JSON-RPC 2.0 request; None if it is one."""
    if not isinstance(request, dict):
        return f"expected an object, got {shown(request)}"
    if request.get("jsonrpc") != "2.0":
        return f'expected "jsonrpc": "2.0", got {shown(request.get("jsonrpc"))}'
    if not isinstance(request.get("method"), str):
        return f"expected `method` as a string, got {shown(request.get('method'))}"
    if not is_id(request.get("id")):
        return f"expected `id` as a string, a number or null, got {shown(request['id'])}"
    return None


def is_id(value: Any) -> bool:
    """Whether a value can be the id of a request."""
    return isinstance(value, str | int | float | None) and not isinstance(value, bool)


# --- objects out ---------------------------------------------------------------------


def quantity(value: int | None) -> str | None:
    """Return an integer as a hex quantity, and None as null."""
    return None if value is None else hex(value)


def _data(value: bytes | None) -> str | None:
    return None if value is None else to_hex(value)


def bloom(logs: Sequence[Log]) -> bytes:
    """Return the 2048-bit bloom filter of some logs: three bits per address and per topic."""
    bits = 0
    for entry in {item for log in logs for item in (log.address, *log.topics)}:
        digest = keccak256(entry)
        for start in (0, 2, 4):
            bits |= 1 << (int.from_bytes(digest[start : start + 2]) & 2047)
    return bits.to_bytes(256)


def transaction_object(tx: Transaction, chain_id: int) -> Json:
    """Return a transaction; its three block fields are null while it waits to be mined.

    One that the chain sent without a signature has 0x0 as `v`, `r` and `s`: the sender cannot be
    recovered from them.
    """
    return {
        "hash": to_hex(tx.hash),
        "nonce": quantity(tx.nonce),
        "blockHash": _data(tx.block_hash),
        "blockNumber": quantity(tx.block_number),
        "transactionIndex": quantity(tx.index),
        "from": to_hex(tx.call.sender),
        "to": to_hex(tx.call.to),
        "value": quantity(tx.call.value),
        "gas": quantity(tx.gas_limit),
        "gasPrice": quantity(tx.gas_price),
        "input": to_hex(tx.call.data),
        "chainId": quantity(chain_id),
        **(_signature(tx.signed) if tx.signed else _UNSIGNED),
    }


_UNSIGNED = {"type": "0x0", "v": "0x0", "r": "0x0", "s": "0x0"}


def _signature(signed: SignedTransaction) -> Json:
    """Return the fields of a signed transaction that depend on its type."""
    fields = {
        "type": quantity(signed.type),
        "v": quantity(signed.v),
        "r": quantity(signed.r),
        "s": quantity(signed.s),
    }
    if signed.type == LEGACY:
        return fields
    return {
        **fields,
        "yParity": quantity(signed.v),
        "maxFeePerGas": quantity(signed.max_fee_wei),
        "maxPriorityFeePerGas": quantity(signed.max_tip_wei),
        "accessList": [
            {"address": to_hex(account), "storageKeys": list(map(to_hex, slots))}
            for account, slots in signed.access_list
        ],
    }


def log_object(log: Log) -> Json:
    """Return an event of a mined transaction."""
    return {
        "address": to_hex(log.address),
        "topics": [to_hex(topic) for topic in log.topics],
        "data": to_hex(log.data),
        "blockNumber": quantity(log.block_number),
        "blockHash": to_hex(log.block_hash),
        "transactionHash": to_hex(log.tx_hash),
        "transactionIndex": quantity(log.tx_index),
        "logIndex": quantity(log.index),
        "removed": False,
    }


def receipt_object(receipt: TxReceipt) -> Json:
    """Return a receipt; its status is 0x1 if the transaction took effect, otherwise 0x0."""
    return {
        "transactionHash": to_hex(receipt.tx_hash),
        "transactionIndex": quantity(receipt.index),
        "blockHash": to_hex(receipt.block_hash),
        "blockNumber": quantity(receipt.block_number),
        "from": to_hex(receipt.call.sender),
        "to": to_hex(receipt.call.to),
        "contractAddress": None,
        "status": "0x1" if receipt.succeeded else "0x0",
        "gasUsed": quantity(receipt.gas_used),
        "cumulativeGasUsed": quantity(receipt.cumulative_gas_used),
        "effectiveGasPrice": quantity(receipt.gas_price),
        "logs": [log_object(log) for log in receipt.logs],
        "logsBloom": to_hex(bloom(receipt.logs)),
        "type": quantity(receipt.type),
    }


def block_object(
    block: Block,
    *,
    transactions: Sequence[str | Json],
    logs: Sequence[Log],
    base_fee_wei: int,
) -> Json:
    """Return a block with its transactions, given as hashes or as whole objects.

    `logs` are those of the block. The roots are zero, as the chain has no tries. The size is that
    of a header and the calldata, in bytes, and is only an estimate.
    """
    return {
        "number": quantity(block.number),
        "hash": to_hex(block.hash),
        "parentHash": to_hex(block.parent),
        "timestamp": quantity(block.timestamp_s),
        "transactions": list(transactions),
        "gasUsed": quantity(block.gas_used),
        "gasLimit": quantity(BLOCK_GAS_LIMIT),
        "baseFeePerGas": quantity(base_fee_wei),
        "logsBloom": to_hex(bloom(logs)),
        "size": quantity(_HEADER_BYTES + sum(map(_size, transactions))),
        "miner": to_hex(ZERO_ADDRESS),
        "extraData": "0x",
        "nonce": to_hex(bytes(8)),
        "difficulty": "0x0",
        "totalDifficulty": "0x0",
        "mixHash": _ZERO_HASH,
        "sha3Uncles": _NO_UNCLES,
        "uncles": [],
        "stateRoot": _ZERO_HASH,
        "receiptsRoot": _ZERO_HASH,
        "transactionsRoot": _ZERO_HASH,
        "withdrawals": [],
        "withdrawalsRoot": _EMPTY_TRIE,
        "blobGasUsed": "0x0",
        "excessBlobGas": "0x0",
        "parentBeaconBlockRoot": _ZERO_HASH,
    }


def pending_block_object(
    block: Block, *, transactions: Sequence[str | Json], base_fee_wei: int
) -> Json:
    """Return the block that would be mined now; what only mining gives it is null."""
    found = block_object(block, transactions=transactions, logs=(), base_fee_wei=base_fee_wei)
    return {**found, "hash": None, "nonce": None, "logsBloom": None, "miner": None}


# --- parameters in -------------------------------------------------------------------


def shown(value: Any) -> str:
    """Return a value as JSON for an error text, cut to a readable length."""
    try:
        text: str = encode(value).decode()
    except RecursionError:  # decoding it left too little stack to encode it
        return "something nested too deeply"
    return text if len(text) <= 80 else text[:77] + "..."


def read_hash(value: Any, what: str = "a hash") -> Hash:
    """Return 32 bytes from 0x and 64 hex digits; raises `BadParams`."""
    return Hash(_fixed(value, 32, what))


def read_address(value: Any, what: str = "an address") -> Address:
    """Return an address from 0x and 40 hex digits of any case; raises `BadParams`."""
    return Address(_fixed(value, 20, what))


def read_quantity(value: Any, what: str = "a quantity") -> int:
    """Return an integer below 2**256 from 0x and hex digits; raises `BadParams`."""
    if isinstance(value, str) and _QUANTITY.fullmatch(value):
        return int(value, 16)
    raise BadParams(f"{what}: expected 0x and hex digits without leading zeros, got {shown(value)}")


def read_bytes(value: Any, what: str = "data") -> bytes:
    """Return bytes from 0x and an even number of hex digits; raises `BadParams`."""
    if not isinstance(value, str):
        raise BadParams(f"{what}: expected 0x and pairs of hex digits, got {shown(value)}")
    return _fixed(value, max(0, len(value) - 1) // 2, what)


def read_slot(value: Any) -> bytes:
    """Return the 32 bytes of a storage slot, from a quantity or 64 hex digits; `BadParams`."""
    if isinstance(value, str) and len(value) == 66:
        return read_hash(value, "a slot")
    return read_quantity(value, "a slot").to_bytes(32)


def read_text(value: Any, what: str) -> str:
    """Return a string; raises `BadParams`."""
    if isinstance(value, str):
        return value
    raise BadParams(f"{what}: expected a string, got {shown(value)}")


def read_bool(value: Any, what: str) -> bool:
    """Return true or false; raises `BadParams`."""
    if isinstance(value, bool):
        return value
    raise BadParams(f"{what}: expected true or false, got {shown(value)}")


def read_object(value: Any, what: str) -> Json:
    """Return an object without its null members; raises `BadParams`."""
    if not isinstance(value, dict):
        raise BadParams(f"{what}: expected an object, got {shown(value)}")
    return {name: member for name, member in value.items() if member is not None}


def read_block_number(value: Any, head: int) -> int:
    """Return a block's number from a tag or a quantity, where null is the newest block.

    Raises `BadParams`.
    """
    if value is None or value in NEWEST_TAGS:
        return head
    if value == "earliest":
        return 0
    tags = ", ".join((*NEWEST_TAGS, "earliest"))
    return read_quantity(value, f"a block (one of {tags}, or a number)")


def read_call(value: Any) -> Call:
    """Return a call from a transaction object; raises `BadParams`.

    Gas and fees in the object are ignored.
    """
    fields = read_object(value, "a transaction")
    if "to" not in fields:
        raise BadParams("a transaction: expected `to`; contracts cannot be created here")
    data, old_name = (read_bytes(fields.get(name, "0x"), name) for name in ("input", "data"))
    if {"input", "data"} <= fields.keys() and data != old_name:
        raise BadParams("a transaction: `input` and `data` differ; send one of them")
    return Call(
        sender=read_address(fields["from"], "from") if "from" in fields else ZERO_ADDRESS,
        to=read_address(fields["to"], "to"),
        data=data or old_name,
        value=read_quantity(fields.get("value", "0x0"), "value"),
    )


def read_addresses(value: Any) -> tuple[Address, ...]:
    """Return the addresses of a log filter: null is any, or one, or a list; `BadParams`."""
    if value is None:
        return ()
    several = value if isinstance(value, list) else [value]
    return tuple(read_address(one, "address") for one in several)


def read_topics(value: Any) -> tuple[tuple[bytes, ...], ...]:
    """Return the topics of a log filter, per position those accepted; raises `BadParams`.

    A position is null (any), one topic, or a list of alternatives.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOPICS:
        raise BadParams(f"topics: expected a list of at most {MAX_TOPICS}, got {shown(value)}")
    return tuple(_alternatives(position) for position in value)


def _alternatives(position: Any) -> tuple[bytes, ...]:
    several = position if isinstance(position, list) else [position]
    if None in several:
        return ()
    return tuple(read_hash(one, "a topic") for one in several)


def _fixed(value: Any, size: int, what: str) -> bytes:
    digits = f"0x and {2 * size} hex digits"
    if not isinstance(value, str):
        raise BadParams(f"{what}: expected {digits}, got {shown(value)}")
    try:
        return from_hex(value, size)
    except ValueError:
        raise BadParams(f"{what}: expected {digits}, got {shown(value)}") from None


def _size(transaction: str | Json) -> int:
    """Return the approximate size of a transaction in bytes; 0 for a bare hash."""
    return 0 if isinstance(transaction, str) else 110 + (len(transaction["input"]) - 2) // 2
