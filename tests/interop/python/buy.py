"""A client of somebody else, unmodified, buys what is sold at a URL, and prints the answer as JSON.

It reads {"client", "url", "key", "network", "body"} from stdin, and posts the body; x402kit only gets.
"""

import asyncio
import json
import sys
from typing import Any

from eth_account import Account

told = json.load(sys.stdin)
url, body = told["url"], told.get("body")


def seen(status: int, headers: Any, text: str) -> dict[str, Any]:
    kept = {name.lower(): value for name, value in dict(headers).items()}
    return {"status": status, "headers": kept, "body": json.loads(text)}


def x402_client() -> dict[str, Any]:
    from x402_client import X402Client

    with X402Client(account=Account.from_key(told["key"]), timeout=30) as http:
        answer = http.post(url, json=body) if body else http.get(url)
    return seen(answer.status_code, answer.headers, answer.text)


def x402_client_async() -> dict[str, Any]:
    from x402_client import X402AsyncClient

    async def ask() -> Any:
        async with X402AsyncClient(account=Account.from_key(told["key"]), timeout=30) as http:
            return await (http.post(url, json=body) if body else http.get(url))

    answer = asyncio.run(ask())
    return seen(answer.status_code, answer.headers, answer.text)


def x402kit() -> dict[str, Any]:
    import x402kit

    answer = x402kit.get(
        url, private_key=told["key"], max_spend_usdc="0.05", network=told["network"]
    )
    return seen(answer.status_code, answer.headers, answer.text)


clients = {"sync": x402_client, "async": x402_client_async, "x402kit": x402kit}
print(json.dumps(clients[told["client"]]()))
