"""One port for the whole world: service, facilitator, explorer, RPC and control."""

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from x402sim import web
from x402sim.chain.base import ChainError
from x402sim.clock import Clock
from x402sim.protocol.crypto import checksum
from x402sim.world.assembly.parts import Parts, Recipe, build
from x402sim.world.server.control import Control, accounts, control_app
from x402sim.world.server.interventions import Nothing, chain_kind
from x402sim.world.transport.faults import ABORT

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOOK_S = 2
"""Seconds between looks at a node of somebody else."""
MAX_HEAD_BYTES = 512 * 1024
MAX_MESSAGE_BYTES = 8 * web.MAX_BODY_BYTES
"""What a message may take on the wire, chunking and trailers included."""
GRACE_S = 5
"""How long requests in flight may take to end when the server stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where to listen, and who may control the world."""

    host: str = "127.0.0.1"
    port: int = 4020
    control_token: str | None = None
    allow_origin: str | None = None
    """The origin of a web page that may use everything, such as http://localhost:3000."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"a port is a number from 0 to 65535, not {self.port}")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOOPBACK

    @property
    def has_control(self) -> bool:
        """Whether there is a control plane: on loopback, or for whoever knows the token."""
        return self.is_local or self.control_token is not None


def listening_socket(listen: Listen) -> socket.socket:
    """Return a socket bound to the address; port 0 takes a free one. Raises `OSError`."""
    try:
        family, *_, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[
            0
        ]
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            _bind(sock, address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        hint = "; port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        said = f"cannot listen on {listen.host} port {listen.port}: {error.strerror}{hint}"
        raise OSError(error.errno, said) from error
    return sock


def _bind(sock: socket.socket, address: Any) -> None:
    if sys.platform != "win32":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    sock.listen(512)


def open_world(
    recipe: Recipe, listen: Listen, clock: Clock | None = None
) -> tuple[Parts, socket.socket]:
    """Return a world and the socket to serve it on.

    Raises `OSError` for the socket, `sqlite3.Error` or `ChainError` for the file, and
    `ChainError` for the chain.
    """
    sock = listening_socket(listen)
    try:
        return build(recipe, clock), sock
    except BaseException:
        sock.close()
        raise


def base_url(listen: Listen, sock: socket.socket) -> str:
    """Return the URL under which a client on this machine reaches the socket."""
    port = sock.getsockname()[1]
    host = "127.0.0.1" if listen.host in ("0.0.0.0", "") else listen.host  # noqa: S104
    host = "::1" if host == "::" else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def world_app(parts: Parts, listen: Listen) -> ASGIApp:
    """Return the application that hands each path to the part it belongs to."""
    mounted: dict[str, ASGIApp] = {
        "/facilitator": parts.facilitator_app,
        "/explorer": parts.explorer_app,
        "/rpc": _own_programs_only(parts.rpc_app, listen),
        "/_sim": _own_programs_only(_control(parts, listen), listen),
    }

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        first = "/" + scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        part = mounted.get(first)
        if part is not None:
            scope = {**scope, "root_path": scope.get("root_path", "") + first}
            if scope["path"] == first:
                scope["path"] = first + "/"
        await _until_stopped(part or parts.service_app, scope, receive, send)

    if listen.allow_origin is None:
        return app
    return CORSMiddleware(
        app, allow_origins=[listen.allow_origin], allow_methods=["*"], allow_headers=["*"]
    )


async def _until_stopped(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 503 to whoever still waits when the grace time of a stopping server is over."""
    has_answered = False

    async def watched_send(message: Message) -> None:
        nonlocal has_answered
        has_answered = True
        await send(message)

    try:
        await app(scope, receive, watched_send)
    except asyncio.CancelledError:
        if not has_answered:
            stopped = web.error(503, "Server stopped", "ask again when it is back")
            await stopped(scope, receive, send)


def _control(parts: Parts, listen: Listen) -> ASGIApp:
    if listen.has_control:
        return control_app(parts, listen.control_token)
    return web.error(
        403, "The control plane is off", f"on host {listen.host} it needs --control-token"
    )


