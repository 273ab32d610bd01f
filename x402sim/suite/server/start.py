"""How a server is started: a command, an application of Python; or it runs already, at a URL.

The environment of a command is documented in the guide, "Judging servers". Inherited keys of
wallets and URLs of nodes are taken out of it, as they are of a payer's.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.types import ASGIApp

from x402sim.protocol.networks import Network
from x402sim.suite.server.raw import send
from x402sim.suite.started import (
    START_S,
    Running,
    RunsAlready,
    Startable,
    command,
    until_it_answers,
    variables,
)
from x402sim.suite.waiting import NOBODY, STARTING


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
        return {
            "PORT": str(self.port),
            **dict.fromkeys(("FACILITATOR_URL", "X402SIM_FACILITATOR_URL"), self.facilitator_url),
            **dict.fromkeys(("RPC_URL", "X402SIM_RPC_URL"), self.rpc_url),
            "X402SIM_PAY_TO": self.pay_to,
            **variables(self.network),
            "X402SIM_STATE_DIR": self.state_dir,
        }


Server = Startable[Given]
"""A server that can be started."""


@dataclass(frozen=True, slots=True)
class Command:
    """A server that is a command; a `port` of its own is a fixed one: then one runs at a time."""

    words: tuple[str, ...]
    port: int | None = None
    shown: str = ""
    look: str = "/"
    """The path at which it is asked whether it answers."""
    wait_s: float = START_S

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

            async def answers() -> bool:
                # an MCP server may answer GET by a stream that never ends
                answer = await send(
                    running.port,
                    "GET",
                    self.look,
                    patience_s=5,
                    is_enough=lambda head, _: bool(head),
                )
                return bool(answer.status) and answer.status // 100 != 5

            failure = f"GET {self.look} at port {running.port} is not answered"
            await until_it_answers(running, answers, self.wait_s, failure, "Judge your server")
            yield running


@dataclass(frozen=True, slots=True)
class Spoken:
    """A command that is an MCP server by its standard input and output."""

    words: tuple[str, ...]
    shown: str = ""
    most_at_once: int | None = None

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Start it, in a group of processes of its own; raises `NotReady`."""
        environment, nowhere = given.environment(), "http://127.0.0.1:9"
        async with command(self.words, environment, folder, nowhere, speaks=True) as running:
            yield running


Make = Callable[[Given], ASGIApp]


@dataclass(frozen=True, slots=True)
class AtPort(RunsAlready):
    """A server that runs already; its owner has told it which facilitator it uses."""

    @asynccontextmanager
    async def start(self, given: Given, folder: Path) -> AsyncIterator[Running]:
        """Wait until it answers; raises `NotReady`."""
        port = Running(self.url).port

        async def look() -> str:
            status = (await send(port, "GET", "/", patience_s=5)).status
            return f"it answers {status}" if status in STARTING else "" if status else NOBODY

        yield await self.once(look)
