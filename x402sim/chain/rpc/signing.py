"""The methods that sign with the keys of the funded accounts, as anvil and Hardhat do for theirs.

Nothing else is signed: an account whose key is not here gets an error.
"""

from typing import Any

from x402sim.chain.base import ChainError
from x402sim.chain.rpc.context import RpcContext
from x402sim.protocol.crypto import Address, PrivateKey, keccak256, sign, to_hex
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.rpc_values import (
    BadParams,
    Json,
    read_address,
    read_bytes,
    read_object,
    read_quantity,
    shown,
)


def key_of(rpc: RpcContext, account: Address) -> PrivateKey:
    """Return the key of an account; raises `ChainError` if it is locked or not one of ours."""
    if not rpc.unlocked:
        raise ChainError("no account is unlocked: this server signs nothing over JSON-RPC")
    if account not in rpc.keys:
        raise ChainError(f"account {to_hex(account)} is not unlocked; see eth_accounts")
    return PrivateKey(rpc.keys[account])


async def eth_sign(rpc: RpcContext, address: Any, data: Any) -> str:
    """Sign bytes with an account, as a message of EIP-191."""
    key = key_of(rpc, read_address(address))
    message = read_bytes(data, "a message")
    prefix = b"\x19Ethereum Signed Message:\n" + str(len(message)).encode()
    return to_hex(sign(keccak256(prefix + message), key))


async def personal_sign(rpc: RpcContext, data: Any, address: Any, password: Any = None) -> str:
    """Sign bytes as eth_sign does: the parameters are in the other order."""
    return await eth_sign(rpc, address, data)


async def eth_signTypedData_v4(rpc: RpcContext, address: Any, typed_data: Any) -> str:
    """Sign typed data of EIP-712 with an account; it is an object or its JSON text."""
    key = key_of(rpc, read_address(address))
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
    domain = read_object(typed["domain"], "domain")
    return {**typed, "domain": {**domain, **_chain_id(domain)}}


def _chain_id(domain: Json) -> Json:
    """Return the chain id as a number: wallets also send it as text."""
    given = domain.get("chainId")
    if not isinstance(given, str):
        return {}
    if given.isascii() and given.isdecimal() and len(given) < 80:
        return {"chainId": int(given)}
    return {"chainId": read_quantity(given, "chainId")}


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
