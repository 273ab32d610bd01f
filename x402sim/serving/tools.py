"""An MCP server at /mcp, with tools that sell the goods of the service.

A tool call becomes a request to the service, with the payment of `_meta` in its header; the
service's answer becomes the result. So claim, settlement, reconciliation, log, page and faults are
the same as for any payment. The transport is streamable HTTP without sessions. The result is sent
inside the service's own `send`: after its return, the service takes the answer for delivered.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.http import web
from x402sim.protocol import mcp, x402
from x402sim.protocol.messages import decoded, encode
from x402sim.protocol.refusals import RequestError
from x402sim.protocol.routes import MARKET, QUOTE
from x402sim.service.goods import Shop
from x402sim.version import VERSION

PATH = "/mcp"
_TOO_MUCH = frozenset(
    name.lower().encode()
    for name in (
        *("Content-Length", "Content-Type", "Accept", "Accept-Encoding"),
        *("X-Payment-Id", "X-Session-Id"),
        *x402.PAYMENT_HEADERS.values(),
    )
)
"""The headers of an MCP message that are not passed on to the service."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that is sold: the path and method at which the service sells the same."""

    description: str
    path: str
    """Escaped; the name of a hole stands in braces."""
    method: str = "GET"
    takes: str = ""
    """The message in the arguments; "" without a message."""
    holes: Sequence[str] = ()
    """The arguments, texts, that complete the path; the others are the body of a POST."""

    def filled(self, given: Any) -> tuple["Tool", bytes]:
        """Return the tool at the path of these arguments, and the body; raises `KeyError`."""
        path, rest = self.path, given
        if self.holes:
            rest = dict(given) if isinstance(given, dict) else {}
        for name in self.holes:
            path = path.replace(f"{{{name}}}", quote(str(rest.pop(name))))
        body = encode({} if rest is None else rest) if self.method in _WITH_BODY else b""
        return replace(self, path=path), body


_WITH_BODY = ("POST", "PUT", "PATCH")
Answered = Callable[[int, httpx.Headers, bytes], Awaitable[None]]
"""Called with an answer of the service, while the service sends it."""
Ask = Callable[[Mapping[str, str], Answered], Awaitable[None]]
"""Requests what a tool sells from the service, with the headers of a payment."""
TOOLS = {
    "market": Tool("A snapshot of the perpetual market, for a price", MARKET),
    "quote": Tool("A quote for a perpetual position, for a price", QUOTE, "POST", "QuoteRequest"),
}
Tools = Mapping[str, Tool]
Params = Mapping[str, Any]
_Bought = tuple[str, Tool, bytes]  # a tool's name, the tool at the path of a call, and the body


def tools_of(shop: Shop) -> Tools:
    """Return the tools of a user's goods, or else those of the service's own; none of `upto`."""
    own = {
        name: (good, *good.named)
        for name, (good, price) in shop.tools.items()
        if price and not good.upto
    }
    return {
        name: Tool(good.description or good.name, path, good.method or "GET", holes=holes)
        for name, (good, path, holes) in own.items()
    } or TOOLS


