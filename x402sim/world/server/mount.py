"""Mounts every part of a world on one port, and restricts who may call it."""

import re
from collections.abc import Awaitable, Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.chain.rpc.context import DEVELOP
from x402sim.http import web
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.app import Recorder, control_app, has_token, require_token
from x402sim.world.control.development import Development
from x402sim.world.server.listen import LOOPBACK, Listen, pattern
from x402sim.world.ui.app import PATH, home, page_of
from x402sim.world.ui.watch import Watch

EXPOSED = (REQUIRED_HEADER, *RESPONSE_HEADERS.values(), "X-Payment-Id")
"""The headers of answers that a page of another origin may read."""
NAMED = (b"origin", b"host")


def world_app(world: RunningWorld, listen: Listen, watch: Watch | None = None) -> ASGIApp:
    """Return the application that routes each path to its part; its page shows the `watch`."""
    watch = watch or Watch(world.journal)
    recorder = Recorder(world)
    rpc = {each.network.name: _rpc(each, recorder, listen) for each in world.networks}
    outside = world.process.outside
    mounted: dict[str, ASGIApp] = {
        "/facilitator": outside[world.options.first_facilitator],
        "/explorer": outside["explorer"],
        "/rpc": rpc[world.network.name],
        "/_sim": own_programs_only(
            _control(world, recorder, listen, watch), listen, listen.allow_origins
        ),
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
    pages = _readable(app, listen.allow_origins)
    wallets = _readable(app, listen.rpc_callers)

    def by_path(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return (wallets if is_rpc(scope["path"]) else pages)(scope, receive, send)

    return by_path


def is_rpc(path: str) -> bool:
    """Whether JSON-RPC is at a path."""
    return path == "/rpc" or path.startswith("/rpc/")


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


def _control(world: RunningWorld, recorder: Recorder, listen: Listen, watch: Watch) -> ASGIApp:
    if listen.has_control:
        token = listen.control_token
        pages = page_of(world, watch, lambda request: require_token(request, token))
        return control_app(world, token, recorder=recorder, pages=pages)
    return web.error(
        403, "The control API is off", f"on host {listen.host} it needs --control-token"
    )


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
