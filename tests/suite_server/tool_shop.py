"""The toy shop as an MCP server: it sells its paths as tools, over streamable HTTP or by stdio.

`python -m tests.suite_server.tool_shop [stdio] DEFECT…` serves one, as the judge starts it. What a
shop gets wrong, `Shop` gets wrong here, too; the defects of tools alone are in `results`.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.suite_server.shop import Malformed, Order, Reply, Shop, of_environment, shop
from x402sim.protocol import mcp

if TYPE_CHECKING:
    from x402sim.suite.server.room import Given

PATHS = {
    "weather": ("GET", "/weather"),
    "forecast": ("GET", "/forecast"),
    "report": ("POST", "/report"),
}


class ToolShop(Shop):
    """A shop whose paths are tools; one in `habits` may answer by events, and have sessions."""

    async def reply(self, scope: Any, headers: Mapping[str, str], body: bytes) -> Reply:
        if scope["method"] != "POST":
            return await super().reply(scope, headers, body)
        asked, told = json.loads(body), {}
        if self.has("has sessions"):
            assert asked["method"] == "initialize" or headers["mcp-session-id"] == "s-1"
            told = {"mcp-session-id": "s-1"}
        said = await self.message(asked, headers)
        if said is None:
            return Reply(202, None, told)
        if self.has("answers by events"):
            events = b": works\n\ndata: " + json.dumps(said).encode() + b"\n\n"
            return Reply(200, events, told | {"content-type": "text/event-stream"})
        return Reply(200, said, told)

    def shown(self, headers: Mapping[str, str], body: bytes) -> Order:
        return Order("", "", "", b"", 2, json.loads(body)["params"]["_meta"][mcp.PAYMENT])

    async def message(self, asked: Any, headers: Mapping[str, str]) -> Any:
        """Return the answer to a message; None to a notification."""
        number, params = asked.get("id"), asked.get("params") or {}
        match asked["method"]:
            case "initialize":
                about = {"name": "shop", "version": "1"}
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                }
                return {"jsonrpc": "2.0", "id": number, "result": result | {"serverInfo": about}}
            case "tools/call":
                result = await self.result(params, headers)
                return {"jsonrpc": "2.0", "id": number, "result": result}
        return None

    async def result(self, params: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        method, path = PATHS[params["name"]]
        given, meta = params.get("arguments") or {}, params.get("_meta") or {}
        query = (
            "&".join(f"{name}={value}" for name, value in given.items()) if method == "GET" else ""
        )
        body = json.dumps(given).encode() if method == "POST" else b""
        is_waved = (self.has("any key pays") and mcp.PAYMENT in meta and not meta[mcp.PAYMENT]) or (
            self.has("a receipt pays") and mcp.RESPONSE in meta
        )
        is_waved |= self.has("any header pays") and isinstance(meta.get(mcp.PAYMENT), str)
        paid = {name.lower(): text for name, text in mcp.payment_in(params).items()}
        if self.has("works before it is paid") and not paid:
            self.content(Order(method, path, query, body))
        try:
            if is_waved:
                reply = Reply(200, self.content(Order(method, path, query, body)))
            else:
                reply = await self.answer(
                    method, path, query, {"host": "shop.example"} | paid, body
                )
        except Malformed as wrong:
            if self.has("5xx for malformed"):
                reply = Reply(500, {"error": str(wrong)})
            else:
                reply = self.ask(path, f"invalid_payload: {wrong}")
        told = {name.lower(): text for name, text in reply.headers.items()}
        found = mcp.result_of(
            reply.status, _Any(told), json.dumps(reply.body).encode(), mcp.RESOURCE + params["name"]
        )
        return self.changed(found, reply, bool(paid))

    def changed(self, result: dict[str, Any], reply: Reply, is_paid: bool) -> dict[str, Any]:
        """Make the defects that only tools have."""
        if reply.status == 402:
            if self.has("only the text"):
                result.pop("structuredContent")
            if self.has("prose for text"):
                result["content"][0]["text"] = "pay first"
            if self.has("another price in the text"):
                other = json.loads(result["content"][0]["text"])
                other["accepts"][0]["amount"] = "1"
                result["content"][0]["text"] = json.dumps(other)
            for name in ("error", "resource"):
                if self.has(f"no {name}"):
                    result["structuredContent"].pop(name, None)
            if self.has("no offer for refusals") and is_paid:
                text = {"type": "text", "text": "payment failed"}
                return {"isError": True, "content": [text]}
            if self.has("keeps the content") and "_meta" in result:
                result["content"].append({"type": "text", "text": "sunny"})
            if self.has("is no error"):
                result.pop("isError")
        elif self.has("no receipt"):
            result.pop("_meta", None)
        return result


class _Any(dict[str, str]):
    """Headers whose names are found in any case."""

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


def tool_shop(given: "Given", defects: Any = (), habits: Any = ()) -> ToolShop:
    return shop(given, defects, habits, ToolShop)


async def speak(made: ToolShop) -> None:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    working: set[asyncio.Task[None]] = set()

    async def answer(line: bytes) -> None:
        said = await made.message(json.loads(line), {})
        if said is not None:
            print(json.dumps(said), flush=True)

    while line := await stream.readline():
        task = asyncio.create_task(answer(line))
        working.add(task)
        task.add_done_callback(working.discard)


if __name__ == "__main__":
    words = sys.argv[1:]
    made = of_environment(words, ToolShop)
    if words[:1] == ["stdio"]:
        asyncio.run(speak(made))
    else:
        import uvicorn

        uvicorn.run(made, port=int(os.environ["PORT"]), log_level="warning")
