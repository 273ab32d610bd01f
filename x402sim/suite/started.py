"""Starts a listening subject anew for each world: a command, or an ASGI application."""

import asyncio
import shlex
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from x402sim.clock import Clock
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import Network
from x402sim.rng import Rng
from x402sim.suite.kept import Kept, kept
from x402sim.suite.subject import LOOK_S, URL_LOOK_S, Tell, in_vain, until_ready, waiting
from x402sim.suite.verdict import NotReady
from x402sim.text.keys import secret_in


def last_line(text: str) -> str:
    """Return the last line with something in it, or "nothing"."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "nothing"


START_S, WAIT_S = 60.0, 30.0
"""How long a command may take until it answers; and one that its owner starts, beside the judge."""
STOP_S = 3.0
"""How long it may take to end when it is asked to."""
CLOCK = Clock()

_ports = Rng().stream("ports")
FIRST_PORT, LAST_PORT = 10_000, 32_000
"""Where ports are looked for: those above are given to whoever asks for any, and a subject takes
seconds until it listens.
"""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    while True:
        port = _ports.randrange(FIRST_PORT, LAST_PORT)
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


@dataclass(slots=True, eq=False)
class Running:
    """A running subject. `url` has no slash at the end; `command` is None if no command was
    started.

    `kill` ends the subject at once.
    """

    url: str
    command: Kept | None = None
    kill: Callable[[], None] = lambda: None

    @property
    def port(self) -> int:
        """Where it listens."""
        return urlsplit(self.url).port or 80

    @property
    def has_ended(self) -> str:
        """How it ended by itself; empty while it runs."""
        code = self.command.returncode if self.command else None
        return "" if code is None else f"it ended by itself, exit code {code}"

    def log(self) -> str:
        """Return the output; empty without a command."""
        return self.command.log.text if self.command else ""


def variables(network: Network) -> dict[str, str]:
    """Return the variables that tell a command which network and token it is to use."""
    return {
        "X402SIM_NETWORK": network.caip2,
        "X402SIM_NETWORK_NAME": network.name,
        "X402SIM_ASSET": checksum(network.asset),
        "X402SIM_ASSET_NAME": network.token_name,
        "X402SIM_ASSET_VERSION": network.token_version,
    }


AnyGiven = TypeVar("AnyGiven", bound="Given")
ToStart = TypeVar("ToStart", bound="Given", contravariant=True)


class Given(Protocol):
    """What a subject is given at its start, such as the port that it is to listen at."""

    @property
    def port(self) -> int:
        """The port."""

    def environment(self) -> dict[str, str]:
        """Return the variables that a command gets."""


class Startable(Protocol[ToStart]):
    """A subject that can be started, as often as there are worlds for it."""

    @property
    def shown(self) -> str:
        """What reports call it."""

    @property
    def most_at_once(self) -> int | None:
        """How many of it can run side by side; None if any number."""

    def start(self, given: ToStart) -> AbstractAsyncContextManager[Running]:
        """Start it; raises `NotReady`. Leaving it stops it."""


@dataclass(frozen=True, slots=True)
class App(Generic[AnyGiven]):
    """A subject that is an ASGI application, made by a function of what it is given."""

    make: Callable[[AnyGiven], ASGIApp]

    @property
    def most_at_once(self) -> None:
        """Any number."""

    @property
    def shown(self) -> str:
        """What reports call it."""
        return getattr(self.make, "__qualname__", repr(self.make))

    @asynccontextmanager
    async def start(self, given: AnyGiven) -> AsyncIterator[Running]:
        """Make it, and serve it with uvicorn; raises what making it raises, and `NotReady`."""
        async with served(self.make(given), given.port, self.shown) as running:
            yield running


@dataclass(frozen=True, slots=True)
class RunsAlready:
    """A subject that runs already, once; its owner has set which world it is in."""

    url: str
    wait_s: float = WAIT_S
    tell: Tell = lambda text: None

    async def once(self, look: Callable[[], Awaitable[str]]) -> Running:
        """Wait until `look` finds nothing in the way of it; raises `NotReady`."""
        on_wait = waiting(self.url, self.wait_s, self.tell)
        if why := await until_ready(look, self.wait_s, every_s=URL_LOOK_S, on_wait=on_wait):
            in_the_end = in_vain(self.url, why, self.wait_s)
            raise NotReady(f"{in_the_end}. One that the judge is to start: --start COMMAND")
        return Running(self.url)

    @property
    def most_at_once(self) -> int:
        """One."""
        return 1

    @property
    def shown(self) -> str:
        """What reports call it."""
        return self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[AnyGiven]):
    """A subject that is a command.

    url
        Where it listens, with {port} for a port that the judge gives. A URL with a port of its own
        is a fixed port: then one runs at a time.
    answers
        Tells whether the subject at a URL is ready.
    failure, guide, ended
        What is wrong with one that is not, with {url}; the page that helps; and what is added for
        one that ended by itself.
    also
        Names of further variables to inherit.
    """

    words: tuple[str, ...]
    url: str
    answers: Callable[[str], Awaitable[bool]]
    failure: str
    guide: str
    ended: str = ""
    shown: str = ""
    wait_s: float = START_S
    also: tuple[str, ...] = ()

    @property
    def most_at_once(self) -> int | None:
        """One, at a fixed port."""
        return None if "{port}" in self.url else 1

    @asynccontextmanager
    async def start(self, given: AnyGiven) -> AsyncIterator[Running]:
        """Start it, in a group of processes of its own, until it answers; raises `NotReady`."""
        port = urlsplit(self.url).port or 80 if self.most_at_once else given.port
        url = self.url.replace("{port}", str(port))
        environment = {**given.environment(), "PORT": str(port)}
        async with command(self.words, environment, url, also=self.also) as running:

            def not_ready(how: str) -> NotReady:
                return NotReady(
                    f"{self.failure.replace('{url}', url)}, so it is not ready: {how}; it wrote: "
                    f"{last_line(running.log())}. The guide, `{self.guide}`, says what it gets"
                )

            async def look() -> str:
                is_there = not running.has_ended and await self.answers(url)
                if running.has_ended:  # then another answers there
                    raise not_ready(running.has_ended + self.ended)
                return "" if is_there else f"it did not answer within {self.wait_s:g} s"

            if how := await until_ready(look, self.wait_s):
                raise not_ready(how)
            yield running


def not_started(words: Sequence[str], wrong: OSError) -> str:
    """Return why a command cannot be started; a secret among its words is described instead."""
    shown = secret_in(words) or shlex.join(words)
    return f"{shown} cannot be started: {wrong.strerror}"


@asynccontextmanager
async def command(
    words: Sequence[str],
    environment: Mapping[str, str],
    url: str,
    *,
    also: Sequence[str] = (),
    speaks: bool = False,
) -> AsyncIterator[Running]:
    """Start a command as `kept` does; end the command as a supervisor does, by SIGTERM, then
    SIGKILL.

    Raises `NotReady` if the command cannot be started.
    """
    starting = kept(words, environment, also=also, speaks=speaks, in_one=not speaks)
    async with AsyncExitStack() as stack:
        try:
            it, ended = await stack.enter_async_context(starting)
        except OSError as wrong:
            raise NotReady(not_started(words, wrong)) from wrong
        try:
            yield Running(url, it, it.kill)
        finally:
            it.ask_to_end()
            await asyncio.wait([ended], timeout=STOP_S)


@asynccontextmanager
async def served(app: Any, port: int, shown: str) -> AsyncIterator[Running]:
    """Serve an ASGI application at a port, with uvicorn; raises `NotReady`.

    It has a thread of its own: what it waits for in a blocking way stops nobody else.
    """
    server = uvicorn.Server(
        uvicorn.Config(
            app, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()

    def kill() -> None:
        server.should_exit = server.force_exit = True

    try:
        while thread.is_alive() and not server.started:
            await CLOCK.sleep(LOOK_S / 5)
        if not server.started:
            raise NotReady(f"{shown} does not start: see what it logged")
        yield Running(f"http://127.0.0.1:{port}", kill=kill)
    finally:
        server.should_exit = True
        await asyncio.to_thread(thread.join)
