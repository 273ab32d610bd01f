"""An adapter for the official Python package, x402[evm]; time and chain are those of each request."""

import asyncio
import json
import sys
import time
from typing import Any

from eth_abi import encode as abi_encode
from eth_account import Account
from x402 import x402Facilitator, x402ResourceServer
from x402.http import utils as http
from x402.mechanisms.evm import EthAccountSigner, eip712
from x402.mechanisms.evm.exact import register_exact_evm_facilitator
from x402.mechanisms.evm.types import AUTHORIZATION_TYPES, TypedDataDomain
from x402.mechanisms.evm.utils import parse_amount
from x402.schemas import PaymentRequirements, SettleResponse, helpers
from x402.schemas.v1 import PaymentRequirementsV1

KIND = "TransferWithAuthorization"
CODECS: dict[str, Any] = {
    "required": (http.decode_payment_required_header, helpers.parse_payment_required, http.encode_payment_required_header),
    "payment": (http.decode_payment_signature_header, helpers.parse_payment_payload, http.encode_payment_signature_header),
    "receipt": (http.decode_payment_response_header, SettleResponse.model_validate, http.encode_payment_response_header),
}  # fmt: skip


def plain(model: Any) -> dict[str, Any]:
    return {"value": model.model_dump(by_alias=True, exclude_none=True)}


def decode(asked: dict[str, Any]) -> dict[str, Any]:
    if (asked["version"], asked["message"]) == (1, "required"):
        return plain(helpers.parse_payment_required(asked["text"].encode()))
    return plain(CODECS[asked["message"]][0](asked["text"]))


def encode(asked: dict[str, Any]) -> dict[str, Any]:
    _, read, write = CODECS[asked["message"]]
    message = read(asked["value"])
    if (asked["version"], asked["message"]) == (1, "required"):
        return {"text": message.model_dump_json(by_alias=True, exclude_none=True)}
    return {"text": write(message)}


def match(asked: dict[str, Any]) -> dict[str, Any]:
    offers = [PaymentRequirements.model_validate(each) for each in asked["accepts"]]
    payment = {"x402Version": 2, "payload": {}, "accepted": asked["accepted"]}
    found = x402ResourceServer().find_matching_requirements(offers, helpers.parse_payment_payload(payment))  # fmt: skip
    return {"index": next((at for at, each in enumerate(offers) if each is found), None)}


def parts(asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if asked.get("type", KIND) != KIND or "version" not in asked.get("domain", "version"):
        raise NotImplementedError
    domain = asked.get("domain")
    its = TypedDataDomain(domain["name"], domain["version"], int(domain["chainId"]), domain["verifyingContract"]) if domain else None  # fmt: skip
    message = {name: int(it) if it.isdigit() else it for name, it in asked.get("message", {}).items()}  # fmt: skip
    return its, message


def hashed(raw: bytes) -> dict[str, Any]:
    return {"hash": "0x" + raw.hex()}


def digest(asked: dict[str, Any]) -> dict[str, Any]:
    domain, message = parts(asked)
    return hashed(eip712.hash_typed_data(domain, AUTHORIZATION_TYPES, KIND, message))


def sign(asked: dict[str, Any]) -> dict[str, Any]:
    domain, message = parts(asked)
    message["nonce"] = bytes.fromhex(message["nonce"][2:])
    signer = EthAccountSigner(Account.from_key(asked["privateKey"]))
    raw = signer.sign_typed_data(domain, AUTHORIZATION_TYPES, KIND, message)
    return {"signature": "0x" + bytes(raw).hex()}


RESULTS: dict[str, Any] = {
    "70a08231": lambda state: abi_encode(["uint256"], [int(state["balance"])]),
    "e94a0102": lambda state: abi_encode(["bool"], [state["nonceUsed"]]),
    "06fdde03": lambda state: abi_encode(["string"], [state["token"]["name"]]),
    "54fd4d50": lambda state: abi_encode(["string"], [state["token"]["version"]]),
}


class Chain:
    """The signer of a facilitator, whose chain is the state of a request."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state, self.token = state, state["token"]
        self.get_addresses = lambda: ["0x" + "11" * 20]

    def get_code(self, address: str) -> bytes:
        is_token = address.lower() == self.token["address"].lower()
        return b"\x01" if is_token else bytes.fromhex(self.state["payerCode"][2:])

    def called(self, data: bytes) -> tuple[bool, bytes]:
        read = RESULTS.get(data[:4].hex())
        return (True, read(self.state)) if read else (self.state["transfer"] == "ok", b"")

    def read_contract(self, address: str, abi: Any, name: str, *args: Any) -> Any:
        if name == "isValidSignature":
            return bytes.fromhex(self.state["isValidSignature"][2:])
        if name == "tryAggregate":
            return [self.called(data) for _, data in args[1]]
        if address.lower() == self.token["address"].lower():
            if name == "transferWithAuthorization" and self.state["transfer"] != "ok":
                raise ValueError(f"execution {self.state['transfer']}")
            return {"balanceOf": int(self.state["balance"]), "authorizationState": self.state["nonceUsed"], **self.token}.get(name)  # fmt: skip
        raise ValueError("execution reverted")


def verify(asked: dict[str, Any]) -> dict[str, Any]:
    state = asked["state"]
    time.time = lambda: float(state["time"])
    facilitator = x402Facilitator()
    register_exact_evm_facilitator(facilitator, Chain(state), networks=f"eip155:{state['chainId']}")
    read = PaymentRequirementsV1 if asked["version"] == 1 else PaymentRequirements
    payment, wanted = helpers.parse_payment_payload(asked["payment"]), read.model_validate(asked["requirements"])  # fmt: skip
    it = asyncio.run(facilitator.verify(payment, wanted))
    return {"isValid": it.is_valid, "invalidReason": it.invalid_reason}


OPERATIONS: dict[str, Any] = {
    "decode": decode,
    "encode": encode,
    "match": match,
    "units": lambda asked: {"base": str(parse_amount(asked["text"], asked["decimals"]))},
    "domain": lambda asked: hashed(eip712.hash_domain(parts(asked)[0])),
    "struct": lambda it: hashed(eip712.hash_struct(KIND, AUTHORIZATION_TYPES, parts(it)[1])),
    "digest": digest,
    "sign": sign,
    "verify": verify,
    "capabilities": lambda asked: {"name": "x402 (Python)", "operations": [*OPERATIONS][:-1]},
}

for line in sys.stdin:
    request = json.loads(line)
    answer = {"id": request["id"]}
    try:
        if request["input"].get("version") == "spec":
            raise NotImplementedError
        answer["result"] = OPERATIONS[request["op"]](request["input"])
    except NotImplementedError:
        answer["error"] = {"code": "unsupported"}
    except Exception as wrong:  # noqa: BLE001 - whatever the package raises, it refuses
        answer["error"] = {"code": "invalid", "message": repr(wrong)[:200]}
    print(json.dumps(answer), flush=True)
