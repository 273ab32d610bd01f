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
from x402sim.protocol.phrase import KNOWN
from x402sim.protocol.x402 import Item
from x402sim.world.assembly.parts import Parts, build
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.control.context import Context, merchant, named
from x402sim.world.control.look import accounts, token_info
from x402sim.world.control.messages import OnNetwork, Ready
from x402sim.world.server.http import Server
from x402sim.world.server.listen import Listen, base_url, listening_socket
from x402sim.world.server.log import Form, ServerLog
from x402sim.world.server.log_lines import Names
from x402sim.world.server.mount import world_app
from x402sim.world.server.running import running
from x402sim.world.transport.requests import Requests
from x402sim.world.ui.stored import stored
from x402sim.world.ui.watch import Watch


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


def phrase_of(mnemonic: str | None, *, seed: int | None, chain: ChainBackend) -> str | None:
    """Return the phrase of a server's accounts; None if they are drawn from the seed.

    Without one, the accounts are those that users of anvil and Hardhat know; with a seed, and on an
    existing node, drawn ones: on a public node anybody could take what the known accounts receive.
    """
    is_said = mnemonic is not None or seed is not None or not chain.is_virtual
    return mnemonic if is_said else KNOWN


async def ready_message(parts: Parts, listen: Listen, url: str) -> Ready:
    """Return the ready message: the URLs, the addresses and the funded accounts."""
    network = parts.network
    return Ready(
        event="ready",
        service=url if parts.recipe.has_service else None,
        facilitator=f"{url}/facilitator",
        explorer=f"{url}/explorer",
        rpc=f"{url}/rpc",
        control=f"{url}/_sim" if listen.has_control else None,
        pay_to=checksum(merchant(parts)),
        asset=checksum(network.asset),
        network=network.name,
        chain=parts.recipe.chain.kind,
        chain_id=network.chain_id,
        token=token_info(network),
        accounts=await accounts(Context.of(parts)),
        networks=[
            OnNetwork(
                network=each.name,
                chain_id=each.chain_id,
                rpc=f"{url}/rpc/{each.name}",
                asset=checksum(each.asset),
                token=token_info(each),
            )
            for each in (network, *(more.network for more in parts.also))
        ],
    )


def _sold(parts: Parts, url: str) -> list[Item]:
    from x402sim.service.docs import listing  # with the whole book of examples

    return listing.items(parts.service, url)


async def serve(
    parts: Parts,
    listen: Listen,
    sock: socket.socket,
    on_start: Callable[[uvicorn.Server, Ready], None],
    form: Form | None = None,
) -> None:
    """Serve a world until `should_exit` is set on the server given to `on_start`.

    It is silent unless the form of a log is given.
    """
    url = base_url(listen, sock)
    message = await ready_message(parts, listen, url)
    if parts.recipe.has_service:
        parts.site.catalogue.own = partial(_sold, parts, url)
    requests = Requests(parts.journal, parts.clock)
    watch = Watch(parts.journal, requests, stored(parts))
    names = Names(named(parts), parts.network)
    log = ServerLog(form, names, requests, parts.clock.offset_s) if form else None
    app = requests.around(world_app(parts, listen, watch))
    server = Server(app, lambda: on_start(server, message), on_stop=watch.stop, tls=listen.tls)
    try:
        async with running(parts):
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
