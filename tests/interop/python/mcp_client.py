"""An agent calls the paid tool of mcp_server.py, and pays for it.

It reads {"server": settings, "key", "network"} from stdin and prints what it got, as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path

from eth_account import Account
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from x402 import x402Client
from x402.mcp import x402MCPSession
from x402.mechanisms.evm import EthAccountSigner
from x402.mechanisms.evm.exact.register import register_exact_evm_client

told = json.load(sys.stdin)


async def main() -> None:
    payer = x402Client()
    register_exact_evm_client(payer, EthAccountSigner(Account.from_key(told["key"])))
    server = StdioServerParameters(
        command=sys.executable,
        args=[str(Path(__file__).with_name("mcp_server.py"))],
        env=told["server"],
    )
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        unpaid = await session.call_tool("forecast", {"city": "Oslo"})
        agent = x402MCPSession(session, payer)
        got = await agent.call_tool("forecast", {"city": "Oslo"})
    answer = {
        "unpaid": unpaid.model_dump(mode="json", by_alias=True),
        "content": [item.text for item in got.content],
        "isError": got.is_error,
        "paid": got.payment_response and got.payment_response.model_dump(by_alias=True),
    }
    print(json.dumps(answer))


asyncio.run(main())
