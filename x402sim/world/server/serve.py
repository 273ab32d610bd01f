"""Serves a world, or a service alone, on a socket: until it is stopped, or as a `LocalServer`."""

import asyncio
import inspect
import re
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from http.cookiejar import DefaultCookiePolicy
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from x402sim.chain.rpc.context import DEVELOP
from x402sim.clock import Clock
from x402sim.events import ServiceEvent
from x402sim.http import web
from x402sim.http.exchange import OverClient
from x402sim.journal import Journal
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import RequestError
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS, Item
from x402sim.report.page import Shown
from x402sim.rng import Rng
from x402sim.service.environment import Environment
from x402sim.service.state import connected
from x402sim.service.store import Store
from x402sim.service.store.file import claimed
from x402sim.text.arguments import explained
from x402sim.world.control.actions import accounts, merchant, named, token_info
from x402sim.world.control.app import Recorder, control_app, has_token, require_token
from x402sim.world.control.client import ControlClient, ControlError
from x402sim.world.control.development import Development
from x402sim.world.control.messages import OnNetwork, Ready, Transfer
from x402sim.world.loop import run_anywhere
from x402sim.world.running_world import RunningWorld, ServiceProcess, build, running
from x402sim.world.server.connection import DEADLINES, Deadlines, HttpConnection, Shared, Workers
from x402sim.world.server.listen import LOOPBACK, Listen, base_url, listening_socket, pattern
from x402sim.world.server.log import Form, Names, ServerLog
from x402sim.world.transport.faults import Fault
from x402sim.world.transport.requests import Requests
from x402sim.world.ui import PATH, Watch, home, page_of, stored
from x402sim.world.world import InProcess, World

GRACE_S = 5
"""Seconds that requests in flight may take to finish when the server stops."""


def outermost(app: ASGIApp, trusted: str | list[str]) -> ASGIApp:
    """Return `app`, with 400 for a request that has no Host header, or several (RFC 9112, 3.2).

    Of a proxy at a `trusted` address, it believes for whom and by what scheme it asks. It answers
    503 to requests that are unfinished when the server stops.
    """
    proxied: Any = ProxyHeadersMiddleware(cast(Any, app), trusted)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers, asked = scope["headers"], app
        names, hosts = dict(headers), 1
        if len(names) != len(headers) or b"host" not in names:
            hosts = [name for name, _ in headers].count(b"host")
        if hosts != 1:
            wrong = RequestError.INVALID_HOST
            asked = web.error(400, wrong.text, f"expected one Host header, got {hosts}")
        elif b"x-forwarded-proto" in names or b"x-forwarded-for" in names:
            asked = proxied
        try:
            await asked(scope, receive, send)
        except asyncio.CancelledError:  # unfinished when a stopping server's grace period ends
            if not scope[web.CONNECTION].is_started:
                stopped = web.error(503, "Server stopped", "ask again when it is back")
                await stopped(scope, receive, send)

    return serve


