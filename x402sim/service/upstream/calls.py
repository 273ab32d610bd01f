"""How the service calls others: with a time limit, and with one exception for each outcome."""

import asyncio
from typing import Any

import httpx

from x402sim.protocol.messages import BadMessage, decode

NONSENSE = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer raises if it does not have the shape it should have."""


class Unavailable(Exception):
    """The other side was not reached, or its answer makes no sense; nothing has changed."""


class Declined(Unavailable):
    """It was reached and answered with a JSON-RPC error."""


class OutcomeUnknown(Exception):
    """The facilitator was asked to settle, and its answer is lost: money may have moved."""


async def send(http: httpx.AsyncClient, request: httpx.Request, timeout_s: float) -> httpx.Response:
    """Send a request and return the whole answer; raises `Unavailable`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await http.send(request)
    except TimeoutError as error:
        raise Unavailable(f"{request.url} did not answer within {timeout_s} s") from error
    except httpx.HTTPError as error:
        raise Unavailable(f"{request.url}: {error!r}") from error


async def json_rpc(http: httpx.AsyncClient, request: httpx.Request, timeout_s: float) -> Any:
    """Send a request and return the `result` of its JSON-RPC answer; raises `Unavailable`."""
    response = await send(http, request, timeout_s)
    try:
        body = decode(response.content, Any)
    except BadMessage as error:
        raise Unavailable(f"{request.url} did not answer JSON: {error}") from error
    if not isinstance(body, dict) or "jsonrpc" not in body or "result" not in body:
        is_error = isinstance(body, dict) and "error" in body
        raise (Declined if is_error else Unavailable)(
            f"{request.url} answered {response.text[:200]}"
        )
    return body["result"]
