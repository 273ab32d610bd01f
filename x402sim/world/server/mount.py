"""Mounts every part of a world on one port, and restricts who may call it."""

import asyncio
import re
from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim.http import web
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS
from x402sim.world.assembly.parts import Parts
from x402sim.world.control.app import control_app
from x402sim.world.control.recorder import Recorder
from x402sim.world.server.listen import LOOPBACK, Listen
from x402sim.world.server.origins import pattern

EXPOSED = (REQUIRED_HEADER, *RESPONSE_HEADERS.values(), "X-Payment-Id")
"""The headers of answers that a page of another origin may read."""


def world_app(parts: Parts, listen: Listen) -> ASGIApp:
    """Return the application that routes each path to its part."""
    mounted: dict[str, ASGIApp] = {
        "/facilitator": parts.facilitator_app,
        "/explorer": parts.explorer_app,
        "/rpc": _own_programs_only(parts.rpc_app, listen, listen.rpc_callers),
        "/_sim": _own_programs_only(_control(parts, listen), listen, listen.allow_origins),
    }

    service_app = parts.service_app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        first = "/" + scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
        part = mounted.get(first)
        if part is not None:
            scope = {**scope, "root_path": scope.get("root_path", "") + first}
            if scope["path"] == first:
                scope["path"] = first + "/"
        await _until_stopped(part or service_app, scope, receive, send)

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


async def _until_stopped(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 503 to requests that are unfinished when a stopping server's grace period ends."""
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
        return control_app(parts, listen.control_token, recorder=Recorder(parts))
    return web.error(
        403, "The control API is off", f"on host {listen.host} it needs --control-token"
    )


def _own_programs_only(app: ASGIApp, listen: Listen, origins: Sequence[str]) -> ASGIApp:
    """Reject requests of web pages: no Origin but these, and on loopback no foreign Host.

    Otherwise any page in a browser on this machine could send commands here.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        origin = headers.get(b"origin")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        is_foreign = (
            origin is not None
            and not any(re.fullmatch(pattern(each), origin) for each in origins)
            and origin.split("://", 1)[-1] != host
        )
        if is_foreign or (listen.is_local and name.strip("[]") not in LOOPBACK):
            hint = f"origin {origin}, host {host}; --allow-origin admits a page, and --rpc-origin "
            hint += "a wallet to /rpc"
            refusal = web.error(403, "Not for web pages", hint)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guard
