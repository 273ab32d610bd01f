"""The wire between two parts: in one process, yet it takes time.

A hop has a latency each way, drawn from a distribution with a random stream of its own,
so that one hop's luck never changes another's.
"""

from collections.abc import Callable

import httpx
from starlette.types import ASGIApp

from x402sim.clock import Clock
from x402sim.rng import Stream

Latency = Callable[[Stream], float]
"""Draws the seconds that one crossing takes."""


def constant(seconds: float) -> Latency:
    """Return a latency that is always the same."""
    return lambda _: seconds


def lognormal(median_s: float, sigma: float) -> Latency:
    """Return a latency as networks have it: usually near the median, sometimes far above."""
    return lambda stream: median_s * stream.lognormvariate(0, sigma)


def empirical(samples_s: list[float]) -> Latency:
    """Return a latency that draws from measured ones."""
    return lambda stream: stream.choice(samples_s)


class Link(httpx.AsyncBaseTransport):
    """A wire to one ASGI application, as an httpx transport."""

    def __init__(self, app: ASGIApp, clock: Clock, latency: Latency, luck: Stream) -> None:
        self._inside = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._clock = clock
        self._latency = latency
        self._luck = luck

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry a request there and its answer back."""
        await self._clock.sleep(self._latency(self._luck))
        response = await self._inside.handle_async_request(request)
        await response.aread()
        await self._clock.sleep(self._latency(self._luck))
        return response
