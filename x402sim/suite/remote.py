"""A target behind a URL, in real time, with as much of its world as one is given."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from x402sim.clock import Clock, SkewedClock
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address
from x402sim.rng import Rng
from x402sim.suite.setting import Setting
from x402sim.suite.target import Target

TIMEOUT_S = 90.0
"""How long the target may take for an answer: a settlement waits for a block."""
CLOCKS_AGREE_S = 30.0


class Unreachable(Exception):
    """The target, or the world it is said to live in, does not answer, or is not what it
    was said to be.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What the user gave: where the target is, and what may be used to judge it.

    Without a seed, wallets and nonces are drawn anew for each run, as a real chain needs.
    """

    base_url: str
    target: Target
    world_url: str | None = None
    rpc_url: str | None = None
    payer: Wallet | None = None
    budget_base: int = 0
    pay_to: Address | None = None
    allow_mainnet: bool = False
    seed: int | None = None
    rerun: str = ""


@asynccontextmanager
async def reach(access: Access) -> AsyncIterator[Setting]:
    """Reach the target and its world; raises `Unreachable` saying what did not answer."""
    async with AsyncExitStack() as stack:

        async def client(url: str) -> httpx.AsyncClient:
            http = httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, trust_env=False)
            return await stack.enter_async_context(http)

        http = await client(access.base_url)
        await _knock(http, access)
        clock = SkewedClock(Clock())
        control = runs_target = None
        rpc_url = access.rpc_url
        if access.world_url is not None:
            control_url = _control_url(access.world_url)
            control = await client(control_url)
            runs_target = await _meet(control, clock, access)
            rpc_url = rpc_url or control_url.removesuffix("/_sim") + "/rpc"

        async def advance(seconds: float) -> None:
            assert control is not None
            answer = await control.post("/clock/advance", json={"seconds": seconds})
            answer.raise_for_status()
            clock.skew_s += seconds

        yield Setting(
            target=access.target,
            http=http,
            clock=clock,
            rng=Rng(access.seed),
            control=control,
            rpc=await client(rpc_url) if rpc_url else None,
            payer=access.payer,
            budget_base=access.budget_base,
            pay_to=access.pay_to,
            advance=advance if runs_target else None,
            allow_mainnet=access.allow_mainnet,
            rerun=access.rerun,
        )


def _control_url(world_url: str) -> str:
    """Return the control plane's URL, whether the world's own or its was given."""
    url = world_url.rstrip("/")
    return url if url.endswith("/_sim") else url + "/_sim"


async def _knock(http: httpx.AsyncClient, access: Access) -> None:
    endpoint = access.target.protected
    try:
        await http.request(endpoint.method, endpoint.path, json=endpoint.bodies[0])
    except httpx.TransportError as error:
        said = f"{type(error).__name__} {error}".strip()
        raise Unreachable(f"nobody answers at {access.base_url}: {said}") from error


async def _meet(control: httpx.AsyncClient, clock: SkewedClock, access: Access) -> bool:
    """Set our clock by the world's; tell whether that world runs the target itself."""
    try:
        answer = await control.get("/who")
        who = answer.json()
        now_s, has_service = who["now"] / 1000, who["service"]
    except (httpx.TransportError, ValueError, LookupError, TypeError) as error:
        url = access.world_url
        raise Unreachable(f"{url} is no world of x402sim serve: {error!r}") from error
    here = httpx.URL(access.base_url)
    runs_target = bool(has_service) and (here.host, here.port) == (
        control.base_url.host,
        control.base_url.port,
    )
    clock.skew_s = now_s - Clock().now()
    if not runs_target and abs(clock.skew_s) > CLOCKS_AGREE_S:
        raise Unreachable(
            f"the world's clock is {clock.skew_s:.0f} s away from this machine's, which the "
            "target follows; start the world anew"
        )
    return runs_target
