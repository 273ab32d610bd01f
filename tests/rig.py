"""A service rig for tests: they set its clock, break its links and count its money."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from x402sim import World
from x402sim.chain.base import LogFilter
from x402sim.clock import Clock
from x402sim.http.exchange import OverTransport
from x402sim.payer.core import settlement
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address
from x402sim.protocol.messages import PaymentRequirements, decode, encode
from x402sim.service.app import service_app
from x402sim.service.settings import Settings
from x402sim.service.state import Service, restarted
from x402sim.world.running_world import RunningWorld, build

START = 1_800_000_000
QUOTE = "/api/perp/quote"
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
Deliver = Callable[[], Awaitable[httpx.Response]]
Fault = Callable[[httpx.Request, Deliver], Awaitable[httpx.Response]]


@dataclass
class Wire(httpx.AsyncBaseTransport):
    """The wire to one part; `fault` may lose, delay or replace what goes over it."""

    inner: httpx.ASGITransport
    fault: Fault | None = None
    seen: list[httpx.Request] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.seen.append(request)

        async def deliver() -> httpx.Response:
            response = await self.inner.handle_async_request(request)
            await response.aread()
            return response

        return await (self.fault(request, deliver) if self.fault else deliver())


class Buyer:
    """Alice at a service, by HTTP."""

    http: httpx.AsyncClient
    clock: Clock
    alice: Wallet

    async def ask(self, path: str = QUOTE, **headers: str) -> httpx.Response:
        """Send a request to a protected endpoint."""
        sent = {"json": ORDER} if path == QUOTE else {}
        method = "POST" if path == QUOTE else "GET"
        return await self.http.request(method, path, headers=_names(headers), **sent)

    async def ask_session(
        self, max_spend: str = "0.05", duration: Any = 3600, **headers: str
    ) -> httpx.Response:
        body = {"maxSpend": max_spend, "duration": duration}
        return await self.http.post("/api/sessions/create", json=body, headers=_names(headers))

    def sign(self, required: httpx.Response, wallet: Wallet | None = None) -> str:
        wanted = required.json()["paymentRequirements"]
        return (wallet or self.alice).payment_header(requirements(wanted), self.clock.now_s())

    def settlement(self, required: httpx.Response, header: str | None = None) -> dict[str, Any]:
        """Return the body of POST /api/pay."""
        body, header = required.json(), self.sign(required) if header is None else header
        return settlement(body["paymentId"], header, body["paymentRequirements"])

    async def pay(self, required: httpx.Response, header: str | None = None) -> httpx.Response:
        return await self.http.post("/api/pay", json=self.settlement(required, header))

    async def buy(self) -> str:
        """Pay for a quote; return the payment id."""
        required = await self.ask()
        paid = await self.pay(required)
        assert paid.status_code == 200, paid.text
        return str(required.json()["paymentId"])

    async def open_session(self, max_spend: str = "0.05", duration: int = 3600) -> dict[str, Any]:
        required = await self.ask_session(max_spend, duration)
        paid = await self.pay(required)
        assert paid.status_code == 200, paid.text
        made = await self.ask_session(
            max_spend, duration, x_payment_id=required.json()["paymentId"]
        )
        assert made.status_code == 201, made.text
        body: dict[str, Any] = made.json()
        return body

    async def record(self, payment_id: str) -> dict[str, Any]:
        body: dict[str, Any] = (await self.http.get(f"/api/payments/{payment_id}")).json()
        return body


class ServiceRig(Buyer):
    """The service, the parts it calls and an HTTP client, in one process."""

    def __init__(
        self,
        file: Path | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.now = [float(START)]
        self.clock = Clock(lambda: self.now[0])
        self.wires: dict[str, Wire] = {}

        def link(_: str, name: str, app: Any) -> OverTransport:
            self.wires[name] = Wire(httpx.ASGITransport(app, raise_app_exceptions=False))
            return OverTransport(self.wires[name])

        world = World(seed=1, file=file, service=settings or Settings(phase=0))
        self.parts: RunningWorld = build(world, self.clock, link)
        self.service = self.parts.service
        wire = link("payer", "service", self.parts.process.app)
        self.http = httpx.AsyncClient(transport=wire, base_url="http://service.test")
        self.alice, self.bob = self.parts.accounts.funded[:2]

    def restart(self) -> None:
        """Drop the state that a real process keeps only in memory."""
        fresh = restarted(self.service)
        for name in ("entitlements", "locks", "unreserved_in_flight", "answering"):
            object.__setattr__(self.service, name, getattr(fresh, name))

    # --- reads of the chain -----------------------------------------------------------

    def balance(self, wallet: Wallet) -> int:
        return self.parts.chain.machine.state.balances.get(wallet.address_bytes, 0)

    @property
    def earned(self) -> int:
        state = self.parts.chain.machine.state
        return state.balances.get(self.service.env.pay_to, 0)

    def transfers(self, wallet: Wallet | None = None) -> int:
        sender: Address | None = wallet.address_bytes if wallet else None
        topics = ((abi.TRANSFER_EVENT,), (abi.word(sender),) if sender else ())
        return len(self.parts.chain.machine.logs(LogFilter(0, 10**9, (), topics)))


@contextmanager
def beside(rig: ServiceRig) -> Iterator[tuple[Service, httpx.AsyncClient]]:
    """Give another service on the rig's store, and a client; the service crashes in the end."""
    other = restarted(replace(rig.service, answering=set()))
    app = httpx.ASGITransport(service_app(other))
    yield other, httpx.AsyncClient(transport=app, base_url="http://service.test")
    restarted(other)


