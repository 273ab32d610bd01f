"""A service at a URL, in real time.

If `x402sim serve` serves it, its control API says what a story may do there, its network and
its time; of any other service only the endpoints are known.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.events import Part
from x402sim.http.bounded import BoundedTransport, Limits
from x402sim.http.exchange import OverTransport
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.rng import Rng
from x402sim.spec.needs import Need
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.control.client import WORLD_ANSWER_BYTES, ControlClient, ControlError
from x402sim.world.control.messages import Who, network_of
from x402sim.world.stages.stage import Door, OpenStage
from x402sim.world.transport.link import Links

PAYER_KEY = "X402SIM_PAYER_KEY"
"""The environment variable with the key of a funded payer, if the URL cannot fund payers."""
MAX_PORT = 65_535
TIMEOUT_S = 30.0


def left_ahead(url: str, seconds: float) -> str:
    """Return what it means that the clock of a server is left so far ahead, and what to do."""
    return (
        f"the clock of {url} is left {seconds:.0f} s ahead of real time, because time was advanced "
        "there. What a payer with a right clock signs has expired there, and is refused. To give "
        'the time back, POST {"clock": true} to /_sim/reset of its world, or restart it'
    )


@dataclass(frozen=True, slots=True)
class Deployment:
    """The service at `url`; raises `ValueError` for an invalid URL.

    `payer_key` is the private key of a funded payer, by default that in X402SIM_PAYER_KEY;
    it pays where the control API cannot fund payers, or where there is none.
    """

    url: str
    payer_key: str | None = field(default=None, repr=False)
    limits: Limits = field(default=Limits(deadline_s=120.0), repr=False)
    """The limits of the answers of service and facilitator; payers give up after 90 s."""

    def __post_init__(self) -> None:
        wanted = f"http://HOST:PORT, with a port up to {MAX_PORT}"
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as wrong:
            raise ValueError(f"a URL is {wanted}, not {self.url!r}: {wrong}") from None
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > MAX_PORT:
            raise ValueError(f"a URL is {wanted}, not {self.url!r}")

    builds_world = False
    needs_virtual_time = False

    @property
    def name(self) -> str:
        """The URL."""
        return self.url

    @asynccontextmanager
    async def open(self, recipe: Recipe) -> AsyncIterator[OpenStage]:
        """Connect to the service; raises `ConnectionError` if it does not answer."""
        clock = SkewedClock(Clock())
        root = self.url.rstrip("/")
        transport = _bounded(replace(self.limits, max_answer_bytes=WORLD_ANSWER_BYTES))
        async with httpx.AsyncClient(
            base_url=root + "/_sim", timeout=TIMEOUT_S, transport=transport
        ) as http:
            control = ControlClient(http)
            who = await _meet(control, clock, self.url)
            # names of needs that this version lacks are ignored
            offers = frozenset(need for need in Need if who is not None and need in who.offers)
            met_s = clock.skew_s
            doors: dict[Part, Door] = {"service": (self._transport, self.url)}
            if who is not None:
                doors["facilitator"] = self._transport, root + "/facilitator"
            key = self.payer_key or os.environ.get(PAYER_KEY)
            funded = Wallet(key) if key and Need.FUNDS not in offers else None
            with closing(Journal(file=recipe.journal)) as journal:
                yield OpenStage(
                    clock=clock,
                    rng=Rng(None),
                    links=Links(clock, journal),
                    network=network_of(who) if who else recipe.network,
                    doors=doors,
                    offers=offers | {Need.FUNDS} if funded else offers,
                    latency_to=recipe.latency_to,
                    control=control if who else None,
                    advance=control.advancing(clock),
                    ahead_s=lambda: clock.skew_s if clock.skew_s > met_s else 0.0,
                    funded=funded,
                )

    def _transport(self) -> OverTransport:
        return OverTransport(_bounded(self.limits))


def _bounded(limits: Limits) -> BoundedTransport:
    """Return a transport over TCP whose answers are within the limits."""
    return BoundedTransport(httpx.AsyncHTTPTransport(), limits)


async def _meet(control: ControlClient, clock: SkewedClock, url: str) -> Who | None:
    """Read the control API's description and set our clock by it; None if there is no such API."""
    try:
        await control.who()
        asked_s = Clock().now()  # ask again: this time the connection is open already
        who = await control.who()
    except ControlError as error:
        if error.answer is None:
            raise ConnectionError(f"no answer from {url}: {error.__cause__}") from error
        return None
    clock.skew_s = who.now / 1000 - (asked_s + Clock().now()) / 2
    return who
