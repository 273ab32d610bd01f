"""Mounts every part of a world on one port, and restricts who may call it."""

import asyncio
import re
from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.chain.rpc.context import DEVELOP
from x402sim.http import web
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS
from x402sim.world.assembly.parts import Parts
from x402sim.world.control.app import control_app, has_token, require_token
from x402sim.world.control.context import Context
from x402sim.world.control.development import Development
from x402sim.world.control.recorder import Recorder
from x402sim.world.server.listen import LOOPBACK, Listen
from x402sim.world.server.origins import pattern
from x402sim.world.ui.app import PATH, home, page_of
from x402sim.world.ui.watch import Watch

EXPOSED = (REQUIRED_HEADER, *RESPONSE_HEADERS.values(), "X-Payment-Id")
"""The headers of answers that a page of another origin may read."""
NAMED = (b"origin", b"host")


def world_app(parts: Parts, listen: Listen, watch: Watch | None = None) -> ASGIApp:
    """Return the application that routes each path to its part; its page shows the `watch`.

    It answers 503 to requests that are unfinished when the server stops.
    """
    watch = watch or Watch(parts.journal)
    world = Development(Context(parts), Recorder(parts))
    rpc = _with_control(parts.rpc_app, listen, world)
    mounted: dict[str, ASGIApp] = {
        "/facilitator": parts.facilitator_app,
        "/explorer": parts.explorer_app,
        "/rpc": own_programs_only(rpc, listen, listen.rpc_callers),
        "/_sim": own_programs_only(_control(world, listen, watch), listen, listen.allow_origins),
    }
    first_page: ASGIApp = _HOME if parts.recipe.has_service else RedirectResponse(PATH)

    service_app = parts.service_app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/" and listen.has_control and _is_of_a_browser(scope):
            await first_page(scope, receive, send)
            return
        first = "/" + scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        part = mounted.get(first)
        if part is not None:
            scope = {**scope, "root_path": scope.get("root_path", "") + first}
            if scope["path"] == first:
                scope["path"] = first + "/"
        has_answered = False

        async def watched_send(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        try:
            await (part or service_app)(scope, receive, watched_send)
        except asyncio.CancelledError:  # unfinished when a stopping server's grace period ends
            if not has_answered:
                stopped = web.error(503, "Server stopped", "ask again when it is back")
                await stopped(scope, receive, send)

    if not listen.rpc_callers:
        return app
    pages = _readable(app, listen.allow_origins)
    wallets = _readable(app, listen.rpc_callers)

    async def by_path(scope: Scope, receive: Receive, send: Send) -> None:
        is_rpc = scope["path"] == "/rpc" or scope["path"].startswith("/rpc/")
        await (wallets if is_rpc else pages)(scope, receive, send)

    return by_path


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


_HOME = web.application([Route("/", home)])


def _is_of_a_browser(scope: Scope) -> bool:
    """Tell whether a request asks for HTML: programs take what comes."""
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _with_control(rpc: ASGIApp, listen: Listen, world: Development) -> ASGIApp:
    """Let those who may use /_sim control the world by the chain's JSON-RPC, too."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"").decode("latin-1")
        may = listen.has_control and has_token(given, listen.control_token)
        if may and not _is_foreign(headers, listen, listen.allow_origins):
            scope = {**scope, DEVELOP: world.do}
        await rpc(scope, receive, send)

    return app


def _control(world: Development, listen: Listen, watch: Watch) -> ASGIApp:
    if listen.has_control:
        token, parts = listen.control_token, world.context.parts
        pages = page_of(parts, watch, lambda request: require_token(request, token))
        return control_app(world.context, token, recorder=world.recorder, pages=pages)
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
