"""A client of somebody else, unmodified, buys what is sold at a URL, and prints the answer as JSON.

It reads {"client", "url", "key", "network", "body"} from stdin, and posts the body; x402kit only gets.
"""

import asyncio
import json
import sys
from typing import Any

import x402kit
from eth_account import Account
from x402_client import X402AsyncClient, X402Client

told = json.load(sys.stdin)
client, url, key = told["client"], told["url"], told["key"]


def ask(http: Any) -> Any:
    """Post the body, or get, if there is none."""
    return http.post(url, json=told["body"]) if "body" in told else http.get(url)


async def with_async_client() -> Any:
    async with X402AsyncClient(account=Account.from_key(key), timeout=30) as http:
        return await ask(http)


if client == "sync":
    with X402Client(account=Account.from_key(key), timeout=30) as http:
        answer = ask(http)
elif client == "async":
    answer = asyncio.run(with_async_client())
else:
    answer = x402kit.get(url, private_key=key, max_spend_usdc="0.05", network=told["network"])
headers = {name.lower(): value for name, value in answer.headers.items()}
body = json.loads(answer.text)
print(json.dumps({"status": answer.status_code, "headers": headers, "body": body}))
