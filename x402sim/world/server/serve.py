"""Opens a world on a socket, announces it, and serves it until it is stopped."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn

from x402sim.clock import Clock
from x402sim.protocol.crypto import checksum
from x402sim.protocol.x402 import Item
from x402sim.world.assembly.background import running
from x402sim.world.assembly.running_world import RunningWorld, build
from x402sim.world.control.common import merchant, named
from x402sim.world.control.look import accounts, token_info
from x402sim.world.control.messages import OnNetwork, Ready
from x402sim.world.server.http import Server
from x402sim.world.server.listen import Listen, base_url, listening_socket
from x402sim.world.server.log import Form, ServerLog
from x402sim.world.server.log_lines import Names
from x402sim.world.server.mount import is_rpc, world_app
from x402sim.world.transport.requests import Requests
from x402sim.world.ui.stored import stored
from x402sim.world.ui.watch import Watch
from x402sim.world.where import InProcess
from x402sim.world.world import World


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
            for each in (there.network for there in world.networks)
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
    names = Names(named(world), world.network)
    log = ServerLog(form, names, requests, world.clock.offset_s) if form else None
    app = requests.around(world_app(world, listen, watch))
    server = Server(
        app,
        lambda: on_start(server, message),
        on_stop=watch.stop,
        has_websocket=is_rpc,
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
