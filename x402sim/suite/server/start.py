"""How a server is started: a command, an application of Python; or it runs already, at a URL.

The environment of a command is documented in the guide, "Judging servers". Inherited keys of
wallets and URLs of nodes are taken out of it, as they are of a payer's.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from starlette.types import ASGIApp

from x402sim.clock import stopwatch
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import Network
from x402sim.suite.process import last_line
from x402sim.suite.server.raw import send
from x402sim.suite.started import CLOCK, LOOK_S, START_S, Running, command, served
from x402sim.suite.verdict import NotReady


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
        given = replace(given, port=self.port or given.port)
        url = f"http://127.0.0.1:{given.port}"
        async with command(self.words, given.environment(), folder, url) as running:
            await _until_it_answers(running, self.look)
            yield running


async def _until_it_answers(running: Running, look: str) -> None:
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


@dataclass(frozen=True, slots=True)
class App:
    """A server that is an ASGI application, made by a function of what it is given."""

    make: Make
    most_at_once: int | None = None

    @property
    def shown(self) -> str:
        """What reports call it."""
        return getattr(self.make, "__qualname__", repr(self.make))

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Make it, and serve it with uvicorn; raises what making it raises, and `NotReady`."""
        async with served(self.make(given), given.port, self.shown) as running:
            yield running


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
        yield Running(self.shown)
