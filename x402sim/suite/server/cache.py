"""A shared cache between payers and a server: that of a world, in front of what is judged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.suite.server.raw import send
from x402sim.suite.started import CLOCK, free_port, served
from x402sim.world.transport.cache import SharedCache, cached

_OF_THE_CONNECTION = ("connection", "keep-alive", "transfer-encoding", "content-length")


def _passing(port: int, patience_s: float) -> ASGIApp:
    """Return an application that passes each request to a port of 127.0.0.1."""

    async def serve(scope: Scope, receive: Receive, answer: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        query = scope["query_string"].decode("latin-1")
        got = await send(
            port,
            scope["method"],
            scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),
            [each for each in request.headers.items() if each[0] not in _OF_THE_CONNECTION],
            await request.body() or None,
            patience_s,
        )
        headers = {n: v for n, v in got.headers.items() if n not in _OF_THE_CONNECTION}
        await Response(got.body, got.status or 502, headers)(scope, receive, answer)

    return serve


@asynccontextmanager
async def behind_cache(cache: SharedCache, port: int, patience_s: float) -> AsyncIterator[int]:
    """Yield the port of a cache in front of a server at `port`."""
    app = cached(_passing(port, patience_s), cache, CLOCK)
    at = free_port()
    async with served(app, at, "the cache"):
        yield at
