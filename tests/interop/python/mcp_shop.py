"""An MCP server on the official Python SDK, over stdio, whose tools are paid for with care.

It takes its settings as a judge gives them. A payment is claimed, with what it is for, before
anything is asked about it; what became of it is kept, and what is not known is asked again.
"""

import asyncio
import itertools
import json
import os

import httpx
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

URL = os.environ["FACILITATOR_URL"]
PRICES = {"forecast": "20000", "weather": "10000"}
server: Server = Server("weather")
number = itertools.count(1)
kept: dict[str, dict] = {}


def offer(tool: str) -> dict:
    return {
        "scheme": "exact",
        "network": os.environ["X402SIM_NETWORK"],
        "amount": PRICES[tool],
        "asset": os.environ["X402SIM_ASSET"],
        "payTo": os.environ["X402SIM_PAY_TO"],
        "maxTimeoutSeconds": 60,
        "extra": {
            "name": os.environ["X402SIM_ASSET_NAME"],
            "version": os.environ["X402SIM_ASSET_VERSION"],
        },
    }


def asks(tool: str, error: str, receipt: dict | None = None) -> types.CallToolResult:
    required = {
        "x402Version": 2,
        "error": error,
        "resource": {"url": f"mcp://tool/{tool}"},
        "accepts": [offer(tool)],
    }
    text = types.TextContent(type="text", text=json.dumps(required))
    meta = None if receipt is None else {"x402/payment-response": receipt}
    return types.CallToolResult(
        isError=True, structuredContent=required, content=[text], _meta=meta
    )


def says(text: str) -> types.CallToolResult:
    """An error that says nothing of the payment."""
    return types.CallToolResult(isError=True, content=[types.TextContent(type="text", text=text)])


def nonce_in(payment: object) -> str | None:
    """The payer and its nonce: two payers may have drawn the same."""
    try:
        signed = payment["payload"]["authorization"]
        payer, nonce = signed["from"], signed["nonce"]
    except (KeyError, TypeError, IndexError):
        return None
    are_texts = isinstance(payer, str) and isinstance(nonce, str)
    return f"{payer} {nonce}".lower() if are_texts and payment.get("x402Version") == 2 else None


async def told(http: httpx.AsyncClient, path: str, payment: dict, tool: str) -> dict:
    """What the facilitator says; empty if that is nothing certain."""
    body = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": offer(tool)}
    try:
        answer = await http.post(URL + path, json=body)
        said = answer.json() if answer.status_code == 200 else {}
    except (httpx.HTTPError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


async def call(tool: str, arguments: dict, payment: object) -> types.CallToolResult:
    if payment is None:
        return asks(tool, "payment is required")
    nonce, what = nonce_in(payment), json.dumps([tool, arguments, payment], sort_keys=True)
    if nonce is None:
        return asks(tool, "invalid_payload")
    if payment.get("accepted") != offer(tool):
        return asks(tool, "invalid_payment_requirements")
    before = kept.get(nonce)
    if before is not None and before["what"] != what:
        return asks(tool, "it was paid for something else")
    if before is not None and before["state"] != "unknown":
        return before["result"] if before["state"] == "done" else says("it is being worked on")
    own = kept[nonce] = {"what": what, "state": "working"}
    try:
        return await bought(nonce, own, tool, arguments, payment, is_new=before is None)
    except BaseException:  # its client has left: nobody knows
        own["state"] = "unknown"
        raise


async def bought(
    nonce: str, own: dict, tool: str, arguments: dict, payment: dict, *, is_new: bool
) -> types.CallToolResult:
    async with httpx.AsyncClient(timeout=5) as http:
        if is_new:
            verified = await told(http, "/verify", payment, tool)
            if verified.get("isValid") is not True:
                del kept[nonce]
                reason = verified.get("invalidReason")
                return (
                    asks(tool, reason)
                    if reason
                    else says("the facilitator is not there: try again")
                )
        settled = await told(http, "/settle", payment, tool)
    if settled.get("success") is True and settled.get("transaction"):
        place = {"number": next(number), "city": arguments.get("city"), "weather": "sunny"}
        text = types.TextContent(type="text", text=json.dumps(place))
        meta = {"x402/payment-response": settled}
        own["result"] = types.CallToolResult(structuredContent=place, content=[text], _meta=meta)
        own["state"] = "done"
        return own["result"]
    # what was not known may have been paid, whatever the next settle says: "used", for example
    if (
        is_new
        and settled.get("success") is False
        and settled.get("errorReason")
        and not settled.get("transaction")
    ):
        del kept[nonce]
        return asks(tool, settled["errorReason"], settled)
    own["state"] = "unknown"
    return says("it is not known whether it was paid: send the same payment again")


async def answer(request: types.CallToolRequest) -> types.ServerResult:
    params = request.params
    meta = (params.meta.model_extra if params.meta else None) or {}
    found = await call(params.name, params.arguments or {}, meta.get("x402/payment"))
    return types.ServerResult(found)


@server.list_tools()
async def tools() -> list[types.Tool]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return [
        types.Tool(name=name, description="The weather, for a price", inputSchema=schema)
        for name in PRICES
    ]


server.request_handlers[types.CallToolRequest] = answer


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
