"""Where a story is played: in one process, over TCP, or against somebody's URL.

In process and over TCP the whole world is ours and time is virtual; the payers' requests
to the service go straight to it, or through real sockets and a real HTTP server. Behind
a URL time is real, and only a world that shows its control plane can be turned.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from x402sim.clock import Clock, SkewedClock
from x402sim.events import Part
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.rng import Rng
from x402sim.world.assembly import chains
from x402sim.world.assembly.parts import Parts, Recipe, build
from x402sim.world.loop import VirtualLoop, run_anywhere, run_virtual
from x402sim.world.server.control import control_app
from x402sim.world.server.server import Listen, listening_socket, running
from x402sim.world.server.server import Protocol as HttpProtocol
from x402sim.world.story.scenario import NEEDS
from x402sim.world.transport.faults import ABORT
from x402sim.world.transport.link import Asgi, Latency, Link, Wires, constant

START_S = 1_800_000_000
"""When every simulation begins, in Unix seconds: 15 January 2027, 08:00 UTC."""
PAYER_TIMEOUT_S = 90.0
"""How long a payer waits for an answer; longer than a service waits for its facilitator."""
PAYER_KEY = "X402SIM_PAYER_KEY"
"""The environment variable with the key of a funded payer, for a URL without control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a world is to be: its recipe, and its latencies by hop."""

    recipe: Recipe
    latency: dict[str, Latency] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A place to play on. `control` is the control plane, `parts` is all of it, if it is ours."""

    clock: Clock
    rng: Rng
    wires: Wires
    to_service: Callable[[], httpx.AsyncBaseTransport]
    base_url: str
    can: frozenset[str]
    latency: Latency
    control: httpx.AsyncClient | None
    parts: Parts | None = None
    to_facilitator: Callable[[], httpx.AsyncBaseTransport] | None = None
    facilitator_url: str = ""

    def client(self, caller: str, to: Part = "service") -> httpx.AsyncClient:
        """Return a caller's wire to the service or the facilitator."""
        make, url = self.to_service, self.base_url
        if to == "facilitator":
            assert self.to_facilitator is not None
            make, url = self.to_facilitator, self.facilitator_url
        luck = self.rng.stream(f"wire from {caller} to {to}")
        link = Link(self.wires, caller, to, make(), self.latency, luck)
        return httpx.AsyncClient(transport=link, base_url=url, timeout=PAYER_TIMEOUT_S)

    def wallet(self, name: str) -> Wallet:
        """Return the wallet of the payer of this name."""
        if self.control is None and PAYER_KEY in os.environ:
            return Wallet(os.environ[PAYER_KEY])
        nonces = self.rng.stream(f"nonces of {name}")
        return Wallet(self.rng.secret(f"payer {name}"), nonces=lambda: nonces.randbytes(32))

    async def advance(self, seconds: float) -> None:
        """Let time go by: virtually, or by turning the world's clock."""
        if self.parts is not None:
            await self.clock.sleep(seconds)
            return
        assert self.control is not None
        assert isinstance(self.clock, SkewedClock)
        answer = await self.control.post("clock/advance", json={"seconds": seconds})
        answer.raise_for_status()
        self.clock.skew_s += seconds


class Opener(Protocol):
    """Opens a stage."""

    def __call__(self, plan: Plan) -> Any:
        """Return an async context manager that gives the stage."""


@asynccontextmanager
async def in_process(plan: Plan) -> AsyncIterator[Stage]:
    """Open a world of our own in this process; must run on a `VirtualLoop`."""
    async with _world(plan) as (parts, wires, rng):
        yield _stage(plan, parts, wires, rng, lambda: Asgi(parts.service_app), "http://service")


@asynccontextmanager
async def over_tcp(plan: Plan) -> AsyncIterator[Stage]:
    """Open a world of our own whose service listens on a free port of this machine."""
    async with _world(plan) as (parts, wires, rng):
        loop = asyncio.get_running_loop()
        sock = listening_socket(Listen(port=0))
        assert isinstance(loop, VirtualLoop)
        config = Config(
            _at_a_socket(parts.service_app, loop),
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
        )
        state = ServerState()
        server = await loop.create_server(lambda: HttpProtocol(config, state, {}), sock=sock)
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        try:
            yield _stage(plan, parts, wires, rng, _Socket, url)
        finally:
            server.close()
            await server.wait_closed()


