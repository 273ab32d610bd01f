"""Starts a command by the keeper: inherited variables, kept output, end."""

import asyncio
import atexit
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from x402sim.suite.verdict import NotReady
from x402sim.text.environment import passing
from x402sim.text.program import KEEPER_WORD, STANDALONE

KEEPER = Path(__file__).with_name("keeper.py")
MOST_WRITTEN = 1 << 22
"""Bytes kept of an output, half from the start, half from the end: a subject may write any
amount."""
MOST_BYTES = 1 << 22
"""The longest line read from a command that speaks."""
END_S = 2.0
"""Seconds for reading the rest of the output after the command's end."""
PIECE = 1 << 16
"""The most bytes of one read."""
_OWN = {"NO_PROXY": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1"}


@dataclass(slots=True, eq=False)
class Written:
    """The beginning and the end of a command's output."""

    first: bytearray = field(default_factory=bytearray)
    last: bytearray = field(default_factory=bytearray)
    left_out: int = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read the whole stream."""
        half = MOST_WRITTEN // 2
        while piece := await stream.read(PIECE):
            room = half - len(self.first)
            self.first += piece[:room]
            self.last += piece[room:]
            if len(self.last) > MOST_WRITTEN:
                self.left_out += len(self.last) - half
                del self.last[:-half]

    @property
    def text(self) -> str:
        """The whole output, or beginning and end, and between them the number of bytes left out."""
        between = f"\n… {self.left_out} bytes …\n".encode() if self.left_out else b""
        return (self.first + between + self.last).decode("utf-8", "replace")


@dataclass(slots=True, eq=False, kw_only=True)
class Kept:
    """A started command; `returncode` is None during the run, and below 0 after a signal.

    `log` is the standard error, `out` the standard output; both may be one. A command that speaks
    has `stdin` and `stdout` instead. After the end, `cpu_s` is the CPU time of the command and of
    all processes it started.
    """

    pid: int
    out: Written
    log: Written
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    to_keeper: asyncio.StreamWriter
    returncode: int | None = None
    cpu_s: float = 0

    def ask_to_end(self) -> None:
        """Send SIGTERM, as a supervisor does."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the command and every process it started."""
        self._signal(signal.SIGKILL)
        if not self.to_keeper.is_closing():
            with suppress(OSError):  # the command has ended
                self.to_keeper.write_eof()

    def _signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def filled(words: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Return a command's words with the judge's variables in them: "--port $PORT" gets the port.

    Programs with options and no variables, such as uvicorn, need no shell. Other variables stay.
    """

    def value(found: re.Match[str]) -> str:
        return environment.get(found[1] or found[2], found[0])

    return [re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, each) for each in words]


@asynccontextmanager
async def kept(
    words: Sequence[str],
    environment: Mapping[str, str],
    *,
    also: Iterable[str] = (),
    speaks: bool = False,
    in_one: bool = False,
) -> AsyncIterator[tuple[Kept, asyncio.Task[None]]]:
    """Start a command with the variables that pass, and `environment`; kill the command at the end.

    Yields the command, and a task that is done once the command has ended and its output is read.
    The words may name the variables (`filled`). `also` names further variables to inherit. A
    command that `speaks` gets requests and answers by pipes; `in_one`, both outputs are the log.
    Raises `OSError` if the command does not exist, and `NotReady` where no keeper runs.
    """
    if sys.platform == "win32":
        raise NotReady("a command is judged on Linux and macOS: here, start it and give its URL")
    inherits = passing(os.environ, also) | _OWN
    if shutil.which(words[0], path=inherits.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(2, os.strerror(2), words[0])
    hide()
    async with AsyncExitStack() as stack:
        ours, theirs = socket.socketpair()
        (in_, to_in), (from_out, out), (from_log, log) = os.pipe(), os.pipe(), os.pipe()
        try:
            streams = [in_, out, out if in_one else log]
            socket.send_fds(_keeper(), [b"\n"], [theirs.fileno(), *streams])
        finally:
            theirs.close()
            for each in (in_, out, log):
                os.close(each)
        told, to_keeper = await asyncio.open_connection(sock=ours)
        stack.callback(to_keeper.close)
        stdin = await _writer(stack, to_in)
        stdout = await _reader(stack, from_out, MOST_BYTES if speaks else PIECE)
        stderr = await _reader(stack, from_log, PIECE)
        task = {
            "words": filled(words, environment),
            "environment": {**inherits, **environment},
            "folder": os.getcwd(),
        }
        to_keeper.write(json.dumps(task).encode() + b"\n")
        written = Written()
        if not (pid := await told.readline()):
            raise OSError("its keeper has ended")
        command = Kept(
            pid=int(pid),
            out=written if in_one else Written(),
            log=written,
            stdin=stdin,
            stdout=stdout,
            to_keeper=to_keeper,
        )
        reading = [asyncio.create_task(command.log.read(stderr))]
        if not speaks:
            stdin.close()
            reading.append(asyncio.create_task(command.out.read(stdout)))

        async def end() -> None:
            code, cpu_s = (await told.readline() or b"-9 0").split()
            await asyncio.wait(reading, timeout=END_S)  # another user's process may hold the pipe
            command.returncode, command.cpu_s = int(code), float(cpu_s)

        ended = asyncio.create_task(end())
        try:
            yield command, ended
        finally:
            command.kill()
            await asyncio.shield(ended)


async def _reader(stack: AsyncExitStack, pipe: int, limit: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb")
    )
    stack.callback(transport.close)
    return reader


async def _writer(stack: AsyncExitStack, pipe: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(pipe, "wb")
    )
    stack.callback(transport.close)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _keeper() -> socket.socket:
    """Return the socket to this process's keeper; starts the keeper if none runs."""
    process, its_socket = _started()
    if process.poll() is not None:  # a subject may have killed the keeper
        _started.cache_clear()
        process, its_socket = _started()
    return its_socket


@cache
def _started() -> "tuple[subprocess.Popen[bytes], socket.socket]":
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own program
            # the standalone program is no Python that runs a file: `cli.main` knows the word
            [sys.executable, *([KEEPER_WORD] if STANDALONE else ["-I", "-S", str(KEEPER)])],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env=passing(os.environ),
            start_new_session=True,
        )
    atexit.register(_end, process, ours)
    return process, ours


def _end(process: "subprocess.Popen[bytes]", its_socket: socket.socket) -> None:
    its_socket.close()  # ends the keeper, unless a fork of this process holds the socket
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_S)


@cache
def hide() -> None:
    """Blank the variables that do not pass in the text for other processes, /proc/PID/environ.

    /proc shows the memory this process started with. `os.environ` keeps the variables, and C's
    `getenv` finds copies.
    """
    if sys.platform != "linux":
        return
    for name in os.environ.keys() - passing(os.environ).keys():
        os.environ[name] = os.environ[name]
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    place, end = int(fields[47]), int(fields[48])  # env_start, env_end: the 50th and the 51st
    for variable in ctypes.string_at(place, end - place).split(b"\0"):
        key, _, value = variable.partition(b"=")
        if not passing({os.fsdecode(key): ""}):
            ctypes.memset(place + len(variable) - len(value), 0, len(value))
        place += len(variable) + 1
