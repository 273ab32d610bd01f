"""Traces of mined transactions: the call from outside, as geth's callTracer tells it. The calls
within it are those of code, which the ledger does not run.
"""

from typing import Any

from x402sim.chain.base import ChainError
from x402sim.chain.rpc.context import RpcContext
from x402sim.chain.rpc.jsonrpc import NO_EVM
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.rpc_values import Json, quantity, read_bool, read_hash, read_object

CALL_TRACER = "callTracer"


async def debug_traceTransaction(rpc: RpcContext, tx_hash: Any, options: Any = None) -> Json:
    wanted = read_object(options or {}, "options")
    if wanted.get("tracer") != CALL_TRACER:
        raise ChainError(NO_EVM.format(f"any trace but that of the tracer {CALL_TRACER}"))
    config = read_object(wanted.get("tracerConfig", {}), "tracerConfig")
    has_logs = read_bool(config.get("withLog", False), "withLog")
    key = read_hash(tx_hash)
    tx, receipt = await rpc.chain.transaction(key), await rpc.chain.receipt(key)
    if tx is None or receipt is None:
        raise ChainError("transaction not found")
    trace: Json = {
        "from": to_hex(tx.call.sender),
        "gas": quantity(tx.gas_limit),
        "gasUsed": quantity(receipt.gas_used),
        "to": to_hex(tx.call.to),
        "input": to_hex(tx.call.data),
        "value": quantity(tx.call.value),
        "type": "CALL",
    }
    reason, output = receipt.revert_reason, rpc.chain.answered(tx, receipt)
    if output:
        trace["output"] = to_hex(output)
    if reason == "out of gas":
        trace["error"] = reason
    elif reason is not None:
        trace |= {"error": "execution reverted", **({"revertReason": reason} if reason else {})}
    if has_logs and receipt.logs:
        trace["logs"] = [
            {
                "address": to_hex(log.address),
                "topics": list(map(to_hex, log.topics)),
                "data": to_hex(log.data),
                "position": "0x0",
            }
            for log in receipt.logs
        ]
    return trace
