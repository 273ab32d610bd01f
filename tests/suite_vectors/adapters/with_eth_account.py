"""An adapter for eth-account: typed data, signatures."""

import json
import sys
from typing import Any

from eth_abi import encode
from eth_account import Account
from eth_account.messages import SignableMessage, encode_typed_data
from eth_utils import function_signature_to_4byte_selector, keccak

WORDS = {"from": "address", "to": "address", "value": "uint256", "validAfter": "uint256", "validBefore": "uint256", "nonce": "bytes32"}  # fmt: skip
TYPES = {
    "TransferWithAuthorization": WORDS,
    "ReceiveWithAuthorization": WORDS,
    "CancelAuthorization": {"authorizer": "address", "nonce": "bytes32"},
    "Permit": {"owner": "address", "spender": "address", "value": "uint256", "nonce": "uint256", "deadline": "uint256"},
    "PermitWitnessTransferFrom": {"permitted": "TokenPermissions", "spender": "address", "nonce": "uint256", "deadline": "uint256", "witness": "Witness"},
    "TokenPermissions": {"token": "address", "amount": "uint256"},
    "Witness": {"to": "address", "facilitator": "address", "validAfter": "uint256"},
}  # fmt: skip


def signable(asked: dict[str, Any]) -> SignableMessage:
    kind = asked.get("type", "TransferWithAuthorization")
    message = asked.get("message") or dict.fromkeys(TYPES[kind], 0)
    domain = asked.get("domain") or {"name": "", "version": "", "chainId": 0, "verifyingContract": "0x" + "00" * 20}  # fmt: skip
    given = {"Witness": message.get("witness", {}), kind: message}  # exact has no facilitator
    types = {
        name: {each: of for each, of in TYPES[name].items() if each in given.get(name, TYPES[name])}
        for name in {kind, *TYPES[kind].values()} & TYPES.keys()
    }
    return encode_typed_data(
        {**domain, "chainId": int(domain["chainId"])},
        {
            name: [{"name": each, "type": of} for each, of in its.items()]
            for name, its in types.items()
        },
        {name: value(TYPES[kind][name], each) for name, each in message.items()},
    )


def value(kind: str, given: Any) -> Any:
    if kind in TYPES:
        return {name: value(TYPES[kind][name], each) for name, each in given.items()}
    if kind == "uint256":
        return int(given)
    raw = bytes.fromhex(str(given).removeprefix("0x")) if given else bytes(32)
    return (raw or bytes(32)) if kind == "bytes32" else (given or "0x" + "00" * 20)


def calldata(asked: dict[str, Any]) -> dict[str, Any]:
    raw = bytes.fromhex(asked["signature"][2:])
    kinds = [*WORDS.values(), *(["uint8", "bytes32", "bytes32"] if len(raw) == 65 else ["bytes"])]
    last = [raw[64], raw[:32], raw[32:64]] if len(raw) == 65 else [raw]
    values = [value(WORDS[name], asked["message"][name]) for name in WORDS]
    selector = function_signature_to_4byte_selector(f"transferWithAuthorization({','.join(kinds)})")
    return {"data": "0x" + (selector + encode(kinds, [*values, *last])).hex()}


def sign(asked: dict[str, Any]) -> dict[str, Any]:
    signed = Account.sign_message(signable(asked), asked["privateKey"])
    return {"signature": "0x" + signed.signature.hex().removeprefix("0x")}


def recover(asked: dict[str, Any]) -> dict[str, Any]:
    return {"address": Account.recover_message(signable(asked), signature=asked["signature"])}


def hashed(part: bytes) -> dict[str, Any]:
    return {"hash": "0x" + part.hex()}


OPERATIONS = {
    "domain": lambda asked: hashed(signable(asked).header),
    "struct": lambda asked: hashed(signable(asked).body),
    "digest": lambda asked: hashed(
        keccak(b"\x19\x01" + signable(asked).header + signable(asked).body)
    ),
    "sign": sign,
    "recover": recover,
    "calldata": calldata,
    "capabilities": lambda asked: {"name": "eth-account", "operations": [*OPERATIONS][:-1]},
}

if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"id": request["id"]}
        try:
            answer["result"] = OPERATIONS[request["op"]](request["input"])
        except Exception as wrong:  # noqa: BLE001 - whatever the library raises, it refuses
            answer["error"] = {"code": "invalid", "message": repr(wrong)[:200]}
        print(json.dumps(answer), flush=True)
