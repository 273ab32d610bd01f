"""What a request of a payer keeps to on its way: its server, and the deadline of its exchange.

httpx copies every header but Authorization, and the body after a 307 or 308, to wherever a server
redirects, without asking the authentication. But it copies the request's extensions too, and its
transport calls the `trace` extension before it sends each request: there the guard refuses. A
transport that knows no `trace` is found out afterwards, by the URL of the answer.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import httpx

from x402sim.payer.core import PaymentFailed
from x402sim.payer.deadline import Deadline

MAX_REDIRECTS = 3
Trace = Callable[[str, dict[str, Any]], Any]


class Guard:
    """Watches one request on its way, redirects included.

    With an `origin`, it refuses to send it to another one, or on more than three redirects. With a
    `deadline`, which is for a thread, every timeout ends there, until `release`. `inner` is the
    caller's own trace.
    """

    def __init__(self, inner: Trace | None, origin: str | None, deadline: Deadline | None) -> None:
        self._inner, self._origin, self._deadline = inner, origin, deadline
        self._sent = 0
        self._sending: Any = None

    def __call__(self, event: str, info: dict[str, Any]) -> Coroutine[Any, Any, Any] | None:
        """Check what is about to be sent; raises `PaymentFailed`."""
        if event.endswith("send_request_headers.started"):
            if self._origin is not None:
                self._check(self._origin, info["request"])
            if self._deadline is not None:  # from here on httpcore reads the request's timeouts
                request = self._sending = info["request"]
                timeouts = request.extensions.get("timeout", {})
                limited = {
                    each: self._deadline.timeout(timeouts.get(each)) for each in ("read", "write")
                }
                request.extensions = request.extensions | {"timeout": limited}
        elif self._deadline is not None and "timeout" in info:  # of a new connection
            info["timeout"] = self._deadline.timeout(info["timeout"])
        if self._inner is not None:
            found: Coroutine[Any, Any, Any] | None = self._inner(event, info)
            return found
        return _nothing() if self._deadline is None else None

    def release(self, extensions: dict[str, Any]) -> None:
        """Leave the rest, the body of the answer, to the timeouts of the caller's client."""
        if self._sending is not None:
            self._sending.extensions = extensions

    def _check(self, origin: str, request: Any) -> None:
        if request.method == b"CONNECT":
            return  # to a proxy, without any of the request's headers
        url, target = request.url, request.url.target.decode("ascii", "replace")
        through_proxy = target.startswith("http://")
        to = httpx.URL(target) if through_proxy else httpx.URL(bytes(url).decode("ascii"))
        require_origin(origin, to)
        self._sent += 1
        if self._sent > 1 + MAX_REDIRECTS:
            raise PaymentFailed(
                f"{origin} redirected a request with a proof of payment {self._sent - 1} "
                f"times; at most {MAX_REDIRECTS} redirects are followed. What was signed or paid "
                "is kept: the next request sends it again"
            )


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
