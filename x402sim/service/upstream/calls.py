"""Requests to others within limits of size and time, with one exception for each outcome.

A redirect is not followed: it is an answer that makes no sense.
"""

from typing import Any

import httpx

from x402sim.http.bounded import AnswerTooSlow, Limits, receive
from x402sim.protocol.messages import BadMessage, decode

NONSENSE = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer raises if it does not have the shape it should have."""


class Unavailable(Exception):
    """The other side was not reached, or its answer makes no sense; nothing has changed."""


class Declined(Unavailable):
    """It was reached and answered with a JSON-RPC error."""


class OutcomeUnknown(Exception):
    """The facilitator was asked to settle, and its answer is lost: money may have moved."""


async def send(http: httpx.AsyncClient, request: httpx.Request, limits: Limits) -> httpx.Response:
    """Send a request and return the whole answer, if it is within the limits.

    Raises `Unavailable`.
    """
    sending = http.send(request, stream=True, follow_redirects=False)
    try:
        return await receive(sending, limits)
    except AnswerTooSlow as error:
        raise Unavailable(f"{request.url} did not answer within {limits.deadline_s} s") from error
    except httpx.HTTPError as error:
        raise Unavailable(f"{request.url}: {error!r}") from error


async def json_rpc(http: httpx.AsyncClient, request: httpx.Request, limits: Limits) -> Any:
    """Send a request and return the `result` of its JSON-RPC answer; raises `Unavailable`."""
    response = await send(http, request, limits)
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
