"""How is a proof of payment kept from other servers, if the caller's client follows redirects?

httpx copies every header but Authorization, and the body after a 307 or 308, to wherever a server
redirects, without asking the authentication. But it copies the request's extensions too, and its
transport calls the `trace` extension before it sends each request: there the guard refuses. A
transport that knows no `trace` is found out afterwards, by the URL of the answer.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from x402sim.payer.errors import PaymentFailed

MAX_REDIRECTS = 3
Trace = Callable[[str, dict[str, Any]], Any]


class RedirectGuard:
    """Refuses to send one request to another origin, or on more than three redirects.

    `inner` is the caller's own trace.
    """

    def __init__(self, origin: str, inner: Trace | None, *, is_async: bool) -> None:
        self.inner: Trace | None = inner.inner if isinstance(inner, RedirectGuard) else inner
        self._origin, self._is_async, self._sent = origin, is_async, 0

    def __call__(self, event: str, info: dict[str, Any]) -> Coroutine[Any, Any, Any] | None:
        """Check what is about to be sent; raises `PaymentFailed`."""
        if event.endswith("send_request_headers.started"):
            self._check(info["request"])
        if self.inner is not None:
            found: Coroutine[Any, Any, Any] | None = self.inner(event, info)
            return found
        return _nothing() if self._is_async else None

    def _check(self, request: Any) -> None:
        if request.method == b"CONNECT":
            return  # to a proxy, without any of the request's headers
        url, target = request.url, request.url.target.decode("ascii", "replace")
        through_proxy = target.startswith("http://")
        to = httpx.URL(target) if through_proxy else httpx.URL(bytes(url).decode("ascii"))
        require_origin(self._origin, to)
        self._sent += 1
        if self._sent > 1 + MAX_REDIRECTS:
            raise PaymentFailed(
                f"{self._origin} redirected a request with a proof of payment {self._sent - 1} "
                f"times; at most {MAX_REDIRECTS} redirects are followed. What was signed or paid "
                "is kept: the next request sends it again"
            )


def guard(request: httpx.Request, *, is_async: bool) -> None:
    """Let this request be redirected within its origin only."""
    inner = request.extensions.get("trace")
    request.extensions["trace"] = RedirectGuard(origin_of(request.url), inner, is_async=is_async)


def require_origin(origin: str, url: httpx.URL) -> None:
    """Raise `PaymentFailed` if a request with a proof goes, or went, to another origin."""
    if origin_of(url) != origin:
        raise PaymentFailed(
            f"{origin} redirected a request with a proof of payment to {origin_of(url)}, which "
            "must not get it: proofs are sent to the server that they pay. What was signed or "
            "paid is kept: the next request sends it again"
        )


def origin_of(url: httpx.URL) -> str:
    """Return the server that a proof of payment is for, and no other."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


async def _nothing() -> None:
    pass
