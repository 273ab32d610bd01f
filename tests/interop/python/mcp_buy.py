"""An agent calls a tool of an MCP server over streamable HTTP, and pays for it.

It reads {"url", "key", "tool", "arguments"} from stdin and prints what it got, as JSON.
"""

import asyncio
import json
import sys

from eth_account import Account
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
from x402 import x402Client
from x402.mcp import x402MCPSession
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact.register import register_exact_evm_client

told = json.load(sys.stdin)


async def main() -> None:
    payer = x402Client()
    register_exact_evm_client(payer, EthAccountSigner(Account.from_key(told["key"])))
    async with (
        streamablehttp_client(told["url"]) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        listed = await session.list_tools()
        got = await x402MCPSession(session, payer).call_tool(told["tool"], told["arguments"])
    answer = {
        "tools": [tool.name for tool in listed.tools],
        "content": [item.text for item in got.content],
        "isError": got.is_error,
        "paid": got.payment_response and got.payment_response.model_dump(by_alias=True),
    }
    print(json.dumps(answer))


asyncio.run(main())
