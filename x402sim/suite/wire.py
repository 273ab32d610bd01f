"""The HTTP client of a run: TLS, headers and limits."""

import ssl
from collections.abc import Mapping

import httpx

from x402sim.clock import Clock
from x402sim.http.bounded import AnswerTooLarge, AnswerTooSlow, BoundedTransport
from x402sim.suite.setting import Options

KEPT_S = 0.8
"""How long an idle connection is used again: services close theirs after a second, or five."""


class _OneShotAfterErrors(httpx.AsyncBaseTransport):
    """Sends what follows an error over connections of its own, for a moment; nothing twice.

    uvicorn closes a connection as soon as it has answered 500 for an application that raises; a
    request that is sent on it at that moment is not read, or it is: nobody knows whether it paid.
    """

    def __init__(self, kept: httpx.AsyncBaseTransport, fresh: httpx.AsyncBaseTransport) -> None:
        self._kept, self._fresh, self._clock, self._error_s = kept, fresh, Clock(), -KEPT_S

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        is_soon = self._clock.now() - self._error_s < KEPT_S
        response = await (self._fresh if is_soon else self._kept).handle_async_request(request)
        if response.status_code >= 500:
            self._error_s = self._clock.now()
        return response

    async def aclose(self) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()


def client(
    url: str, options: Options, headers: Mapping[str, str] | None = None
) -> httpx.AsyncClient:
    """Return a client for a URL; raises `ValueError` for a CA file that cannot be read."""
    verify = tls(options) if url.startswith("https") else False
    kept, fresh = (
        httpx.AsyncHTTPTransport(verify=verify, trust_env=False, limits=limits)
        for limits in (
            httpx.Limits(keepalive_expiry=KEPT_S),
            httpx.Limits(max_keepalive_connections=0),
        )
    )
    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        transport=BoundedTransport(_OneShotAfterErrors(kept, fresh), options.limits),
        timeout=options.limits.deadline_s,
    )


def tls(options: Options) -> ssl.SSLContext:
    """Return how certificates are verified; raises `ValueError` for an unreadable CA file."""
    context = ssl.create_default_context()
    if options.cacert is not None:
        try:
            context.load_verify_locations(options.cacert)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"--cacert {options.cacert}: expected a file of PEM certificates: {error}"
            ) from error
    if options.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def why(error: httpx.TransportError) -> str:
    """Return why a request was not answered, in the words of the options."""
    match error:
        case AnswerTooSlow():
            return "its answer took longer than --timeout allows"
        case AnswerTooLarge():
            return "its answer is larger than --max-answer-bytes allows"
        case _:
            return f"{type(error).__name__} {error}".strip()
