"""How a server is started: a command, an application of Python; or it runs already, at a URL.

The environment of a command is documented in the guide, "Judging servers". Inherited keys of
wallets and URLs of nodes are taken out of it, as they are of a payer's.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp

from x402sim.clock import Clock, stopwatch
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import Network
from x402sim.suite.process import end_group, inherited, last_line
from x402sim.suite.server.raw import send
from x402sim.suite.verdict import NotReady

START_S, STOP_S, LOOK_S = 60.0, 3.0, 0.05
"""How long a server may take until it answers, and to end when it is asked to."""
CLOCK = Clock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a server is given: its port, its facilitator, whom it is to be paid, and in what."""

    port: int
    facilitator_url: str
    rpc_url: str
    pay_to: str
    network: Network
    state_dir: str

    def environment(self) -> dict[str, str]:
        """Return the variables that a command gets."""
        network = self.network
        return {
            "PORT": str(self.port),
            **dict.fromkeys(("FACILITATOR_URL", "X402SIM_FACILITATOR_URL"), self.facilitator_url),
            **dict.fromkeys(("RPC_URL", "X402SIM_RPC_URL"), self.rpc_url),
            "X402SIM_PAY_TO": self.pay_to,
            "X402SIM_NETWORK": network.caip2,
            "X402SIM_NETWORK_NAME": network.name,
            "X402SIM_ASSET": checksum(network.asset),
            "X402SIM_ASSET_NAME": network.token_name,
            "X402SIM_ASSET_VERSION": network.token_version,
            "X402SIM_STATE_DIR": self.state_dir,
        }


class Running(Protocol):
    """A server that runs."""

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""

    @property
    def has_ended(self) -> str:
        """How it ended by itself; empty while it runs."""

    def log(self) -> str:
        """Return what it wrote."""


class Server(Protocol):
    """A server that can be started, as often as there are worlds for it."""

    @property
    def shown(self) -> str:
        """What reports call it."""

    @property
    def most_at_once(self) -> int | None:
        """How many of it can run side by side; None if any number."""

    def start(self, given: Given, folder: Path) -> AbstractAsyncContextManager[Running]:
        """Start it; raises `NotReady`. Leaving it stops it."""


@dataclass(slots=True, eq=False)
class _Process:
    """A command that runs."""

    port: int
    process: asyncio.subprocess.Process
    file: Path

    @property
    def has_ended(self) -> str:
        code = self.process.returncode
        return "" if code is None else f"it ended by itself, exit code {code}"

    def log(self) -> str:
        return self.file.read_bytes()[-100_000:].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Command:
    """A server that is a command; a `port` of its own is a fixed one: then one runs at a time."""

    words: tuple[str, ...]
    port: int | None = None
    shown: str = ""
    look: str = "/"
    """The path at which it is asked whether it answers."""

    @property
    def most_at_once(self) -> int | None:
        """One, at a fixed port."""
        return None if self.port is None else 1

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Start it, in a group of processes of its own, until it answers; raises `NotReady`."""
        port, file = self.port or given.port, folder / "log"
        with file.open("wb") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=inherited(os.environ) | given.environment() | {"PORT": str(port)},
                    start_new_session=True,
                )
            except OSError as wrong:
                raise NotReady(f"{' '.join(self.words)} cannot be started: {wrong}") from wrong
        running = _Process(port, process, file)
        try:
            await _until_it_answers(running, self.look)
            yield running
        finally:
            end_group(process.pid, gently=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            end_group(process.pid)
            await process.wait()


async def _until_it_answers(running: _Process, look: str) -> None:
    elapsed = stopwatch()
    while elapsed() < START_S and not running.has_ended:
        answer = await send(running.port, "GET", look, patience_s=5)
        if answer.status and answer.status // 100 != 5 and not running.has_ended:
            return
        await CLOCK.sleep(LOOK_S)
    how = running.has_ended or f"it did not answer within {START_S:g} s"
    raise NotReady(
        f"GET {look} at port {running.port} is not answered, so it is not ready: {how}; it wrote: "
        f"{last_line(running.log())}. The guide, `Judge your server`, says what it gets"
    )


Make = Callable[[Given], ASGIApp]


@dataclass(slots=True, eq=False)
class _Served:
    port: int
    has_ended: str = ""

    def log(self) -> str:
        return self.has_ended


@dataclass(frozen=True, slots=True)
class App:
    """A server that is an ASGI application, made by a function of what it is given.

    It runs in a thread of its own: what it waits for in a blocking way stops nobody else.
    """

    make: Make
    most_at_once: int | None = None

    @property
    def shown(self) -> str:
        """What reports call it."""
        return getattr(self.make, "__qualname__", repr(self.make))

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Make it, and serve it with uvicorn; raises what making it raises, and `NotReady`."""
        made: Any = self.make(given)
        server = uvicorn.Server(
            uvicorn.Config(
                made,
                port=given.port,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not server.started:
                await CLOCK.sleep(LOOK_S / 5)
            if not server.started:
                raise NotReady(f"{self.shown} does not start: see what it logged")
            yield _Served(given.port)
        finally:
            server.should_exit = True
            await asyncio.to_thread(thread.join)


@dataclass(frozen=True, slots=True)
class AtPort:
    """A server that runs already; its owner has told it which facilitator it uses."""

    port: int
    most_at_once: int | None = 1

    @property
    def shown(self) -> str:
        """What reports call it."""
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Wait until it answers; raises `NotReady`."""
        elapsed = stopwatch()
        while not (await send(self.port, "GET", "/", patience_s=5)).status:
            if elapsed() > START_S / 2:
                raise NotReady(
                    f"{self.shown}: nobody answers. One that the judge is to start: --start COMMAND"
                )
            await CLOCK.sleep(10 * LOOK_S)
        yield _Served(self.port)