class _Socket(httpx.AsyncBaseTransport):
    """A real socket to a server on the same virtual loop; a connection a request."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        self._inner = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        name = request.headers[_CROSSING] = str(request.extensions["exchange"])
        loop.crossings[name] = True
        try:
            response = await self._inner.handle_async_request(request)
            await response.aread()
            await response.aclose()
        finally:
            del loop.crossings[name]
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


_CROSSING = "x402sim-crossing"


def _at_a_socket(app: ASGIApp, loop: VirtualLoop) -> ASGIApp:
    """Return `app`, telling the loop when a request has arrived and when an answer leaves."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        name, length = headers.get(_CROSSING, ""), headers.get("content-length", "0")

        def tell(is_moving: bool) -> None:
            if name in loop.crossings:  # or the caller has given up
                loop.crossings[name] = is_moving

        async def receive_and_tell() -> Message:
            message = await receive()
            tell(bool(message.get("more_body")))
            return message

        async def send_and_tell(message: Message) -> None:
            tell(True)
            await send(message)

        async def abort_and_tell(how: str) -> None:
            tell(True)
            await scope[ABORT](how)

        tell(length != "0")
        await app({**scope, ABORT: abort_and_tell}, receive_and_tell, send_and_tell)

    return served


@asynccontextmanager
async def _world(plan: Plan) -> AsyncIterator[tuple[Parts, Wires, Rng]]:
    """Build a world, keep it going, and close it; its time is the loop's if that is virtual."""
    loop = asyncio.get_running_loop()
    rng = Rng(None if plan.recipe.remembers else plan.recipe.seed)
    if isinstance(loop, VirtualLoop):
        clock = Clock(lambda: START_S + loop.time())
        wires = Wires(clock, Journal(), loop.turn)
    else:
        clock = Clock()
        wires = Wires(clock, Journal())

    def link(name: Part, app: ASGIApp) -> Link:
        latency = plan.latency.get(name, constant(0))
        return Link(wires, "service", name, Asgi(app), latency, rng.stream(f"wire to {name}"))

    parts = build(plan.recipe, clock, link, wires.journal)
    async with running(parts):
        yield parts, wires, rng


def _stage(
    plan: Plan,
    parts: Parts,
    wires: Wires,
    rng: Rng,
    to_service: Callable[[], httpx.AsyncBaseTransport],
    base_url: str,
) -> Stage:
    control = httpx.AsyncClient(
        transport=Asgi(control_app(parts, None)),
        base_url="http://control",
        timeout=None,  # noqa: S113
    )
    return Stage(
        clock=parts.clock,
        rng=rng,
        wires=wires,
        to_service=to_service,
        base_url=base_url,
        can=_possible(parts.recipe.chain, can_mint=parts.chain.can_mint),
        latency=plan.latency.get("service", constant(0)),
        control=control,
        parts=parts,
        to_facilitator=lambda: Asgi(parts.facilitator_app),
        facilitator_url="http://facilitator.local",
    )


def _possible(chain: str, *, can_mint: bool = True) -> frozenset[str]:
    """Return what a story can do in a world of ours, given the kind of chain it stands on."""
    match chain:
        case chains.LEDGER:
            return frozenset(NEEDS)
        case chains.ANVIL:
            return frozenset(NEEDS) - {"fiat token"}
        case _:
            return frozenset({"faults", "sight", *({"funds"} if can_mint else ())})


@asynccontextmanager
async def at_url(plan: Plan, url: str) -> AsyncIterator[Stage]:
    """Open the stage behind a URL; raises `ConnectionError` if nobody answers there."""
    clock = SkewedClock(Clock())
    async with httpx.AsyncClient(base_url=url.rstrip("/") + "/_sim", timeout=30) as control:
        met = await _meet(control, clock, url)
        has_control = bool(met)
        can = set(_possible(met.get("chain", chains.LEDGER)) - {"virtual time"} if met else ())
        if PAYER_KEY in os.environ:
            can.add("funds")
        yield Stage(
            clock=clock,
            rng=Rng(None),
            wires=Wires(clock, Journal()),
            to_service=httpx.AsyncHTTPTransport,
            base_url=url,
            can=frozenset(can),
            latency=plan.latency.get("service", constant(0)),
            control=control if has_control else None,
            to_facilitator=httpx.AsyncHTTPTransport if has_control else None,
            facilitator_url=url.rstrip("/") + "/facilitator",
        )


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


def opener(on: str, chain: str = chains.LEDGER) -> tuple[Callable[..., Any], Callable[[Plan], Any]]:
    """Return how to run, and how to open, the stage named `on`; raises `ValueError`."""
    if on.startswith(("http://", "https://")):
        if chain != chains.LEDGER:
            raise ValueError(f"{on} stands on a chain of its own; leave {chain} out")
        return run_anywhere, lambda plan: at_url(plan, on)
    if on == "in-process":
        return run_anywhere if chains.is_url(chain) else run_virtual, in_process
    if on == "tcp":
        if chains.is_url(chain):
            raise ValueError(f"over tcp time is virtual, but not on {chain}; play in-process")
        return run_virtual, over_tcp
    raise ValueError(f"a stage is in-process, tcp, or a URL, not {on!r}")