def requirements(wanted: dict[str, Any]) -> PaymentRequirements:
    return decode(encode({**wanted, "description": None}), PaymentRequirements)


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def scene(
    test: Callable[..., Awaitable[None]], rigged: Callable[[], "ServiceRig"] | None = None
) -> Callable[..., None]:
    """Turn `async def test(rig, …)` into a test with its own rig, in the file `db` if it has one."""
    import functools
    import inspect

    parameters = list(inspect.signature(test).parameters.values())

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            rig = rigged() if rigged else ServiceRig(kwargs.get("db"))
            try:
                await test(rig, *args, **kwargs)
            finally:
                await rig.http.aclose()
                rig.service.store.close()
                rig.parts.chain.close()

        asyncio.run(main())

    run.__signature__ = inspect.Signature(parameters[1:])  # type: ignore[attr-defined]
    return run


@contextmanager
def broken(rig: ServiceRig, part: str, fault: Fault) -> Iterator[None]:
    """Install a fault on the wire to a part, inside the `with` block."""
    rig.wires[part].fault = fault
    try:
        yield
    finally:
        rig.wires[part].fault = None


def only(path: str, fault: Fault) -> Fault:
    """Limit a fault to requests whose path ends with `path`."""

    async def on(request: httpx.Request, deliver: Deliver) -> httpx.Response:
        return await (fault(request, deliver) if request.url.path.endswith(path) else deliver())

    return on


def after(count: int, fault: Fault) -> Fault:
    """Return a fault that lets so many requests pass before it starts."""
    passed = 0

    async def on(request: httpx.Request, deliver: Deliver) -> httpx.Response:
        nonlocal passed
        passed += 1
        return await (deliver() if passed <= count else fault(request, deliver))

    return on


def logs_of_few_blocks(rig: ServiceRig, most: int) -> Fault:
    """Refuse logs of more blocks, as most public nodes do beyond some thousands."""

    async def on(request: httpx.Request, deliver: Deliver) -> httpx.Response:
        call = json.loads(request.content)
        if call["method"] == "eth_getLogs":
            wanted, height = call["params"][0], rig.parts.chain.machine.state.height
            last = height if wanted["toBlock"] == "latest" else int(wanted["toBlock"], 16)
            if last - int(wanted["fromBlock"], 16) >= most:
                error = {"code": -32000, "message": f"maximum blocks distance: {most}"}
                return httpx.Response(200, json={"jsonrpc": "2.0", "id": 1, "error": error})
        return await deliver()

    return on


async def lose_request(request: httpx.Request, _: Any) -> httpx.Response:
    raise httpx.ConnectError("nobody there", request=request)


async def lose_answer(request: httpx.Request, deliver: Any) -> httpx.Response:
    await deliver()
    raise httpx.ReadTimeout("the answer is lost", request=request)


def answer(status: int, body: str | dict[str, Any], *, after: bool = False) -> Fault:
    """Make a fault that replaces the answer; `after` delivers the request first."""

    async def on(_: httpx.Request, deliver: Any) -> httpx.Response:
        if after:
            await deliver()
        if isinstance(body, str):
            return httpx.Response(status, text=body)
        return httpx.Response(status, json=body)

    return on
