"""An agent calls a paid tool, and pays for it: of an MCP server at `url`, or of the recipe's over stdio.

It reads {"url" or "server": settings, "key", "tool", "arguments"} from stdin and prints what it got, as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path

from eth_account import Account
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from x402 import x402Client
from x402.mcp import x402MCPSession
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact.register import register_exact_evm_client

told = json.load(sys.stdin)
if "url" in told:
    server = streamablehttp_client(told["url"])
else:
    program = str(Path(__file__).parents[3] / "conformance/recipes/mcp_server.py")
    started = StdioServerParameters(command=sys.executable, args=[program], env=told["server"])
    server = stdio_client(started)


async def main() -> None:
    payer = x402Client()
    register_exact_evm_client(payer, EthAccountSigner(Account.from_key(told["key"])))
    async with server as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        listed = await session.list_tools()
        unpaid = await session.call_tool(told["tool"], told["arguments"])
        got = await x402MCPSession(session, payer).call_tool(told["tool"], told["arguments"])
    answer = {
        "tools": [tool.name for tool in listed.tools],
        "unpaid": unpaid.model_dump(mode="json", by_alias=True),
        "content": [item.text for item in got.content],
        "isError": got.is_error,
        "paid": got.payment_response and got.payment_response.model_dump(by_alias=True),
    }
    print(json.dumps(answer))


asyncio.run(main())
