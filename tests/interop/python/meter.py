"""A payer of the official SDK that pays `upto` and `exact`: {"key", "network", "urls"}.

With "rpc" it reads the chain, and signs what lets it do without gas, where a shop offers that. It
prints the answer from each URL: status, body, receipt and error.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from eth_account import Account
from x402 import x402Client
from x402.http.clients.httpx import x402HttpxClient
from x402.mechanisms.evm.exact import ExactEvmScheme
from x402.mechanisms.evm.signers import EthAccountSignerWithRPC
from x402.mechanisms.evm.upto import UptoEvmScheme

told = json.load(sys.stdin)


def by_permit2(version: int, offers: list[Any]) -> list[Any]:
    """Prefer Permit2 where a shop sells by both."""
    return sorted(offers, key=lambda each: "assetTransferMethod" not in (each.extra or {}))


async def main() -> list[dict[str, Any]]:
    client, signer = x402Client(), Account.from_key(told["key"])
    client.register_policy(by_permit2)
    if "rpc" in told:
        signer = EthAccountSignerWithRPC(signer, told["rpc"])
    client.register(told["network"], UptoEvmScheme(signer))
    client.register(told["network"], ExactEvmScheme(signer))
    found = []
    async with x402HttpxClient(client) as http:
        for url in told["urls"]:
            answer = await http.get(url, timeout=20)
            text = answer.headers.get("PAYMENT-RESPONSE")
            receipt = json.loads(base64.b64decode(text)) if text else None
            required = answer.headers.get("PAYMENT-REQUIRED")
            error = json.loads(base64.b64decode(required))["error"] if required else None
            body = answer.json()
            found.append(
                {"status": answer.status_code, "body": body, "receipt": receipt, "error": error}
            )
    return found


print(json.dumps(asyncio.run(main())))