def _own_programs_only(app: ASGIApp, listen: Listen) -> ASGIApp:
    """Keep web pages out: no foreign Origin, and on loopback no foreign Host.

    A page in a browser on this machine could otherwise send commands here.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        origin = headers.get(b"origin")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        is_foreign = (
            origin is not None
            and origin != listen.allow_origin
            and origin.split("://", 1)[-1] != host
        )
        if is_foreign or (listen.is_local and name.strip("[]") not in LOOPBACK):
            hint = f"origin {origin}, host {host}; --allow-origin lets one page in"
            refusal = web.error(403, "Not for web pages", hint)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guard


async def ready_message(parts: Parts, listen: Listen, url: str) -> dict[str, Any]:
    """Return what `serve --json` prints first: where everything is, and who has money."""
    settings = parts.service.settings
    return {
        "event": "ready",
        "service": url if parts.recipe.has_service else None,
        "facilitator": f"{url}/facilitator",
        "explorer": f"{url}/explorer",
        "rpc": f"{url}/rpc",
        "control": f"{url}/_sim" if listen.has_control else None,
        "payTo": checksum(settings.pay_to),
        "asset": checksum(settings.network.asset),
        "network": settings.network.name,
        "chain": chain_kind(parts),
        "chainId": settings.network.chain_id,
        "accounts": await accounts(Control(parts), Nothing()),
    }


class Protocol(HttpToolsProtocol):
    """HTTP whose heads, chunks and trailers are not allowed to grow without end."""

    _message_bytes = 0
    _in_head = True

    def data_received(self, data: bytes) -> None:
        """Read on, unless the message is too long."""
        self._message_bytes += len(data)
        limit = MAX_HEAD_BYTES if self._in_head else MAX_MESSAGE_BYTES
        if self._message_bytes > limit:
            self.transport.close()
        else:
            super().data_received(data)

    def on_headers_complete(self) -> None:
        """Put what breaks this connection where a fault finds it."""
        self._in_head = False
        self.scope[ABORT] = self._abort  # type: ignore[literal-required]
        super().on_headers_complete()

    async def _abort(self, _: str) -> None:
        """Break the connection, as a fault wants it; returns when it is broken."""
        self.transport.abort()
        while not self.cycle.disconnected:
            await asyncio.tasks.sleep(0)

    def on_message_complete(self) -> None:
        """Begin to count anew."""
        self._in_head, self._message_bytes = True, 0
        super().on_message_complete()


class Server(uvicorn.Server):
    """Uvicorn, told to stop by whoever started it instead of by signals."""

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=Protocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: whoever started this server stops it."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        await super().startup(sockets)
        self._on_ready()


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[None]:
    """Keep the world's background work going; close everything at the end."""
    await parts.chain.set_automine(parts.recipe.block_time_s is None)
    if parts.recipe.has_service:
        parts.process.start_background()
    beating = asyncio.create_task(_beat(parts))
    try:
        yield
    finally:
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
        await parts.process.stop()
        await parts.http.aclose()
        parts.service.store.close()
        parts.chain.close()


async def _beat(parts: Parts) -> None:
    """Mine a block every so many seconds; on a node of somebody else, see what it mined."""
    chain = parts.chain
    while True:
        await parts.clock.sleep(_seconds_to_next_beat(parts))
        try:
            await (chain.mine() if chain.is_ours else parts.watch())
        except ChainError as trouble:  # a node may come back
            logging.getLogger(__name__).warning("the chain: %s", trouble)


def _seconds_to_next_beat(parts: Parts) -> float:
    if not parts.chain.is_ours:
        return LOOK_S
    return parts.recipe.block_time_s or parts.recipe.heartbeat_s


async def serve(
    parts: Parts,
    listen: Listen,
    sock: socket.socket,
    on_start: Callable[[uvicorn.Server, dict[str, Any]], None],
) -> None:
    """Serve a world on a socket until the server given to `on_start` is told to exit."""
    message = await ready_message(parts, listen, base_url(listen, sock))
    server = Server(world_app(parts, listen), lambda: on_start(server, message))
    async with running(parts):
        await server.serve(sockets=[sock])


def run(main: Any) -> None:
    """Run a coroutine on the fastest event loop there is."""
    factory = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)
