"""Blockscout's dialect of the explorer: `/blockscout/api?module=transaction&action=gettxinfo…`.

It has a path of its own, since its `/api` has the names of Etherscan's and other answers; only
`gettxinfo`, which Etherscan lacks, is answered at `/api`, too. Every answer has status 200. A
transaction that waits is not found, as an unknown one is.
"""

from x402sim.chain.base import Log
from x402sim.explorer.index import OUTCOMES, Answer, ByHash, Fields, Index, ok
from x402sim.protocol.crypto import Hash, to_hex
from x402sim.protocol.rpc_values import BadParams, Json, read_hash

PATH = "/blockscout/api"
_HASH = "txhash"


async def answered(index: Index, fields: Fields) -> Json:
    """Return what is answered to a request with these fields."""
    if fields.get("module") != "transaction":
        return _failed("Unknown module")
    action = _ACTIONS.get(fields.get("action", ""))
    if action is None:
        return _failed("Unknown action")
    if _HASH not in fields:
        return _failed("Query parameter txhash is required")
    try:
        tx_hash = read_hash(fields[_HASH], _HASH)
    except BadParams:
        return _failed("Invalid txhash format")
    found = await action(index, tx_hash)
    return _failed("Transaction not found") if found is None else ok(found)


ANSWERS: dict[str, Answer] = {PATH: answered}


async def _info(index: Index, tx_hash: Hash) -> Json | None:
    tx, receipt = await index.transaction(tx_hash), await index.receipt(tx_hash)
    block = await index.block(receipt.block_number) if receipt is not None else None
    if tx is None or receipt is None or block is None:
        return None
    newest = await index.height()
    return {  # numbers as decimal strings, the rest as 0x-hex
        "hash": to_hex(tx.hash),
        "from": to_hex(tx.call.sender),
        "to": to_hex(tx.call.to),
        "value": str(tx.call.value),
        "input": to_hex(tx.call.data),
        "blockNumber": str(block.number),
        "confirmations": str(newest - block.number),
        "timeStamp": str(block.timestamp_s),
        "gasLimit": str(tx.gas_limit),
        "gasUsed": str(receipt.gas_used),
        "gasPrice": str(receipt.gas_price),
        "logs": list(map(_log, receipt.logs)),
        "success": receipt.succeeded,
        "revertReason": receipt.revert_reason or "",
        "next_page_params": None,
    }


_ACTIONS: dict[str, ByHash] = {"gettxinfo": _info, **OUTCOMES}


def _log(log: Log) -> Json:
    topics = [to_hex(topic) for topic in log.topics]
    return {
        "address": to_hex(log.address),
        "data": to_hex(log.data),
        "index": str(log.index),
        "topics": topics + [None] * (4 - len(topics)),
    }


def _failed(text: str) -> Json:
    return {"status": "0", "message": text, "result": None}
