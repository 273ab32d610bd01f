"""A service at a URL, in real time.

If it is a world of `x402sim serve`, its control plane says what a story may do there, which
network it is on and what time it is; of any other service only the endpoints are known.
"""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.networks import Network
from x402sim.rng import Rng
from x402sim.spec.needs import Need
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.parse import DEFAULT_CHAIN
from x402sim.world.loop import run_anywhere
from x402sim.world.stages.stage import OpenStage, Plan
from x402sim.world.transport.latency import constant
from x402sim.world.transport.link import Wires

T = TypeVar("T")
PAYER_KEY = "X402SIM_PAYER_KEY"
"""The environment variable with the key of a funded payer, for a URL that can fund none."""
MAX_PORT = 65_535
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """The service at `url`; raises `ValueError` if that is no URL.

    `payer_key` is the private key of a funded payer, by default that in X402SIM_PAYER_KEY;
    it pays where the control plane cannot fund payers, or where there is none.
    """

    url: str
    payer_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        wanted = f"http://HOST:PORT, with a port up to {MAX_PORT}"
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as wrong:
            raise ValueError(f"a URL is {wanted}, not {self.url!r}: {wrong}") from None
        if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > MAX_PORT:
            raise ValueError(f"a URL is {wanted}, not {self.url!r}")

    @property
    def name(self) -> str:
        """The URL."""
        return self.url

    def require(self, chain: ChainBackend) -> None:
        """Raise `ValueError` if a chain was chosen: a deployment has one."""
        if chain != DEFAULT_CHAIN:
            raise ValueError(
                f"chain {chain.name} cannot be combined with {self.url}, which has its own"
            )

    def run(self, chain: ChainBackend, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `main()` to its end in real time."""
        return run_anywhere(main)

    @asynccontextmanager
    async def open(self, plan: Plan) -> AsyncIterator[OpenStage]:
        """Connect to the service; raises `ConnectionError` if nobody answers there."""
        clock = SkewedClock(Clock())
        root = self.url.rstrip("/")
        async with httpx.AsyncClient(base_url=root + "/_sim", timeout=TIMEOUT_S) as control:
            met = await _meet(control, clock, self.url)
            offers = _offers(met)
            funded = None if Need.FUNDS in offers else self._funded()
            yield OpenStage(
                clock=clock,
                rng=Rng(None),
                wires=Wires(clock, Journal()),
                network=_network(met) if met else None,
                to_service=httpx.AsyncHTTPTransport,
                base_url=self.url,
                offers=offers | {Need.FUNDS} if funded else offers,
                latency=plan.latency.get("service", constant(0)),
                control=control if met else None,
                advance=_advancing(control, clock),
                to_facilitator=httpx.AsyncHTTPTransport if met else None,
                facilitator_url=root + "/facilitator",
                funded=funded,
                remote_journal=_journal_of(control) if met else None,
            )

    def _funded(self) -> Wallet | None:
        key = self.payer_key or os.environ.get(PAYER_KEY)
        return Wallet(key) if key else None


async def _meet(control: httpx.AsyncClient, clock: SkewedClock, url: str) -> dict[str, Any]:
    """Ask the control plane who is there, and set our clock by it; empty if there is none."""
    try:
        answer = await control.get("who")
    except httpx.TransportError as error:
        raise ConnectionError(f"nobody answers at {url}: {error}") from error
    if answer.status_code != 200 or "now" not in answer.text:
        return {}
    asked_s = Clock().now()  # again, as by now there is a connection
    met: dict[str, Any] = (await control.get("who")).json()
    clock.skew_s = met["now"] / 1000 - (asked_s + Clock().now()) / 2
    return met


def _offers(met: Mapping[str, Any]) -> frozenset[Need]:
    """Return what a world offers of what we know."""
    offered = met.get("offers", ())
    return frozenset(need for need in Need if need in offered)


def _network(met: Mapping[str, Any]) -> Network:
    """Return the network a world is on, as its control plane says."""
    token = met["token"]
    return Network(
        name=met["network"],
        chain_id=token["chainId"],
        asset=parse_address(met["asset"]),
        token_name=token["name"],
        token_symbol=token["symbol"],
        token_version=token["version"],
        decimals=token["decimals"],
    )


def _advancing(
    control: httpx.AsyncClient, clock: SkewedClock
) -> Callable[[float], Coroutine[Any, Any, None]]:
    """Return what advances the clock of the world, and ours with it."""

    async def advance(seconds: float) -> None:
        answer = await control.post("clock/advance", json={"seconds": seconds})
        answer.raise_for_status()
        clock.skew_s += seconds

    return advance


def _journal_of(control: httpx.AsyncClient) -> Callable[[int], Coroutine[Any, Any, Journal]]:
    """Return what reads the world's own journal, from an event of that number on."""

    async def journal(since: int) -> Journal:
        return Journal.load((await control.get("/journal", params={"since": str(since)})).content)

    return journal
