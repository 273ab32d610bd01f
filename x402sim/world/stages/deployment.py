"""A service at a URL, in real time.

If `x402sim serve` serves it, its control API says what a story may do there, its network and
its time; of any other service only the endpoints are known.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.events import Part
from x402sim.http.bounded import BoundedTransport, Limits
from x402sim.http.exchange import OverTransport
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.rng import Rng
from x402sim.spec.needs import Need
from x402sim.world.control.client import WORLD_ANSWER_BYTES, ControlClient, ControlError
from x402sim.world.control.messages import WorldInfo, network_of
from x402sim.world.stages.stage import Door, Stage
from x402sim.world.transport.link import linking
from x402sim.world.where import Deployment
from x402sim.world.world import World

PAYER_KEY = "X402SIM_PAYER_KEY"
"""The environment variable with the key of a funded payer, if the URL cannot fund payers."""
TIMEOUT_S = 30.0


def left_ahead(url: str, seconds: float) -> str:
    """Return what it means that the clock of a server is left so far ahead, and what to do."""
    return (
        f"the clock of {url} is left {seconds:.0f} s ahead of real time, because time was advanced "
        "there. What a payer with a right clock signs has expired there, and is refused. To give "
        'the time back, POST {"clock": true} to /_sim/reset of its world, or restart it'
    )


@asynccontextmanager
async def at_url(world: World, where: Deployment) -> AsyncIterator[Stage]:
    """Connect to the service; raises `ConnectionError` if it does not answer."""
    clock = SkewedClock(Clock())
    root = where.url.rstrip("/")
    transport = _bounded(replace(where.limits, max_answer_bytes=WORLD_ANSWER_BYTES))
    async with httpx.AsyncClient(
        base_url=root + "/_sim", timeout=TIMEOUT_S, transport=transport
    ) as http:
        control = ControlClient(http)
        who = await _meet(control, clock, where.url)
        # names of needs that this version lacks are ignored
        offers = frozenset(need for need in Need if who is not None and need in who.offers)
        met_s = clock.skew_s

        def door() -> OverTransport:
            return OverTransport(_bounded(where.limits))

        doors: dict[Part, Door] = {"service": (door, where.url)}
        if who is not None:
            doors["facilitator"] = door, root + "/facilitator"
        key = where.payer_key or os.environ.get(PAYER_KEY)
        funded = Wallet(key) if key and Need.FUNDS not in offers else None
        with closing(Journal(file=world.journal_file)) as journal:
            yield Stage(
                options=world,
                clock=clock,
                rng=Rng(None),
                journal=journal,
                link=linking(clock, journal),
                network=network_of(who) if who else world.networks[0],
                doors=doors,
                offers=offers | {Need.FUNDS} if funded else offers,
                control=control if who else None,
                advance=control.advancing(clock),
                ahead_s=lambda: clock.skew_s if clock.skew_s > met_s else 0.0,
                funded=funded,
            )


def _bounded(limits: Limits) -> BoundedTransport:
    """Return a transport over TCP whose answers are within the limits."""
    return BoundedTransport(httpx.AsyncHTTPTransport(), limits)


async def _meet(control: ControlClient, clock: SkewedClock, url: str) -> WorldInfo | None:
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
