"""JSON-RPC 2.0: envelopes, parameters of blocks, calls and logs, and the chain's objects.

Fields of Ethereum's objects that the chain lacks (tries, uncles, a miner, blobs) are zero or empty.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from x402sim.chain.base import (
    BLOCK_GAS_LIMIT,
    Block,
    Call,
    Chain,
    ChainError,
    Log,
    LogFilter,
    Transaction,
    TxReceipt,
)
from x402sim.http.limits import MAX_ALTERNATIVES
from x402sim.protocol.crypto import ZERO_ADDRESS, keccak256, to_hex
from x402sim.protocol.raw_transaction import ACCESS_LIST, LEGACY, SET_CODE, SignedTransaction
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    quantity,
    read_address,
    read_bytes,
    read_hash,
    read_object,
    read_quantity,
    shown,
)

MAX_TOPICS = 4
NO_EVM = "{} needs an EVM, which the ledger is not: use --chain anvil"
NEWEST_TAGS = ("latest", "pending", "safe", "finalized")
"""All mean the newest state: blocks are final immediately, as on Cronos."""


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
    """Return why a value is not a JSON-RPC 2.0 request; None for a request."""
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


# --- parameters ----------------------------------------------------------------------


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
    """Return a call from a transaction object; raises `BadParams`, and `ChainError` for code.

    Gas and fees in the object are ignored.
    """
    fields = read_object(value, "a transaction")
    if "to" not in fields:
        raise ChainError(NO_EVM.format("code that is sent, a deployment or a deployless call,"))
    given = [read_bytes(fields[name], name) for name in ("input", "data") if name in fields]
    if given[1:] and given[0] != given[1]:
        raise BadParams("a transaction: `input` and `data` differ; send one of them")
    return Call(
        sender=read_address(fields["from"], "from") if "from" in fields else ZERO_ADDRESS,
        to=read_address(fields["to"], "to"),
        data=given[0] if given else b"",
        value=read_quantity(fields["value"], "value") if "value" in fields else 0,
    )


def read_lists(transaction: Json) -> tuple[int, int, int]:
    """Return how many addresses and slots the access list of a transaction object has, and how many
    delegations it has; raises `BadParams`.
    """
    lists = [transaction.get(name) or [] for name in ("accessList", "authorizationList")]
    if wrong := [each for each in lists if not isinstance(each, list)]:
        raise BadParams(f"a transaction: expected a list, got {shown(wrong[0])}")
    keys = [read_object(each, "an access").get("storageKeys", []) for each in lists[0]]
    if wrong := [each for each in keys if not isinstance(each, list)]:
        raise BadParams(f"storageKeys: expected a list, got {shown(wrong[0])}")
    return len(keys), sum(map(len, keys)), len(lists[1])


def read_log_filter(fields: Json, first: int, last: int) -> LogFilter:
    """Return a filter of the logs between two blocks; raises `BadParams`.

    `fields` come from `read_object`, without null members. `address` is one or a list; without it,
    any. `topics` has for each position null (any), one topic, or a list of alternatives.
    """
    if first > last:
        raise BadParams(f"a filter: fromBlock {first} is after toBlock {last}")
    given, topics = fields.get("address", []), fields.get("topics", [])
    several = given if isinstance(given, list) else [given]
    addresses = tuple(read_address(one, "address") for one in several)
    if not isinstance(topics, list) or len(topics) > MAX_TOPICS:
        raise BadParams(f"topics: expected a list of at most {MAX_TOPICS}, got {shown(topics)}")
    accepted = tuple(map(_alternatives, topics))
    if sum(map(len, (addresses, *accepted))) > MAX_ALTERNATIVES:
        raise BadParams(f"exceed max addresses or topics: {MAX_ALTERNATIVES}")
    return LogFilter(first, last, addresses, accepted)


def _alternatives(position: Any) -> tuple[bytes, ...]:
    several = position if isinstance(position, list) else [position]
    if None in several:
        return ()
    return tuple(read_hash(one, "a topic") for one in several)


# --- objects of the chain ---------------------------------------------------------------

_ZERO_HASH = to_hex(bytes(32))
_NO_UNCLES = to_hex(keccak256(b"\xc0"))
_EMPTY_TRIE = to_hex(keccak256(b"\x80"))
_NO_REQUESTS = to_hex(sha256().digest())
_HEADER_BYTES = 540


def bloom(logs: Sequence[Log]) -> bytes:
    """Return the 2048-bit bloom filter of some logs: three bits per address and per topic."""
    bits = 0
    for entry in {item for log in logs for item in (log.address, *log.topics)}:
        digest = keccak256(entry)
        for start in (0, 2, 4):
            bits |= 1 << (int.from_bytes(digest[start : start + 2]) & 2047)
    return bits.to_bytes(256)


def transaction_object(tx: Transaction, chain_id: int, at_s: int | None = None) -> Json:
    """Return a transaction, with the block's time if known; the three block fields are null until a
    block has the transaction.

    A transaction sent without a signature has 0x0 as `v`, `r` and `s`: the sender cannot be
    recovered.
    """
    return {
        "hash": to_hex(tx.hash),
        "nonce": quantity(tx.nonce),
        "blockHash": None if tx.block_hash is None else to_hex(tx.block_hash),
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
        **({} if at_s is None else {"blockTimestamp": quantity(at_s)}),
    }


_UNSIGNED = {"type": "0x0", "v": "0x0", "r": "0x0", "s": "0x0"}


def _signature(signed: SignedTransaction) -> Json:
    fields: Json = {
        "type": quantity(signed.type),
        "v": quantity(signed.v),
        "r": quantity(signed.r),
        "s": quantity(signed.s),
    }
    if signed.type == LEGACY:
        return fields
    fields["yParity"] = quantity(signed.v)
    fields["accessList"] = [
        {"address": to_hex(account), "storageKeys": list(map(to_hex, slots))}
        for account, slots in signed.access_list
    ]
    if signed.type != ACCESS_LIST:
        fields["maxFeePerGas"] = quantity(signed.max_fee_wei)
        fields["maxPriorityFeePerGas"] = quantity(signed.max_tip_wei)
    if signed.type == SET_CODE:
        fields["authorizationList"] = [
            {
                "chainId": quantity(each.chain_id),
                "address": to_hex(each.account),
                "nonce": quantity(each.nonce),
                "yParity": quantity(each.v),
                "r": quantity(each.r),
                "s": quantity(each.s),
            }
            for each in signed.delegations
        ]
    return fields


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
        **({"blockTimestamp": quantity(log.timestamp_s)} if log.timestamp_s else {}),
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


async def whole_block(chain: Chain, block: Block, *, full: bool, mined: bool = True) -> Json:
    """Return a block with hashes of transactions, or `full` with whole transactions. Without
    `mined`, the fields that only mining gives are null.

    The roots are zero, as the chain has no tries. The size is that of a header and of the whole
    transactions, in bytes, and is only an estimate.
    """
    found: Sequence[str | Json] = [to_hex(tx_hash) for tx_hash in block.tx_hashes]
    if full:
        each = [await chain.transaction(tx_hash) for tx_hash in block.tx_hashes]
        at_s = block.timestamp_s if mined else None
        found = [transaction_object(tx, chain.chain_id, at_s) for tx in each if tx]
    logs = await chain.logs(LogFilter(block.number, block.number)) if mined else ()
    shown = {
        "number": quantity(block.number),
        "hash": to_hex(block.hash),
        "parentHash": to_hex(block.parent),
        "timestamp": quantity(block.timestamp_s),
        "transactions": found,
        "gasUsed": quantity(block.gas_used),
        "gasLimit": quantity(BLOCK_GAS_LIMIT),
        "baseFeePerGas": quantity(block.base_fee_wei),
        "logsBloom": to_hex(bloom(logs)),
        "size": quantity(_HEADER_BYTES + sum(map(_size, found))),
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
        "requestsHash": _NO_REQUESTS,
    }
    return shown if mined else shown | dict.fromkeys(("hash", "nonce", "logsBloom", "miner"))


def _size(transaction: str | Json) -> int:
    """Return the approximate size of a transaction in bytes; 0 for a bare hash."""
    return 0 if isinstance(transaction, str) else 110 + (len(transaction["input"]) - 2) // 2
