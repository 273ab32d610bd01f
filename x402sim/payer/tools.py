"""Pay for MCP tools with `PaymentAuth`, over streamable HTTP or a session of an MCP client.

`tool_request` writes a tool call as an HTTP request, which any httpx authentication can pay. A
`ToolTransport` translates it for streamable HTTP, and `call_paid` for a session of an MCP client on
any wire. `PaymentAuth` alone decides what is signed, kept and sent again.
"""

from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from x402sim.clock import stopwatch
from x402sim.http.bounded import Limits, bound
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.flow import PROOFS
from x402sim.protocol import mcp
from x402sim.protocol.messages import decode, encode
from x402sim.protocol.x402 import REQUIRED_HEADER
from x402sim.version import VERSION


def tool_request(
    url: str | httpx.URL,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Request:
    """Return a call of a tool as a request, for a client with a `ToolTransport`."""
    content = encode(mcp.Call(name, dict(arguments or {})))
    named = {**(headers or {}), mcp.TOOL: mcp.header_of(name), "Content-Type": "application/json"}
    return httpx.Request("POST", url, headers=named, content=content)


def _called(request: httpx.Request) -> mcp.Call:
    call: mcp.Call = decode(request.content, mcp.Call)
    return call


# --- streamable HTTP -------------------------------------------------------------------------

_Read = tuple[httpx.Response, mcp.Incoming]
_Steps = Generator[tuple[httpx.Request, int | None], _Read, httpx.Response]
"""Yields what to send, with the number of its request of JSON-RPC; gets each answer, read."""


@dataclass(slots=True)
class _Endpoint:
    """What is known of a server's URL: its session and revision, once it was initialized."""

    headers: dict[str, str] = field(default_factory=dict)
    is_initialized: bool = False
    pays_by_header: bool = False
    """Whether it answers 402 by HTTP itself: then the payment is a header, too."""


class ToolTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends calls of tools over streamable HTTP, answered as HTTP would; the rest as it is.

    `inner` carries the messages. A server is initialized before its first call, and again when it
    has forgotten the session; then the same call is sent again. Of an answer at most `limits` are
    read, and of a stream of events nothing after the result.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | httpx.AsyncBaseTransport,
        limits: Limits | None = None,
    ) -> None:
        self._inner = inner
        self._limits = limits or Limits()
        self._endpoints: dict[httpx.URL, _Endpoint] = {}
        self._number = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; raises `httpx.HTTPError`."""
        assert isinstance(self._inner, httpx.BaseTransport)
        if mcp.TOOL not in request.headers:
            return self._inner.handle_request(request)
        request.read()
        steps = self._exchange(request)
        try:
            message, number = next(steps)
            while True:
                response = self._inner.handle_request(message)
                try:
                    incoming = self._incoming(response, number)
                    for chunk in response.iter_bytes():
                        if incoming.feed(chunk):
                            break
                finally:
                    response.close()
                incoming.end()
                message, number = steps.send((response, incoming))
        except StopIteration as done:
            answer: httpx.Response = done.value
            return answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; raises `httpx.HTTPError`."""
        assert isinstance(self._inner, httpx.AsyncBaseTransport)
        if mcp.TOOL not in request.headers:
            return await self._inner.handle_async_request(request)
        await request.aread()
        steps = self._exchange(request)
        try:
            message, number = next(steps)
            while True:
                response = await self._inner.handle_async_request(message)
                try:
                    incoming = self._incoming(response, number)
                    async for chunk in response.aiter_bytes():
                        if incoming.feed(chunk):
                            break
                finally:
                    await response.aclose()
                incoming.end()
                message, number = steps.send((response, incoming))
        except StopIteration as done:
            answer: httpx.Response = done.value
            return answer

    def close(self) -> None:
        """Close the inner transport."""
        if isinstance(self._inner, httpx.BaseTransport):
            self._inner.close()

    async def aclose(self) -> None:
        """Close the inner transport."""
        if isinstance(self._inner, httpx.AsyncBaseTransport):
            await self._inner.aclose()

    def _incoming(self, response: httpx.Response, number: int | None) -> mcp.Incoming:
        bound(response, self._limits, stopwatch())
        return mcp.Incoming(response.headers.get("content-type", ""), number)

    def _exchange(self, request: httpx.Request) -> _Steps:
        endpoint = self._endpoints.setdefault(request.url, _Endpoint())
        for is_last in (False, True):
            if not endpoint.is_initialized:
                failed = yield from self._initialize(endpoint, request)
                if failed is not None:
                    return failed
            number = self._next()
            params = mcp.params_of(_called(request), request.headers)
            if endpoint.pays_by_header:
                params.pop("_meta", None)
            response, incoming = yield self._post(endpoint, request, number, "tools/call", params)
            has_forgotten = response.status_code == 404 and mcp.SESSION in endpoint.headers
            if is_last or not has_forgotten:
                break
            self._endpoints[request.url] = endpoint = _Endpoint()
        if incoming.response is None or response.is_error:
            if REQUIRED_HEADER in response.headers:
                endpoint.pays_by_header = True
            return _passed_on(response, incoming)
        found = mcp.answered(incoming.response)
        return httpx.Response(found.status, headers=found.headers, content=found.body)

    def _initialize(
        self, endpoint: _Endpoint, request: httpx.Request
    ) -> Generator[tuple[httpx.Request, int | None], _Read, httpx.Response | None]:
        """Begin a session; return the answer if it is refused."""
        number = self._next()
        hello = mcp.hello("x402sim", VERSION)
        response, incoming = yield self._post(endpoint, request, number, "initialize", hello)
        result = (incoming.response or {}).get("result")
        if response.is_error or not isinstance(result, dict):
            if incoming.response is not None and not response.is_error:
                found = mcp.answered(incoming.response)
                return httpx.Response(found.status, headers=found.headers, content=found.body)
            return _passed_on(response, incoming)
        revision = result.get("protocolVersion")
        if not (isinstance(revision, str) and revision.isascii() and revision.isprintable()):
            revision = mcp.REVISIONS[0]
        endpoint.headers[mcp.PROTOCOL] = revision
        session = response.headers.get(mcp.SESSION)
        if session is not None and session.isascii():
            endpoint.headers[mcp.SESSION] = session
        yield self._post(endpoint, request, None, "notifications/initialized", {})
        endpoint.is_initialized = True
        return None

    def _post(
        self,
        endpoint: _Endpoint,
        request: httpx.Request,
        number: int | None,
        method: str,
        params: dict[str, Any],
    ) -> tuple[httpx.Request, int | None]:
        headers = httpx.Headers(request.headers)
        for name in ("content-length", *(() if endpoint.pays_by_header else PROOFS)):
            headers.pop(name, None)
        headers.update({"Accept": mcp.ACCEPTED, **endpoint.headers})
        content = mcp.message(number, method, params)
        sent = httpx.Request(
            "POST", request.url, headers=headers, content=content, extensions=request.extensions
        )
        return sent, number

    def _next(self) -> int:
        self._number += 1
        return self._number


