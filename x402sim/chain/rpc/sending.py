"""The methods that send: a signed transaction of anybody, or one that this server signs."""

from typing import Any

from x402sim.chain.base import Call, ChainError
from x402sim.chain.fees import BASE_FEE_WEI, GAS_LIMIT
from x402sim.chain.rpc.context import RpcContext
from x402sim.chain.rpc.jsonrpc import read_call
from x402sim.chain.rpc.signing import key_of
from x402sim.protocol.crypto import PrivateKey, to_hex
from x402sim.protocol.rpc_values import BadParams, Json, read_bytes, read_object, read_quantity


async def eth_sendRawTransaction(rpc: RpcContext, data: Any) -> str:
    """Put a signed transaction of type 0 (EIP-155) or 2 into the mempool; return its hash."""
    return to_hex(await rpc.chain.send_signed(read_bytes(data, "a signed transaction")))


async def eth_sendTransaction(rpc: RpcContext, transaction: Any) -> str:
    """Send a transaction of an unlocked account, signed here, or of an impersonated one; return
    its hash.
    """
    call = read_call(transaction)
    fields = read_object(transaction, "a transaction")
    if "from" not in fields:
        raise BadParams("a transaction: expected `from`, an account of eth_accounts")
    if rpc.develop and call.sender in rpc.impersonated:
        return to_hex(await rpc.chain.send(call))
    key = key_of(rpc, call.sender)
    return to_hex(await rpc.chain.send_signed(_signed(await _complete(rpc, call, fields), key)))


async def _complete(rpc: RpcContext, call: Call, fields: Json) -> Json:
    """Return the transaction for eth-account, with what was left out: nonce, gas limit and fees."""

    def given(name: str, default: int) -> int:
        return read_quantity(fields[name], name) if name in fields else default

    if "gasPrice" in fields and fields.keys() & {"maxFeePerGas", "maxPriorityFeePerGas"}:
        raise ChainError("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified")
    tip_wei = given("maxPriorityFeePerGas", 0)
    max_fee_wei = given("maxFeePerGas", 2 * BASE_FEE_WEI + tip_wei)
    dynamic = {"type": 2, "maxPriorityFeePerGas": tip_wei, "maxFeePerGas": max_fee_wei}
    return {
        "chainId": given("chainId", rpc.chain.chain_id),
        "nonce": given("nonce", await rpc.chain.account_nonce(call.sender)),
        **({"gasPrice": given("gasPrice", 0)} if "gasPrice" in fields else dynamic),
        "gas": given("gas", GAS_LIMIT),
        "to": call.to,
        "value": call.value,
        "data": call.data,
    }


def _signed(transaction: Json, key: PrivateKey) -> bytes:
    from eth_account import Account

    try:
        return bytes(Account.sign_transaction(transaction, key.secret).raw_transaction)
    except (TypeError, ValueError) as wrong:
        raise BadParams(f"a transaction: {wrong}") from wrong
