"""Starts a listening subject anew for each world: a command, or an ASGI application."""

import asyncio
import os
import re
import shlex
import signal
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import takewhile
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

_ERROR = re.compile(r"[\w.:/\[( -]{0,40}?(Error|ERROR|error|[Ee]xception|FATAL|fatal|panic)")
_NODE = re.compile(r"Node\.js v[\d.]+|[{}]+")
"""Lines without news at the end of an error of Node."""


def last_line(text: str) -> str:
    """Return the last line with something in it; empty without one."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


def error_lines(text: str) -> str:
    """Return the last error that a program wrote, in one line; else its last line, or "nothing".

    Of a stack of calls only the error's own lines are of use: "Error: Cannot find module
    '/shop.js'", not "Node.js v20.20.2" at the end.
    """
    lines = [each for each in text.splitlines() if each.strip() and not _NODE.fullmatch(each)]
    starts = [place for place, line in enumerate(lines) if _ERROR.match(line)]
    if not starts:
        flush = [each for each in lines if not each[0].isspace()]  # Ruby's stack comes last
        return last_line("\n".join(flush or lines)) or "nothing"
    first, *more = lines[starts[-1] :]
    own = list(takewhile(lambda line: not line[0].isspace(), more))
    return " ".join([first, *own[:2]]).strip()[:300]


START_S, WAIT_S = 60.0, 30.0
"""Seconds that a command, and a subject started by its owner, may take until the first answer."""
STOP_S = 3.0
"""Seconds that a command may take to end after SIGTERM."""
CLOCK = Clock()

_ports = Rng().stream("ports")
FIRST_PORT, LAST_PORT = 10_000, 32_000
"""Free ports are looked for below 32,000: systems hand out higher ports to any program, and a
subject takes seconds until it listens.
"""
RESERVED = 64
_reserved = deque[int]()


def free_port() -> int:
    """Return a port of 127.0.0.1 without a listener, which no other x402sim returns meanwhile.

    Between this call and the listener of a started program, another process may look for a port,
    too. A UDP socket at another number therefore reserves the port: it is open until 64 more ports
    are taken, or this process ends.
    """
    while True:
        port = _ports.randrange(FIRST_PORT, LAST_PORT)
        reserved = socket.socket(type=socket.SOCK_DGRAM)
        try:
            reserved.bind(("127.0.0.1", port + LAST_PORT))
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", port))
        except OSError:
            reserved.close()
            continue
        _reserved.append(reserved.detach())  # the end of the process closes the rest
        if len(_reserved) > RESERVED:
            os.close(_reserved.popleft())
        return port


@dataclass(slots=True, eq=False)
class Running:
    """A running subject.

    `url` has no slash at the end; `command` is None if no command was started. `kill` ends the
    subject at once.
    """

    url: str
    command: Kept | None = None
    kill: Callable[[], None] = lambda: None

    @property
    def port(self) -> int:
        """The port of the URL."""
        return urlsplit(self.url).port or 80

    @property
    def has_ended(self) -> str:
        """How the command ended on its own; empty while it runs."""
        code = self.command.returncode if self.command else None
        if self.was_killed:
            return "it was killed (SIGKILL), as by a machine without memory"
        return "" if code is None else f"it ended by itself, exit code {code}"

    @property
    def was_killed(self) -> bool:
        """Whether the command ended by SIGKILL: by a machine without memory, and not by itself."""
        return self.command is not None and self.command.returncode == -signal.SIGKILL

    def log(self) -> str:
        """Return the output; empty without a command."""
        return self.command.log.text if self.command else ""

    def ending(self) -> str:
        """Return the end of the output, in a sentence for a report; empty without a command.

        After an end by itself, the sentence has the last error of the output.
        """
        if not self.command:
            return ""
        if self.has_ended:
            return f"it wrote: {error_lines(self.log())}"
        line = last_line(self.log())
        return f"its last line: {line}" if line else "it logged no line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The settings of a subject's start: the port to listen at, the network and its token."""

    port: int
    network: Network

    def environment(self) -> dict[str, str]:
        """Return the environment variables for a command."""
        return {
            "PORT": str(self.port),
            "X402SIM_NETWORK": self.network.caip2,
            "X402SIM_NETWORK_NAME": self.network.name,
            "X402SIM_ASSET": checksum(self.network.asset),
            "X402SIM_ASSET_NAME": self.network.token_name,
            "X402SIM_ASSET_VERSION": self.network.token_version,
        }