def _passed_on(response: httpx.Response, incoming: mcp.Incoming) -> httpx.Response:
    """Return an answer that holds no response of JSON-RPC as it came; a 2xx becomes a 502.

    Raises `httpx.RemoteProtocolError` if a stream of events ended too soon.
    """
    if response.is_success and incoming.is_events:
        raise httpx.RemoteProtocolError("the stream of events ended before the result of the tool")
    status = 502 if response.is_success else response.status_code
    kept = {
        name: text
        for name, text in response.headers.items()
        if name not in ("content-length", "content-encoding", "transfer-encoding")
    }
    return httpx.Response(status, headers=kept, content=bytes(incoming.body))


# --- a session of an MCP client --------------------------------------------------------------


class McpSession(Protocol):
    """What is used of a session of an MCP client, such as `mcp.ClientSession` or `mcp.Client`."""

    def call_tool(
        self, name: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None
    ) -> Awaitable[Any]:
        """Call a tool, and return its result, a pydantic model."""


class _SessionTransport(httpx.AsyncBaseTransport):
    """Sends calls of tools through a session; keeps the last result, or what was raised."""

    def __init__(self, session: McpSession) -> None:
        self._session = session
        self.result: Any = None
        self.raised: Exception | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        params = mcp.params_of(_called(request), request.headers)
        self.result = self.raised = None
        try:
            self.result = await self._session.call_tool(
                params["name"], params["arguments"], meta=params.get("_meta")
            )
        except Exception as error:  # noqa: BLE001 - raised again when the payment is kept
            self.raised = error
            return httpx.Response(500, json={"error": str(error)[:400]})
        result = self.result.model_dump(by_alias=True, mode="json", exclude_none=True)
        found = mcp.answered({"result": result})
        return httpx.Response(found.status, headers=found.headers, content=found.body)


async def call_paid(
    session: McpSession,
    auth: PaymentAuth,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    server: str,
) -> Any:
    """Call a tool through a session of an MCP client, and pay if it asks for that.

    Returns the result as the session does. `server` is your name for the server: a payment whose
    outcome is not known is sent again, in any session, when the same tool of the server with this
    name is called with the same arguments. Raises what the session raises, and what `PaymentAuth`
    raises.
    """
    transport = _SessionTransport(session)
    async with httpx.AsyncClient(transport=transport, auth=auth, trust_env=False) as http:
        await http.send(tool_request(f"mcp://server/{quote(server, safe='')}", name, arguments))
    if transport.raised is not None:
        raise transport.raised
    return transport.result
