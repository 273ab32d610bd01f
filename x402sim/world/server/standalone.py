"""The service only, against external dependencies: facilitator, explorer and node."""

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import uvicorn

from x402sim.clock import Clock
from x402sim.http.bounded import refuse_cookies
from x402sim.http.exchange import OverClient
from x402sim.rng import Rng
from x402sim.service.setup import Setup
from x402sim.service.state import connected
from x402sim.service.store import Store
from x402sim.world.assembly.process import Process
from x402sim.world.server.http import Server
from x402sim.world.server.running import close


def open_service(setup: Setup, file: Path | None) -> tuple[Process, httpx.AsyncClient]:
    """Return the service with its database, and its HTTP client.

    The database keeps the secret that seals payment ids: ids stay valid after a restart.
    Raises `sqlite3.Error` if the file cannot be used.
    """
    store = Store(file)
    setup = replace(setup, secret=store.secret("ids", setup.secret))
    http = httpx.AsyncClient(timeout=None)  # noqa: S113 - the service has timeouts of its own
    refuse_cookies(http)
    service = connected(setup, store, OverClient(http), Clock(), Rng().stream("payment ids"))
    return Process(service), http


async def serve_alone(
    process: Process,
    http: httpx.AsyncClient,
    sock: socket.socket,
    on_start: Callable[[uvicorn.Server], None],
) -> None:
    """Serve until `should_exit` is set on the server given to `on_start`."""
    server = Server(process, lambda: on_start(server))
    process.start_background()
    try:
        await server.serve(sockets=[sock])
    finally:
        await close(process, http)
