"""Serves a world, or a service alone, on a socket until it is stopped."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import httpx
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from x402sim.chain.rpc.reading import DEVELOP
from x402sim.clock import Clock
from x402sim.events import Note, ServiceEvent
from x402sim.http import web
from x402sim.http.exchange import OverClient
from x402sim.journal import Journal
from x402sim.protocol.bazaar import Item
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.refusals import RequestError
from x402sim.rng import Rng
from x402sim.service.environment import Environment
from x402sim.service.state import connected
from x402sim.service.store import Store
from x402sim.service.store.file import claimed
from x402sim.serving.connection import DEADLINES, Deadlines, HttpConnection, Shared, Workers
from x402sim.serving.control.actions import accounts, merchant, named, token_info
from x402sim.serving.control.app import Recorder, control_app, has_token, require_token
from x402sim.serving.control.development import Development
from x402sim.serving.control.messages import OnNetwork, Ready
from x402sim.serving.listen import (
    Listen,
    base_url,
    is_foreign,
    listening_socket,
    own_programs_only,
    readable_by,
)
from x402sim.serving.log import CLOCK_SET, Form, Names, ServerLog
from x402sim.serving.page import PageFeed, home, page_of, stored
from x402sim.serving.requests import Requests
from x402sim.serving.tools import tools_of, with_tools
from x402sim.world.process import ServiceProcess
from x402sim.world.running_world import RunningWorld, build, running
from x402sim.world.world import InProcess, World

GRACE_S = 5
"""Seconds that requests in flight may take to finish when the server stops."""


def outermost(app: ASGIApp, trusted: str | list[str]) -> ASGIApp:
    """Return `app`, with 400 for a request that has no Host header, or several (RFC 9112, 3.2).

    It takes client and scheme from the X-Forwarded headers of a proxy at a `trusted` address. It
    answers 503 to requests that are unfinished when the server stops.
    """
    proxied: Any = ProxyHeadersMiddleware(cast(Any, app), trusted)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers, inner = scope["headers"], app
        names, hosts = dict(headers), 1
        if len(names) != len(headers) or b"host" not in names:
            hosts = [name for name, _ in headers].count(b"host")
        if hosts != 1:
            wrong = RequestError.INVALID_HOST
            inner = web.error(400, wrong.text, f"expected one Host header, got {hosts}")
        elif b"x-forwarded-proto" in names or b"x-forwarded-for" in names:
            inner = proxied
        try:
            await inner(scope, receive, send)
        except asyncio.CancelledError:  # unfinished when a stopping server's grace period ends
            if not scope[web.CONNECTION].is_started:
                stopped = web.error(503, "Server stopped", "ask again when it is back")
                await stopped(scope, receive, send)

    return serve


class Server(uvicorn.Server):
    """Uvicorn without signal handlers: the starting code sets `should_exit`."""

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
        """Call `on_stop`, which ends the endless streams, then wait for the requests."""
        self._on_stop()
        await super().shutdown(sockets)
        self._workers.stop()


def world_app(world: RunningWorld, listen: Listen, feed: PageFeed | None = None) -> ASGIApp:
    """Return the application that routes each path to a part; the page shows the `feed`."""
    feed = feed or PageFeed(world.journal)
    recorder, token = Recorder(world), listen.control_token
    control: ASGIApp
    if listen.has_control:
        pages = page_of(world, feed, lambda request: require_token(request, token))
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
        "/_sim": own_programs_only(control, listen.allow_origins, is_local=listen.is_local),
    }
    is_paywall = world.service.env.shop.takes("/", "GET")  # then / is the user's
    first_page = web.Application([home(world)])
    service_app = world.process.app

    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"]
        if path == "/" and listen.has_control and not is_paywall:
            accepted = (value for name, value in scope["headers"] if name == b"accept")
            if any(b"text/html" in value for value in accepted):  # a browser; programs send */*
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
    by_pages = readable_by(app, listen.allow_origins)
    by_wallets = readable_by(app, listen.rpc_callers)

    def by_path(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (by_wallets if _is_rpc(scope["path"]) else by_pages)(scope, receive, send)

    return by_path


def _is_rpc(path: str) -> bool:
    return path == "/rpc" or path.startswith("/rpc/")


def _websocket_at(path: str) -> Callable[..., Any] | None:
    if not _is_rpc(path):
        return None
    from x402sim.serving.websocket import WebSocketConnection  # which takes a while

    return WebSocketConnection


def _rpc(world: RunningWorld, recorder: Recorder, listen: Listen) -> ASGIApp:
    """Return a network's JSON-RPC; requests with access to /_sim get the development methods."""
    rpc, development = world.rpc_app, Development(world, recorder)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").decode("latin-1")
        may = listen.has_control and has_token(given, listen.control_token)
        if may and not is_foreign(headers, listen.allow_origins, is_local=listen.is_local):
            scope = {**scope, DEVELOP: development.do}
        await rpc(scope, receive, send)

    return own_programs_only(app, listen.rpc_callers, is_local=listen.is_local)


def open_world(
    world: World, listen: Listen, clock: Clock | None = None
) -> tuple[RunningWorld, socket.socket]:
    """Return a running world, and the socket to serve on.

    Raises `ValueError` for what a server cannot do, `OSError` for the socket, `sqlite3.Error` or
    `ChainError` for the file, and `ChainError` for the chain.
    """
    # a test that silently lost one of these options would show something else
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
        schema="urn:x402sim:serve:1",
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


def _tell_jumps(clock: Clock, journal: Journal) -> None:
    """Note in a journal when the system's clock was set, from now on."""

    def note(seconds: float) -> None:
        data = {"seconds": round(seconds)}
        journal.record(clock.now_ms(), Note(name=CLOCK_SET, data=data))

    clock.on_jump = note


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
    _tell_jumps(world.clock, world.journal)
    requests = Requests(world.journal, world.clock)
    feed = PageFeed(world.journal, requests, stored(world))
    log = None
    if form:
        names = Names(named(world), world.network)
        log = ServerLog(form, names, requests, world.clock.offset_s)
    app = requests.around(world_app(world, listen, feed))
    if world.options.has_service:
        admit = partial(own_programs_only, origins=listen.allow_origins, is_local=listen.is_local)
        app = with_tools(app, tools_of(world.service.env.shop), admit)
    server = Server(
        app,
        lambda: on_start(server, message),
        on_stop=feed.stop,
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
    """Return the service with the database, recording to the journal, and the HTTP client.

    The database keeps the secret that seals payment ids: ids stay valid after a restart.
    Raises `ValueError` and `sqlite3.Error` if the file cannot be used.
    """
    with claimed(file):
        store = Store(file)
        setup = replace(setup, secret=store.secret("ids", setup.secret))
    http = httpx.AsyncClient(timeout=None)  # noqa: S113 - the service has timeouts of its own
    # no cookies: a foreign server could fill memory and requests with them
    http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    clock = Clock()

    def record(event: ServiceEvent) -> None:
        journal.record(clock.now_ms(), event)

    _tell_jumps(clock, journal)
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