class Server(uvicorn.Server):
    """Uvicorn without signal handlers: the code that started it sets `should_exit`."""

    def __init__(
        self,
        app: ASGIApp,
        on_ready: Callable[[], None],
        deadlines: Deadlines = DEADLINES,
        *,
        on_stop: Callable[[], None] = lambda: None,
        websocket_at: Callable[[str], Callable[..., Any] | None] = lambda _: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._workers = Workers()
        shared = Shared(self._workers, deadlines, websocket_at=websocket_at)

        def connected(*, config: Any, server_state: Any, **_: Any) -> HttpConnection:
            return HttpConnection(config.loaded_app, server_state, shared)

        config = uvicorn.Config(
            cast(Any, app),
            http=cast(Any, connected),
            timeout_keep_alive=deadlines.idle_s,
            log_config=None,  # uvicorn logs to the handlers of the program, as all else does
            log_level="error",  # a warning for each request that is not HTTP would fill a disk
            access_log=False,
            server_header=False,
            proxy_headers=False,  # `outermost` reads them
            interface="asgi3",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
        config.app = cast(Any, outermost(app, config.forwarded_allow_ips))
        super().__init__(config)
        self._on_ready, self._on_stop, self._tls = on_ready, on_stop, tls

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call `on_ready`."""
        self.config.ssl = self._tls
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `on_stop`, which ends what would never end by itself, then wait for the requests."""
        self._on_stop()
        await super().shutdown(sockets)
        self._workers.stop()


EXPOSED = (REQUIRED_HEADER, *RESPONSE_HEADERS.values(), "X-Payment-Id")
"""The headers of answers that a page of another origin may read."""
NAMED = (b"origin", b"host")


def world_app(world: RunningWorld, listen: Listen, watch: Watch | None = None) -> ASGIApp:
    """Return the application that routes each path to its part; its page shows the `watch`."""
    watch = watch or Watch(world.journal)
    recorder, token = Recorder(world), listen.control_token
    control: ASGIApp
    if listen.has_control:
        pages = page_of(world, watch, lambda request: require_token(request, token))
        control = control_app(world, token, recorder=recorder, pages=pages)
    else:
        needs = f"on host {listen.host} it needs --control-token"
        control = web.error(403, "The control API is off", needs)
    rpc = {each.network.name: _rpc(each, recorder, listen) for each in world.networks}
    outside = world.process.outside
    mounted: dict[str, ASGIApp] = {
        "/facilitator": outside[world.options.first_facilitator],
        "/explorer": outside["explorer"],
        "/rpc": rpc[world.network.name],
        "/_sim": own_programs_only(control, listen, listen.allow_origins),
    }
    first_page: ASGIApp = _HOME if world.options.has_service else RedirectResponse(PATH)
    service_app = world.process.app

    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"]
        if path == "/" and listen.has_control and _is_of_a_browser(scope):
            return first_page(scope, receive, send)
        first = "/" + path.split("/", 2)[1] if path.startswith("/") else ""
        part = mounted.get(first)
        if part is None:
            return service_app(scope, receive, send)
        if first == "/rpc" and (name := path[5:].strip("/")) in rpc:
            first, part = f"/rpc/{name}", rpc[name]
        scope = {**scope, "root_path": scope.get("root_path", "") + first}
        if path == first:
            scope["path"] = first + "/"
        return part(scope, receive, send)

    if not listen.rpc_callers:
        return app
    by_pages = _readable(app, listen.allow_origins)
    by_wallets = _readable(app, listen.rpc_callers)

    def by_path(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (by_wallets if _is_rpc(scope["path"]) else by_pages)(scope, receive, send)

    return by_path


def _is_rpc(path: str) -> bool:
    return path == "/rpc" or path.startswith("/rpc/")


def _websocket_at(path: str) -> Callable[..., Any] | None:
    """Return what makes a connection a WebSocket: JSON-RPC is answered there, too."""
    if not _is_rpc(path):
        return None
    from x402sim.world.server.websocket import WebSocketConnection  # which takes a while

    return WebSocketConnection


def _readable(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return `app`, whose answers pages of these origins may read."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origin_regex="|".join(map(pattern, origins)),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED,
    )


_HOME = web.Application([Route("/", home)])


def _is_of_a_browser(scope: Scope) -> bool:
    """Tell whether a request asks for HTML: programs take what comes."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _rpc(world: RunningWorld, recorder: Recorder, listen: Listen) -> ASGIApp:
    """Return a network's JSON-RPC, by which those who may use /_sim control the world, too."""
    rpc, development = world.rpc_app, Development(world, recorder)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").decode("latin-1")
        may = listen.has_control and has_token(given, listen.control_token)
        if may and not _is_foreign(headers, listen, listen.allow_origins):
            scope = {**scope, DEVELOP: development.do}
        await rpc(scope, receive, send)

    return own_programs_only(app, listen, listen.rpc_callers)


def own_programs_only(app: ASGIApp, listen: Listen, origins: Sequence[str]) -> ASGIApp:
    """Reject requests of web pages: no Origin but these, and on loopback no foreign Host.

    Otherwise any page in a browser on this machine could send commands here.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if _is_foreign(headers, listen, origins):
            origin, host = (headers.get(name, b"").decode("latin-1") for name in NAMED)
            hint = f"origin {origin}, host {host}; --allow-origin admits a page, and --rpc-origin "
            hint += "a wallet to /rpc"
            refusal = web.error(403, "Not for web pages", hint)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guard


def _is_foreign(headers: dict[bytes, bytes], listen: Listen, origins: Sequence[str]) -> bool:
    origin, host = (headers.get(name, b"").decode("latin-1") for name in NAMED)
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    is_foreign = (
        b"origin" in headers
        and not any(re.fullmatch(pattern(each), origin) for each in origins)
        and origin.split("://", 1)[-1] != host
    )
    return is_foreign or (listen.is_local and name.strip("[]") not in LOOPBACK)


def open_world(
    world: World, listen: Listen, clock: Clock | None = None
) -> tuple[RunningWorld, socket.socket]:
    """Return a world that runs, and the socket to serve it on.

    Raises `ValueError` for what a server cannot do, `OSError` for the socket, `sqlite3.Error` or
    `ChainError` for the file, and `ChainError` for the chain.
    """
    # silently left out, these would make a test show what it does not
    if world.where != InProcess():
        raise ValueError(f"on: a server is a place of its own, and cannot be {world.where.name}")
    for option in ("latency", "journal"):
        if getattr(world, option):
            raise ValueError(f"{option}: it is for scenarios, and a server cannot have it")
    sock = listening_socket(listen)
    try:
        return build(world, clock), sock
    except BaseException:
        sock.close()
        raise


async def ready_message(world: RunningWorld, listen: Listen, url: str) -> Ready:
    """Return the ready message: the URLs, the addresses and the funded accounts."""
    network = world.network
    return Ready(
        event="ready",
        service=url if world.options.has_service else None,
        facilitator=f"{url}/facilitator",
        explorer=f"{url}/explorer",
        rpc=f"{url}/rpc",
        control=f"{url}/_sim" if listen.has_control else None,
        pay_to=checksum(merchant(world)),
        asset=checksum(network.asset),
        network=network.name,
        chain=world.options.backend.kind,
        chain_id=network.chain_id,
        token=token_info(network),
        accounts=await accounts(world),
        networks=[
            OnNetwork(
                network=each.name,
                chain_id=each.chain_id,
                rpc=f"{url}/rpc/{each.name}",
                asset=checksum(each.asset),
                token=token_info(each),
            )
            for each in map(attrgetter("network"), world.networks)
        ],
    )


def _sold(world: RunningWorld, url: str) -> list[Item]:
    from x402sim.service.docs import listing  # with the whole book of examples

    return listing.items(world.service, url)


async def serve(
    world: RunningWorld,
    listen: Listen,
    sock: socket.socket,
    on_start: Callable[[uvicorn.Server, Ready], None],
    form: Form | None = None,
) -> None:
    """Serve a world until `should_exit` is set on the server given to `on_start`.

    It is silent unless the form of a log is given.
    """
    url = base_url(listen, sock)
    message = await ready_message(world, listen, url)
    if world.options.has_service:
        world.catalogue.own = partial(_sold, world, url)
    requests = Requests(world.journal, world.clock)
    watch = Watch(world.journal, requests, stored(world))
    log = None
    if form:
        names = Names(named(world), world.network)
        log = ServerLog(form, names, requests, world.clock.offset_s)
    app = requests.around(world_app(world, listen, watch))
    server = Server(
        app,
        lambda: on_start(server, message),
        on_stop=watch.stop,
        websocket_at=_websocket_at,
        tls=listen.tls,
    )
    try:
        async with running(world):
            await server.serve(sockets=[sock])
    finally:
        if log:
            log.close()


def run(main: Any) -> None:
    """Run a coroutine, on uvloop if it is installed."""
    factory = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


def open_service(
    setup: Environment, file: Path | None, journal: Journal
) -> tuple[ServiceProcess, httpx.AsyncClient]:
    """Return the service with its database, and its HTTP client; it records to the journal.

    The database keeps the secret that seals payment ids: ids stay valid after a restart.
    Raises `ValueError` and `sqlite3.Error` if the file cannot be used.
    """
    with claimed(file):
        store = Store(file)
        setup = replace(setup, secret=store.secret("ids", setup.secret))
    http = httpx.AsyncClient(timeout=None)  # noqa: S113 - the service has timeouts of its own
    # a server could fill its memory, and its requests, with cookies: it keeps none
    http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    clock = Clock()

    def record(event: ServiceEvent) -> None:
        journal.record(clock.now_ms(), event)

    service = connected(setup, store, OverClient(http), clock, Rng().stream("payment ids"))
    return ServiceProcess(replace(service, record=record)), http


async def serve_alone(
    process: ServiceProcess,
    http: httpx.AsyncClient,
    sock: socket.socket,
    on_start: Callable[[uvicorn.Server], None],
    journal: Journal,
    form: Form | None,
) -> None:
    """Serve until `should_exit` is set on the server given to `on_start`.

    It is silent unless the form of a log is given; `journal` is what the service records to.
    """
    app: ASGIApp = process
    log, setup = None, process.service.env
    if form:
        requests = Requests(journal, Clock())
        names = Names({to_hex(setup.pay_to): "merchant"}, setup.network)
        app, log = requests.around(process), ServerLog(form, names, requests)
    server = Server(app, lambda: on_start(server))
    process.start_background()
    try:
        await server.serve(sockets=[sock])
    finally:
        await process.close()
        await http.aclose()
        if log:
            log.close()


T = TypeVar("T")
Init = TypeVar("Init", bound=Callable[..., None])
TIMEOUT_S = 30.0


@cache
def certificates() -> ssl.SSLContext:
    """Return the certificates to trust; reading them takes longer than building a world."""
    return httpx.create_ssl_context(trust_env=False)


def _with_options(init: Init) -> Init:
    """Let the signature of an `__init__` name the options of a `World`, as its `**options`.

    So `help` lists them, and one that is misspelt is named.
    """
    signature: Any = inspect.signature(init)
    *own, _ = signature.parameters.values()
    options = inspect.signature(World).parameters.values()
    init.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return init


@explained
class LocalServer:
    """A whole world on a free local port, in a thread of this process.

    It serves a `World`, whose options may also be given here by name, as in
    `LocalServer(seed=1, block_time_s=2)`: `help(x402sim.World)` has them all. `port` is the port to
    listen on, by default a free one.

    `wallets` are the funded accounts, those of anvil and Hardhat unless a seed or another phrase
    (`mnemonic`) is given; `url` is the service, and `facilitator_url`,
    `explorer_url`, `rpc_url` and `control_url` the rest. `clock` is the world's clock:
    give it to a payer if you advance it. With several networks, the service is on the first, and
    the facilitator settles on all.
    `parts` is the running world: read it only while no request is in flight.

    `fault`, `advance` and `reset` change the world; `transfers`, `balance` and `journal` tell what
    happened, and `show` shows it in a notebook. They raise `RuntimeError` with the reason if the
    server refuses. In async code, `async with LocalServer() as server:` starts it, and
    `server.control` has them as coroutines.
    """

    @_with_options
    def __init__(self, world: World | None = None, *, port: int = 0, **options: Any) -> None:
        self.clock = Clock()
        self._listen = Listen(port=port)
        self._world = replace(world or World(), **options)
        self._http: httpx.AsyncClient | None = None
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._failure: BaseException | None = None
        self._ready_message: Ready | None = None
        self.parts: RunningWorld | None = None
        self.log_form: Form | None = None
        """Where its log goes, and how; None if nowhere. Set it before the start."""

    def __repr__(self) -> str:
        return f"LocalServer({self.url})" if self._ready_message else "LocalServer(not running)"

    @property
    def url(self) -> str:
        """The service's URL."""
        return str(self.info.service)

    @property
    def facilitator_url(self) -> str:
        """The facilitator's base URL."""
        return self.info.facilitator

    @property
    def explorer_url(self) -> str:
        """The explorer's base URL."""
        return self.info.explorer

    @property
    def rpc_url(self) -> str:
        """The chain's JSON-RPC URL."""
        return self.info.rpc

    @property
    def control_url(self) -> str:
        """The control API's URL."""
        return str(self.info.control)

    @property
    def network(self) -> Network:
        """The network whose token pays: `PaymentAuth(wallet, network=server.network)`."""
        return self.parts.service.env.network if self.parts else self._world.networks[0]

    @property
    def wallets(self) -> list[Wallet]:
        """The funded accounts."""
        return [Wallet(account.private_key) for account in self.info.accounts]

    @property
    def info(self) -> Ready:
        """The ready message of `serve --json`; raises `RuntimeError` if it is not running."""
        if self._ready_message is None:
            raise RuntimeError("not running: use `with LocalServer() as server:`, or start()")
        return self._ready_message

    def start(self) -> "LocalServer":
        """Start serving; returns when it is ready. Raises the error that prevented the start."""
        if self._ready_message:
            raise RuntimeError(f"this server is running already, at {self.url}")
        ready, self._failure = Future[Ready](), None
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="x402sim", daemon=True
        )
        self._thread.start()
        self._ready_message = ready.result()
        return self

    def stop(self) -> None:
        """Stop serving; returns when everything is closed."""
        if self._server and self._thread:
            self._server.should_exit = True
            self._thread.join()
            self._server, self._ready_message = None, None
            if self._failure:
                raise self._failure

    def __enter__(self) -> "LocalServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- what a test does to the world, and asks about it ------------------------------

    def fault(self, fault: Fault) -> None:
        """Add a fault; earlier faults have precedence."""
        self._ask(lambda control: control.fault(fault))

    def advance(self, seconds: float) -> None:
        """Move the clock forward; sessions end, authorizations expire, pending payments resolve."""
        self._ask(lambda control: control.advance(seconds))

    def reset(self) -> None:
        """Empty chain and database, restore the balances, and remove all faults.

        The clock keeps its time, and the journal what happened.
        """
        self._ask(lambda control: control.reset())

    def transfers(self, account: str = "") -> list[Transfer]:
        """Return the transfers of the token, oldest first; with an address, those from or to it.

        Each has `tx_hash`, `block_number`, `sender`, `to` and `amount_base`: text, in base units.
        """
        return self._ask(lambda control: control.transfers(account))

    def balance(self, address: str) -> int:
        """Return what an address has of the token, in base units, as an int."""
        return self._ask(lambda control: control.balance(address))

    @property
    def journal(self) -> Journal:
        """What has happened, as `list(journal)` tells; `x402sim events` describes every event."""
        return self._ask(lambda control: control.journal())

    def show(self) -> Shown:
        """Return the payments until now as lanes, for a notebook, below a link to the live page.

        It is a copy in a frame: no site may show the live page in one, as it has all keys.
        """
        link = f'<a href="{self.control_url}/ui" target="_blank" rel="noopener">The live page</a>'
        return Shown(self._ask(lambda control: control.page()), link)

    @property
    def control(self) -> ControlClient:
        """The client of the control API within `async with`; raises `RuntimeError` elsewhere."""
        if self._http is None:
            raise RuntimeError("`control` is for `async with LocalServer() as server:`")
        return ControlClient(self._http)

    def _ask(self, ask: Callable[[ControlClient], Awaitable[T]]) -> T:
        async def main() -> T:
            async with self._client() as http:
                return await ask(ControlClient(http))

        try:
            return run_anywhere(main)
        except ControlError as wrong:
            raise wrong.with_traceback(None) from None  # its text says it all

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.control_url, timeout=TIMEOUT_S, trust_env=False, verify=certificates()
        )

    async def __aenter__(self) -> "LocalServer":
        await asyncio.to_thread(self.start)
        self._http = self._client()
        return self

    async def __aexit__(self, *_: object) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()
        await asyncio.to_thread(self.stop)

    def _run(self, ready: Future[Ready]) -> None:
        def on_start(server: uvicorn.Server, message: Ready) -> None:
            self._server = server
            ready.set_result(message)

        try:
            self.parts, sock = open_world(self._world, self._listen, self.clock)
            run(serve(self.parts, self._listen, sock, on_start, self.log_form))
        except BaseException as failure:  # noqa: BLE001 - handed to the thread that asked
            if ready.done():
                self._failure = failure
            else:
                ready.set_exception(failure)
