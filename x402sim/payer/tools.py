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
from x402sim.protocol import mcp
from x402sim.protocol.messages import decode, encode
from x402sim.protocol.x402 import PROOF_HEADERS
from x402sim.version import VERSION


def tool_request(
    url: str | httpx.URL,
    name: str,
    arguments: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> httpx.Request:
    """Return a tool call as a request, for a client with a `ToolTransport`."""
    content = encode(mcp.Call(name, dict(arguments or {})))
    named = {**(headers or {}), mcp.TOOL: mcp.header_of(name), "Content-Type": "application/json"}
    return httpx.Request("POST", url, headers=named, content=content)


def _called(request: httpx.Request) -> mcp.Call:
    if request.method != "POST":  # the client follows a redirect by itself
        raise httpx.RemoteProtocolError(f"a call of a tool is redirected to {request.url}")
    call: mcp.Call = decode(request.content, mcp.Call)
    return call


# --- streamable HTTP -------------------------------------------------------------------------

_PAID_SESSION = "the server asks for a payment to initialize; only calls of tools are paid"
"""No payment was shown to `initialize`, so a 402 refuses none."""
_Read = tuple[httpx.Response, mcp.Incoming]
_Steps = Generator[tuple[httpx.Request, int | None], _Read, httpx.Response]
"""Yields a message to send, with its JSON-RPC id; gets the answer, read."""


@dataclass(slots=True)
class _Endpoint:
    """The known state of a server's URL: its session and revision, once initialized."""

    headers: dict[str, str] = field(default_factory=dict)
    is_initialized: bool = False
    pays_by_header: bool = False
    """Whether the server answers 402 by HTTP itself: then the payment is a header, too."""


class ToolTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Sends tool calls over streamable HTTP, with HTTP answers; passes other requests on.

    `inner` carries the messages. A server is initialized before its first call, and again when the
    server has forgotten the session; then the same call is sent again. At most `limits` of an
    answer are read, and nothing of an event stream after the result.
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
                if failed is not None and failed.status_code == 402:
                    return httpx.Response(502, json={"error": _PAID_SESSION})
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
            endpoint.pays_by_header |= response.status_code == 402
            return _passed_on(response, incoming)
        found = mcp.answered(incoming.response)
        endpoint.pays_by_header &= found.status != 402
        return httpx.Response(found.status, headers=found.headers, content=found.body)

    def _initialize(
        self, endpoint: _Endpoint, request: httpx.Request
    ) -> Generator[tuple[httpx.Request, int | None], _Read, httpx.Response | None]:
        """Begin a session; return the answer if the server refuses, else None."""
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
        for name in ("content-length", *(() if endpoint.pays_by_header else PROOF_HEADERS)):
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
    """Return an answer without a JSON-RPC response unchanged; a 2xx becomes a 502.

    Raises `httpx.RemoteProtocolError` if an event stream ended before the result.
    """
    if response.is_success and incoming.is_events:
        why = incoming.unread and f"; a message cannot be read: {incoming.unread}"
        what = f"the stream of events ended before the result of the tool{why}"
        raise httpx.RemoteProtocolError(what)
    status = 502 if response.is_success else response.status_code
    kept = {
        name: text
        for name, text in response.headers.items()
        if name not in ("content-length", "content-encoding", "transfer-encoding")
    }
    return httpx.Response(status, headers=kept, content=bytes(incoming.body))


# --- a session of an MCP client --------------------------------------------------------------


class McpSession(Protocol):
    """The used part of an MCP client's session, such as `mcp.ClientSession` or `mcp.Client`."""

    def call_tool(
        self, name: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None
    ) -> Awaitable[Any]:
        """Call a tool, and return its result, a pydantic model."""


class _SessionTransport(httpx.AsyncBaseTransport):
    """Sends tool calls through a session; keeps the last result, or the raised error."""

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
    """Call a tool through a session of an MCP client, and pay if the tool requires a payment.

    Returns the result as the session does. `server` is your name for the server: a payment with an
    unknown outcome is sent again, in any session, for a call of the same tool with the same
    arguments on the server of this name. Raises the errors of the session, and of
    `PaymentAuth`; `ValueError` for a `PaymentAuth` with `approve`.
    """
    if auth.signer.approve_base:
        raise ValueError(
            "call_paid reaches no node, and a permit needs one: use a PaymentAuth without `approve`"
        )
    transport = _SessionTransport(session)
    async with httpx.AsyncClient(transport=transport, auth=auth, trust_env=False) as http:
        await http.send(tool_request(f"mcp://server/{quote(server, safe='')}", name, arguments))
    if transport.raised is not None:
        raise transport.raised
    return transport.result