AnyGiven = TypeVar("AnyGiven", bound=Given)
ToStart = TypeVar("ToStart", bound=Given, contravariant=True)


class Startable(Protocol[ToStart]):
    """A subject that can be started once for each world."""

    @property
    def shown(self) -> str:
        """The subject's name in reports."""

    @property
    def is_single(self) -> bool:
        """Whether only one can run at a time."""

    def start(self, given: ToStart) -> AbstractAsyncContextManager[Running]:
        """Start the subject; stop it at the end of the block. Raises `NotReady`."""


@dataclass(frozen=True, slots=True)
class App(Generic[AnyGiven]):
    """A subject that is an ASGI application; `make` makes the application from its settings."""

    make: Callable[[AnyGiven], ASGIApp]

    @property
    def is_single(self) -> bool:
        """Any number can run side by side."""
        return False

    @property
    def shown(self) -> str:
        """The name of the function."""
        return getattr(self.make, "__qualname__", repr(self.make))

    @asynccontextmanager
    async def start(self, given: AnyGiven) -> AsyncIterator[Running]:
        """Make the application, and serve it with uvicorn; raises `NotReady` and whatever `make`
        raises."""
        async with served(self.make(given), given.port, self.shown) as running:
            yield running


@dataclass(frozen=True, slots=True)
class RunsAlready:
    """A subject that runs already, once; its owner has configured its world."""

    url: str
    wait_s: float = WAIT_S
    tell: Tell = lambda text: None

    async def once(self, look: Callable[[], Awaitable[str]]) -> Running:
        """Wait until `look` returns no obstacle; raises `NotReady`."""
        on_wait = waiting(self.url, self.wait_s, self.tell)
        if why := await until_ready(look, self.wait_s, every_s=URL_LOOK_S, on_wait=on_wait):
            in_the_end = in_vain(self.url, why, self.wait_s)
            raise NotReady(f"{in_the_end}. One that the judge is to start: --start COMMAND")
        return Running(self.url)

    @property
    def is_single(self) -> bool:
        """It runs once."""
        return True

    @property
    def shown(self) -> str:
        """The URL."""
        return self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[AnyGiven]):
    """A subject that is a command.

    url
        Where the command listens, with {port} for a port that the judge gives. Commands at a URL
        with a port of its own run one at a time.
    answers
        Tells whether the subject at a URL is ready.
    failure, guide, ended
        The message for a command that is not ready, with {url}; the page of the guide that helps;
        and an addition for a command that ended on its own.
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
    def is_single(self) -> bool:
        """Whether its port is fixed."""
        return "{port}" not in self.url

    @asynccontextmanager
    async def start(self, given: AnyGiven) -> AsyncIterator[Running]:
        """Start the command, in its own group of processes, until it answers; raises `NotReady`."""
        port = Running(self.url).port if self.is_single else given.port
        url = self.url.replace("{port}", str(port))
        environment = {**given.environment(), "PORT": str(port)}
        async with command(self.words, environment, url, also=self.also) as running:

            def not_ready(how: str) -> NotReady:
                return NotReady(
                    f"{self.failure.replace('{url}', url)}, so it is not ready: {how}; it wrote: "
                    f"{error_lines(running.log())}. The guide, `{self.guide}`, says what it gets"
                )

            async def look() -> str:
                is_there = await self.answers(url)
                if running.has_ended:  # another program answers there
                    raise not_ready(running.has_ended + self.ended)
                return "" if is_there else f"it did not answer within {self.wait_s:g} s"

            if how := await until_ready(look, self.wait_s):
                raise not_ready(how)
            yield running


def not_started(words: Sequence[str], wrong: OSError) -> str:
    """Return why a command cannot be started, without secrets of the command line."""
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
    """Start a command as `kept` does; end the command as a supervisor does: SIGTERM, then SIGKILL.

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

    The application has its own thread, so a blocking call in it stops no other work.
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
