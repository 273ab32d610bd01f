"""Says for each 402 whether the library's client signs it: "yes", or the error."""

import json
import sys

from eth_account import Account
from x402 import x402ClientSync
from x402.mechanisms.evm.exact.register import register_exact_evm_client
from x402.schemas.helpers import parse_payment_required


def answer(required: dict[str, object], key: str) -> str:
    client = x402ClientSync()
    register_exact_evm_client(client, Account.from_key(key))
    try:
        client.create_payment_payload(parse_payment_required(json.dumps(required).encode()))
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        return f"{type(error).__name__}: {error}"
    return "yes"


told = json.load(sys.stdin)
print(json.dumps([answer(each, told["key"]) for each in told["required"]]))
