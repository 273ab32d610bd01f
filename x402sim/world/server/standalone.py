"""The service only, against external dependencies: facilitator, explorer and node."""

import socket
from collections.abc import Callable
from dataclasses import replace
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path

import httpx
import uvicorn
from starlette.types import ASGIApp

from x402sim.clock import Clock
from x402sim.events import ServiceEvent
from x402sim.http.exchange import OverClient
from x402sim.journal import Journal
from x402sim.protocol.crypto import to_hex
from x402sim.rng import Rng
from x402sim.service.environment import Environment
from x402sim.service.state import connected
from x402sim.service.store import Store
from x402sim.service.store.file import claimed
from x402sim.world.assembly.background import close
from x402sim.world.assembly.process import ServiceProcess
from x402sim.world.server.http import Server
from x402sim.world.server.log import Form, ServerLog
from x402sim.world.server.log_lines import Names
from x402sim.world.transport.requests import Requests


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
        await close(process)
        await http.aclose()
        if log:
            log.close()
