"""The HTTP client of a run: TLS, headers, limits and pace.

A 429, and a 503 with Retry-After, say "not now": the request is sent again, after the time that
the answer asks for. Requests of one run share one pace, because the limit is theirs together.
"""

import ssl
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from x402sim.clock import Clock
from x402sim.http.bounded import AnswerTooLarge, AnswerTooSlow, BoundedTransport, Limits

PATIENCE_S = 120.0
"""How long one request waits in all until a target takes it."""
FIRST_WAIT_S = 1.0
"""How long to wait for a target that does not say how long; twice as long each time."""
KEPT_S = 0.8
"""How long an idle connection is used again: services close theirs after a second, or five."""
TOO_MANY, UNAVAILABLE = 429, 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """The user's options for all requests; `headers` are sent to the target only."""

    headers: tuple[tuple[str, str], ...] = ()
    cacert: Path | None = None
    insecure: bool = False
    rate: float | None = None
    """The most requests in a second."""
    limits: Limits = field(default_factory=Limits)
    """The limits of the target's answers; a settlement waits for a block."""


@dataclass(slots=True)
class Pace:
    """How fast a run may send: what was sent, and when the next request may be."""

    rate: float | None = None
    requests: int = 0
    free_at_s: float = 0.0
    waited_s: float = 0.0

    async def turn(self, clock: Clock) -> None:
        """Return when the next request may be sent."""
        while (wait_s := self.free_at_s - clock.now()) > 0:
            self.waited_s += wait_s
            await clock.sleep(wait_s)
        if self.rate is not None:
            self.free_at_s = clock.now() + 1 / self.rate
        self.requests += 1

    def hold(self, clock: Clock, seconds: float) -> None:
        """Send nothing for some seconds."""
        self.free_at_s = max(self.free_at_s, clock.now() + seconds)


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


def client(url: str, wire: Wire, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    """Return a client for a URL; raises `ValueError` for a CA file that cannot be read."""
    verify = tls(wire) if url.startswith("https") else False
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
        transport=BoundedTransport(_OneShotAfterErrors(kept, fresh), wire.limits),
        timeout=wire.limits.deadline_s,
    )


def tls(wire: Wire) -> ssl.SSLContext:
    """Return how certificates are verified; raises `ValueError` for an unreadable CA file."""
    context = ssl.create_default_context()
    if wire.cacert is not None:
        try:
            context.load_verify_locations(wire.cacert)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"--cacert {wire.cacert}: expected a file of PEM certificates: {error}"
            ) from error
    if wire.insecure:
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


def wait_s(
    response: httpx.Response, *, before: int, now_s: float, may_retry_503: bool
) -> float | None:
    """Return how long an answer asks to wait before the request is sent again; None if it does not.

    `before` counts the times it has asked already. A 503 is an answer of the service where the
    world has faults, and is not repeated there.
    """
    told = response.headers.get("retry-after")
    is_later = response.status_code == UNAVAILABLE and told is not None and may_retry_503
    if response.status_code != TOO_MANY and not is_later:
        return None
    return max(_seconds(told, now_s) or FIRST_WAIT_S * 2.0**before, 0.05)


def _seconds(told: str | None, now_s: float) -> float | None:
    """Return the seconds of a Retry-After, which is a number or a date; None if it is neither."""
    if told is None:
        return None
    if told.strip().isdecimal():
        return float(told)
    try:
        return parsedate_to_datetime(told).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
