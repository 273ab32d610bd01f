"""An MCP server with one paid tool, over stdio.

The environment has FACILITATOR_URL, X402SIM_PAY_TO and X402SIM_NETWORK (CAIP-2). The tool's answer
is paid for in x402 version 2, as the specification for MCP says.
"""

import os

from mcp.server.fastmcp import FastMCP
from x402.http import FacilitatorConfig, HTTPFacilitatorClient
from x402.mcp import create_payment_wrapper
from x402.mechanisms.evm.exact import ExactEvmServerScheme
from x402.schemas import ResourceConfig
from x402.server import x402ResourceServer

network = os.environ["X402SIM_NETWORK"]
sales = x402ResourceServer(
    HTTPFacilitatorClient(FacilitatorConfig(url=os.environ["FACILITATOR_URL"]))
)
sales.register(network, ExactEvmServerScheme())
sales.initialize()
price = ResourceConfig(
    scheme="exact", network=network, pay_to=os.environ["X402SIM_PAY_TO"], price="$0.01"
)
paid = create_payment_wrapper(sales, accepts=sales.build_payment_requirements(price))
server = FastMCP("weather")


@server.tool()
@paid
async def forecast(city: str) -> str:
    """Tell tomorrow's weather; costs $0.01."""
    return f"{city}: sunny"


server.run()