def with_tools(app: ASGIApp, tools: Tools, guard: Callable[[ASGIApp], ASGIApp]) -> ASGIApp:
    """Return `app` with an MCP server of these tools at /mcp, behind a `guard` for web pages."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await _answer(app, tools, Request(scope, receive), send)
        except web.Refused as refused:
            response = web.error(refused.status, refused.error, refused.reason)
            await response(scope, receive, send)

    guarded = guard(answer)

    def serve(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_it = scope["type"] == "http" and scope["path"] in (PATH, PATH + "/")
        return (guarded if is_it else app)(scope, receive, send)

    return serve


async def _answer(app: ASGIApp, tools: Tools, request: Request, send: Send) -> None:
    scope, receive = request.scope, request.receive
    if request.method != "POST":
        allowed = web.answer({"error": "POST a message of JSON-RPC"}, 405, {"Allow": "POST"})
        return await allowed(scope, receive, send)
    try:
        message = decoded(await web.read_body(request))
    except ClientDisconnect:
        return None
    fields = message if isinstance(message, dict) else {}
    number, method, given = fields.get("id"), fields.get("method"), fields.get("params")
    params: Params = given if isinstance(given, dict) else {}

    async def say(status: int = 200, **outcome: Any) -> None:
        reply = {"jsonrpc": "2.0", "id": number, **outcome}
        await web.answer(reply, status)(scope, receive, send)

    match method:
        case str() if number is None:  # a notification
            return await web.answer({}, 202)(scope, receive, send)
        case "initialize":
            wanted = params.get("protocolVersion")
            revision = wanted if wanted in mcp.REVISIONS else mcp.REVISIONS[0]
            about = {"name": "x402sim", "version": VERSION}
            can = {"tools": {"listChanged": False}}
            return await say(
                result={"protocolVersion": revision, "capabilities": can, "serverInfo": about}
            )
        case "ping":
            return await say(result={})
        case "tools/list":
            return await say(result={"tools": _listed(tools)})
        case "tools/call" if (name := str(params.get("name"))) in tools:
            try:
                bought = name, *tools[name].filled(params.get("arguments"))
            except KeyError as missing:
                text = f"the tool {name} needs the argument {missing}, a text"
                return await say(error={"code": mcp.INVALID_PARAMS, "message": text})
            return await _call(app, request, number, bought, params, send)
        case "tools/call":
            unknown = f"there is no tool {str(params.get('name'))[:80]!r}; there are "
            text = f"{unknown}{', '.join(tools)}"
            return await say(error={"code": mcp.INVALID_PARAMS, "message": text})
        case str():
            return await say(error={"code": mcp.NO_METHOD, "message": "Method not found"})
        case _:
            invalid = {"code": -32600, "message": "one request of JSON-RPC is wanted"}
            return await say(400, error=invalid)


def _listed(tools: Tools) -> list[dict[str, Any]]:
    from x402sim.service.docs.openapi import schemas  # with the whole book of examples
    from x402sim.spec.decisions import Decisions

    known, listed = schemas(Decisions()), []
    for name, it in tools.items():
        needs = {"required": it.holes} if it.holes else {}
        texts = {hole: {"type": "string"} for hole in it.holes}
        schema = known.get(it.takes, {"type": "object", "properties": texts, **needs})
        listed.append({"name": name, "description": it.description, "inputSchema": schema})
    return listed


async def _call(
    app: ASGIApp, request: Request, number: Any, bought: _Bought, params: Params, send: Send
) -> None:
    resource = mcp.RESOURCE + bought[0]
    ask: Ask = partial(_ask, app, request, bought)

    async def answered(status: int, found: httpx.Headers, content: bytes) -> None:
        result = mcp.result_of(status, found, content, resource)
        error = decoded(content) if status == 400 else None
        if isinstance(error, dict) and error.get("error") == RequestError.INVALID_PAYMENT.text:
            # over MCP that is an offer again
            result = await _offer(ask, resource, f"invalid_payload: {error.get('reason')}")
        message = {"jsonrpc": "2.0", "id": number, "result": result}
        await web.answer(message)(request.scope, request.receive, send)

    meta = params.get("_meta")
    paid = meta.get(mcp.PAYMENT) if isinstance(meta, dict) else None
    about = paid.get("resource") if isinstance(paid, dict) else None
    if isinstance(paid, dict) and isinstance(about, dict) and about.get("url") == resource:
        # the service knows the tool by the URL at which it sells the same
        known = {**about, "url": str(request.url.replace(path=bought[1].path, query=""))}
        params = {**params, "_meta": {mcp.PAYMENT: {**paid, "resource": known}}}
    await ask(mcp.payment_in(params), answered)


async def _offer(ask: Ask, resource: str, error: str) -> dict[str, Any]:
    offered: list[dict[str, Any]] = []

    async def answered(status: int, found: httpx.Headers, body: bytes) -> None:
        required = x402.json_in(found.get(x402.REQUIRED_HEADER), dict[str, Any]) or {}
        header = {x402.REQUIRED_HEADER: x402.to_base64({**required, "error": error})}
        offered.append(mcp.result_of(status, header, body, resource))

    await ask({}, answered)
    return offered[0]


async def _ask(
    app: ASGIApp, request: Request, bought: _Bought, payment: Mapping[str, str], answered: Answered
) -> None:
    """Send the service the request that a tool is, and call `answered` when it has answered."""
    (tool_name, tool, body), scope = bought, request.scope
    own = [(mcp.TOOL, tool_name), ("Content-Length", str(len(body))), *payment.items()]
    own.append(("Accept-Encoding", "identity"))  # the answer becomes a text
    if body:
        own.append(("Content-Type", "application/json"))
    headers = [each for each in scope["headers"] if each[0] not in _TOO_MUCH]
    headers += [(name.lower().encode(), text.encode("latin-1")) for name, text in own]
    inner = {
        **scope,
        "method": tool.method,
        "path": unquote(tool.path),
        "raw_path": tool.path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    status, parts, heads = 0, bytearray(), httpx.Headers()

    async def receive() -> Message:
        return left.pop() if left else await request.receive()

    async def send(message: Message) -> None:
        nonlocal status, heads
        if message["type"] == "http.response.start":
            status, heads = message["status"], httpx.Headers(message["headers"])
        else:
            parts.extend(message.get("body", b""))
            if not message.get("more_body", False):
                await answered(status, heads, bytes(parts))

    await app(inner, receive, send)
