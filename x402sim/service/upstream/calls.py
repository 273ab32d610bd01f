"""Requests to other parties within limits of size and time, with one exception for each outcome.

A redirect is not followed: it counts as nonsense.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import httpx

from x402sim.http.bounded import Limits, require_size
from x402sim.http.exchange import Headers, Request, Response, Transport, Url, within
from x402sim.protocol.messages import BadMessage, decode

Read = TypeVar("Read")
REVERTED = 3
"""The code of JSON-RPC for a call ended by a contract."""


class Unavailable(Exception):
    """The other side was not reached, or answered nonsense; nothing has changed."""


class JsonRpcError(Unavailable):
    """The node answered with a JSON-RPC error: `error`."""

    def __init__(self, text: str, error: Any) -> None:
        super().__init__(text)
        self.error = error

    @property
    def is_revert(self) -> bool:
        """Whether a contract ended the call, and not a busy node or a limit of requests.

        Most nodes answer code 3, older nodes another code and "revert" in the message.
        """
        error = self.error if isinstance(self.error, dict) else {}
        return error.get("code") == REVERTED or "revert" in str(error.get("message")).lower()


class OutcomeUnknown(Exception):
    """The request to settle was sent, and the answer is lost: money may have moved."""


async def post(to: Transport, url: Url, body: bytes, headers: Headers, limits: Limits) -> Response:
    """Send a body and return the whole answer within the limits; raises `Unavailable`."""
    size = b"%d" % len(body)
    sent = [(b"host", url.netloc), *headers, (b"content-length", size)]
    return await send(to, Request("POST", url, sent, body), limits)


async def send(to: Transport, request: Request, limits: Limits) -> Response:
    """Send a request and return the whole answer, as `post` does."""
    request.extensions["max_answer_bytes"] = limits.max_answer_bytes
    try:
        response = await within(limits.deadline_s, to.send(request))
        require_size(len(response.content), limits)
    except TimeoutError as error:
        raise Unavailable(f"{request.url} did not answer within {limits.deadline_s} s") from error
    except httpx.HTTPError as error:
        raise Unavailable(f"{request.url}: {error!r}") from error
    return response


def result_in(response: Response, url: Url, who: str, read: Callable[[Any], Read]) -> Read:
    """Return the `result` of a JSON-RPC answer, read by `read`.

    Raises `Unavailable`, also for a result of another shape.
    """
    try:
        body = decode(response.content, Any)
    except BadMessage as error:
        raise Unavailable(f"{url} did not answer JSON: {error}") from error
    if not isinstance(body, dict) or "jsonrpc" not in body or "result" not in body:
        text = f"{url} answered {response.text[:200]}"
        is_error = isinstance(body, dict) and "error" in body
        raise JsonRpcError(text, body["error"]) if is_error else Unavailable(text)
    try:
        return read(body["result"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Unavailable(f"{who}'s answer makes no sense: {error!r}") from error
