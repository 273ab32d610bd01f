"""A world over TCP: the service listens on a real socket, still in virtual time.

The loop must not jump to the next timer while bytes are in transit between two of its sockets, so
each request carries its exchange number, and the server notifies the loop of its arrival.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from x402sim.http.exchange import OverTransport, Request, Response
from x402sim.world.loop import VirtualLoop
from x402sim.world.server.connection import HttpConnection, Shared
from x402sim.world.server.listen import Listen, listening_socket
from x402sim.world.server.workers import Workers
from x402sim.world.stages.in_process import in_process
from x402sim.world.stages.stage import Door, Stage
from x402sim.world.transport.middleware import ABORT
from x402sim.world.world import World

_EXCHANGE = "x402sim-exchange"
"""The header with the exchange number."""


@asynccontextmanager
async def over_tcp(world: World) -> AsyncIterator[Stage]:
    """Build a world whose services listen on free ports, and run it; raises `ChainError`."""
    servers: list[asyncio.Server] = []

    async def door(app: ASGIApp) -> Door:
        server, port = await _listen(app)
        servers.append(server)
        return _Socket, f"http://127.0.0.1:{port}"

    async with in_process(world, door) as stage:
        try:
            yield stage
        finally:
            for server in servers:
                server.close()
                await server.wait_closed()


async def _listen(app: ASGIApp) -> tuple[asyncio.Server, int]:
    """Serve an application on a free port; return the server and the port."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    sock = listening_socket(Listen(port=0))
    state, shown = ServerState(), _at_a_socket(app, loop)
    # no worker waits for the next request: a loop that waits for nothing but the time says so
    shared = Shared(Workers(most_idle=0), deadlines=None)
    server = await loop.create_server(lambda: HttpConnection(shown, state, shared), sock=sock)
    return server, sock.getsockname()[1]


class _Socket(OverTransport):
    """An HTTP transport to a server on the same virtual loop; one connection per request."""

    def __init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        super().__init__(httpx.AsyncHTTPTransport(limits=limits, trust_env=False))

    async def send(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        name = str(request.extensions["exchange"])
        request.headers = [*request.headers, (_EXCHANGE.encode(), name.encode())]
        loop.in_transit[name] = True
        try:
            return await super().send(request)
        finally:
            del loop.in_transit[name]


def _at_a_socket(app: ASGIApp, loop: VirtualLoop) -> ASGIApp:
    """Return `app`; it notifies the loop of each arriving request and each leaving answer."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        name, length = headers.get(_EXCHANGE, ""), headers.get("content-length", "0")

        def mark(is_moving: bool) -> None:
            if name in loop.in_transit:  # unless the caller has given up
                loop.in_transit[name] = is_moving

        async def receive_and_mark() -> Message:
            message = await receive()
            mark(bool(message.get("more_body")))
            return message

        async def send_and_mark(message: Message) -> None:
            mark(True)
            await send(message)

        async def abort_and_mark(how: str) -> None:
            mark(True)
            await scope[ABORT](how)

        mark(length != "0")
        await app({**scope, ABORT: abort_and_mark}, receive_and_mark, send_and_mark)

    return served
