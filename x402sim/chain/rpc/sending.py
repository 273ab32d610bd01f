"""The JSON-RPC methods that send and sign.

Anybody may send a signed transaction. The server signs for the funded accounts, as anvil and
Hardhat do; any other account is an error.
"""

from typing import Any

from x402sim.chain.base import GAS_LIMIT, Call, ChainError
from x402sim.chain.rpc.jsonrpc import read_call, receipt_object
from x402sim.chain.rpc.reading import RpcContext
from x402sim.http.limits import MAX_WAIT_S
from x402sim.protocol.crypto import Address, PrivateKey, keccak256, sign, to_hex
from x402sim.protocol.messages import BadMessage, decode, encode
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    read_address,
    read_bytes,
    read_number,
    read_object,
    read_quantity,
    shown,
)

MOST_TYPED_BYTES, MOST_TYPED_PARTS = 32 * 1024, 256
"""Of typed data, which is hashed in one turn of the loop: for each part, every type is written."""
WAIT_S = 20
"""How many seconds eth_sendRawTransactionSync waits for the receipt, as on geth."""


class NotMined(ChainError):
    """A transaction, of this hash, was sent and not mined in time."""


def _key(rpc: RpcContext, account: Address) -> PrivateKey:
    """Return the key of an account; raises `ChainError` for a locked or foreign account."""
    if not rpc.unlocked:
        raise ChainError("no account is unlocked: this server signs nothing over JSON-RPC")
    if account not in rpc.keys:
        raise ChainError(f"account {to_hex(account)} is not unlocked; see eth_accounts")
    return PrivateKey(rpc.keys[account])


async def eth_sendRawTransaction(rpc: RpcContext, data: Any) -> str:
    return to_hex(await rpc.chain.send_signed(read_bytes(data, "a signed transaction")))


def read_wait(timeout_ms: Any = None) -> float:
    """Return how many seconds to wait for a receipt; raises `BadParams`."""
    if timeout_ms is None:
        return WAIT_S
    return read_number(timeout_ms, "milliseconds", most=1000 * MAX_WAIT_S) / 1000


async def eth_sendRawTransactionSync(rpc: RpcContext, data: Any, timeout_ms: Any = None) -> Json:
    wait_s = read_wait(timeout_ms)
    tx_hash = await rpc.chain.send_signed(read_bytes(data, "a signed transaction"))
    try:
        return receipt_object(await rpc.chain.wait(tx_hash, wait_s))
    except TimeoutError as late:
        raise NotMined(to_hex(tx_hash)) from late


async def eth_sendTransaction(rpc: RpcContext, transaction: Any) -> str:
    call = read_call(transaction)
    fields = read_object(transaction, "a transaction")
    if "from" not in fields:
        raise BadParams("a transaction: expected `from`, an account of eth_accounts")
    if rpc.develop and call.sender in rpc.impersonated:
        return to_hex(await rpc.chain.send(call))
    key = _key(rpc, call.sender)
    complete = await _complete(rpc, call, fields)
    from eth_account import Account

    try:
        raw = bytes(Account.sign_transaction(complete, key.secret).raw_transaction)
    except (TypeError, ValueError) as wrong:
        raise BadParams(f"a transaction: {wrong}") from wrong
    return to_hex(await rpc.chain.send_signed(raw))


async def _complete(rpc: RpcContext, call: Call, fields: Json) -> Json:
    """Return the transaction for eth-account, with what was left out: nonce, gas limit and fees."""

    def given(name: str, default: int) -> int:
        return read_quantity(fields[name], name) if name in fields else default

    if "gasPrice" in fields and fields.keys() & {"maxFeePerGas", "maxPriorityFeePerGas"}:
        raise ChainError("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified")
    tip_wei = given("maxPriorityFeePerGas", 0)
    max_fee_wei = given("maxFeePerGas", 2 * await rpc.chain.gas_price() + tip_wei)
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


async def eth_sign(rpc: RpcContext, address: Any, data: Any) -> str:
    key = _key(rpc, read_address(address))
    message = read_bytes(data, "a message")
    prefix = b"\x19Ethereum Signed Message:\n" + str(len(message)).encode()
    return to_hex(sign(keccak256(prefix + message), key))


async def personal_sign(rpc: RpcContext, data: Any, address: Any, password: Any = None) -> str:
    return await eth_sign(rpc, address, data)


async def eth_signTypedData_v4(rpc: RpcContext, address: Any, typed_data: Any) -> str:
    key = _key(rpc, read_address(address))
    return to_hex(sign(_digest(_typed(typed_data)), key))


def _typed(given: Any) -> Json:
    if isinstance(given, str):
        try:
            given = decode(given.encode(), Any)
        except BadMessage as wrong:
            raise BadParams(f"typed data: cannot be read as JSON: {wrong}") from wrong
    typed = read_object(given, "typed data")
    wanted = ("types", "primaryType", "domain", "message")
    lacking = [name for name in wanted if name not in typed]
    if lacking:
        raise BadParams(f"typed data: expected {', '.join(wanted)}; {lacking[0]} is missing")
    text = encode(typed)
    if len(text) > MOST_TYPED_BYTES or text.count(b"{") + text.count(b"[") > MOST_TYPED_PARTS:
        most = f"at most {MOST_TYPED_BYTES} bytes, {MOST_TYPED_PARTS} objects and lists"
        raise BadParams(f"typed data: expected {most}")
    domain = dict(read_object(typed["domain"], "domain"))
    if isinstance(domain.get("chainId"), str):  # as some wallets send it
        domain["chainId"] = read_number(domain["chainId"], "chainId")
    return {**typed, "domain": domain}


def _digest(typed: Json) -> bytes:
    from eth_abi.exceptions import EncodingError
    from eth_account.messages import encode_typed_data
    from eth_utils.exceptions import ValidationError

    refusals = (
        *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
        *(EncodingError, ValidationError),
    )
    try:
        message = encode_typed_data(full_message=typed)
    except refusals as wrong:
        raise BadParams(f"typed data: {wrong}; got {shown(typed)}") from wrong
    return keccak256(b"\x19" + message.version + message.header + message.body)
