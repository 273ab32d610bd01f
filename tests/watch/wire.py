"""Both ends of a proxy, byte by byte: an upstream that follows a script, and a client on a socket."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import h11

from x402sim.watch.proxy import Exchange, Proxy, Upstream
from x402sim.world.faults import Fault

DEADLINE_S = 20
HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"host"}
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of a coroutine, which must end within `DEADLINE_S`."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **named), DEADLINE_S))

    return run


@dataclass
class Heard:
    """A message as its reader understood it, without what belongs to one connection."""

    first: tuple[Any, ...] = ()
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    interim: list[tuple[int, list[tuple[bytes, bytes]]]] = field(default_factory=list)
    ended: str = ""
    """How it ended: "whole", or the error."""
    rest: bytes = b""


def _end_to_end(headers: Any) -> list[tuple[bytes, bytes]]:
    return [each for each in headers.raw_items() if each[0].lower() not in HOP]


async def hear(reader: asyncio.StreamReader, role: Any, *, sent: Any = None) -> Heard:
    """Read one message; `role` is ours, and `sent` the request that it answers."""
    http, heard = h11.Connection(role), Heard()
    if sent is not None:
        http.send(sent)
        http.send(h11.EndOfMessage())
    while True:
        try:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
                continue
        except (h11.RemoteProtocolError, OSError) as error:
            heard.ended = type(error).__name__
            return heard
        match event:
            case h11.Request():
                heard.first = (event.method, event.target)
                heard.headers = _end_to_end(event.headers)
            case h11.InformationalResponse():
                heard.interim.append((event.status_code, _end_to_end(event.headers)))
                if event.status_code == 101:
                    heard.ended, heard.rest = "upgraded", http.trailing_data[0]
                    return heard
            case h11.Response():
                heard.first = (event.status_code, event.reason)
                heard.headers = _end_to_end(event.headers)
            case h11.Data():
                heard.body += event.data
            case h11.EndOfMessage():
                heard.trailers = list(event.headers.raw_items())
                heard.ended = "whole"
                return heard
            case _:
                heard.ended = "closed"
                return heard


@asynccontextmanager
async def upstream(script: Script) -> AsyncIterator[int]:
    """Serve what a script does with each connection; yields the port."""

    tasks: set[Any] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            await script(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*tasks, return_exceptions=True)


class Watcher:
    """An observer that keeps what it saw, and strikes with the faults that it is given."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = list(faults)
        self.requests: list[str] = []
        self.seen: list[Exchange] = []

    @property
    def can_strike(self) -> bool:
        return bool(self.faults)

    def requested(self, exchange: Exchange) -> None:
        self.requests.append(f"{exchange.method} {exchange.target}")

    def fault(self, exchange: Exchange) -> Fault | None:
        return self.faults.pop(0) if self.faults else None

    def ended(self, exchange: Exchange) -> None:
        self.seen.append(exchange)

    async def has_seen(self) -> None:
        """Return when an exchange has ended."""
        while not self.seen:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def proxied(port: int, watcher: Watcher, path: str = "") -> AsyncIterator[int]:
    """Stand before a port; yields the proxy's port."""
    sock = socket.create_server(("127.0.0.1", 0))
    to = Upstream.at(f"http://127.0.0.1:{port}{path}")
    proxy = Proxy(to, watcher, number=itertools.count(1).__next__)
    await proxy.start(sock)
    try:
        yield sock.getsockname()[1]
    finally:
        await proxy.close()


@asynccontextmanager
async def dialed(
    script: Script, watcher: Watcher | None = None, **options: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to an upstream through a proxy; yields the client's end."""
    async with upstream(script) as port, proxied(port, watcher or Watcher()) as between:
        reader, writer = await asyncio.open_connection("127.0.0.1", between, **options)
        try:
            yield reader, writer
        finally:
            writer.close()


async def send(port: int, request: bytes, *, method: bytes = b"GET", eof: bool = False) -> Heard:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        if eof:
            writer.write_eof()
        sent = h11.Request(method=method, target="/", headers=[("Host", "x")])
        return await hear(reader, h11.CLIENT, sent=sent)
    finally:
        writer.close()
