"""Starts a program in Python as a fork of a process that has imported x402sim, for half the CPU.

What is started is a process as any other, in a session of its own, with its own environment,
folder, output, signals and exit code. Only Python's start is not its own: the tests of that use
`subprocess`.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

SERVERS = "x402sim.cli", "x402sim.commands.serve", "x402sim.commands.service"
STUDIES = (
    "x402sim.cli", "x402sim.commands.reproduce", "x402sim.commands.sweep", "x402sim.world.live",
    "x402sim.experiments.folder", "x402sim.experiments.drive", "x402sim.report.save",
)  # fmt: skip
"""What programs of a kind import, and their server before them."""
ENDS_S = 100
_one_at_a_time = Lock()


class Forked:
    """A process, with those methods of `Popen` that tests need."""

    def __init__(
        self,
        *words: str,
        stderr: Any,
        env: dict[str, str],
        cwd: Path | None,
        imports: tuple[str, ...] = SERVERS,
    ) -> None:
        """Start `python WORDS`, which begin with `-m` or a file."""
        told, tells = os.pipe()
        output, writes = os.pipe()
        self._status, says = os.pipe()
        with _one_at_a_time:
            socket.send_fds(_server(imports), [b"."], [told, writes, stderr.fileno(), says])
        for each in told, writes, says:
            os.close(each)
        with open(tells, "w") as file:
            json.dump([words, env, str(cwd or Path.cwd())], file)
        self.stdout = open(output)  # noqa: SIM115 - who starts it closes it
        self.pid = int.from_bytes(os.read(self._status, 4))
        assert self.pid, "the server has ended"
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or the negative signal that ended it; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return what `poll` does, once it has ended; raises `TimeoutExpired`."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("x402sim", timeout or 0)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = int.from_bytes(os.read(self._status, 4), signed=True)
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a study, as `subprocess.run` does with what it writes."""
    with TemporaryFile("w+") as errors:
        process = Forked(*words, stderr=errors, env={**os.environ}, cwd=cwd, imports=STUDIES)
        with process.stdout:
            output = process.stdout.read()
        code = process.wait(ENDS_S)
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, output, errors.read())


@cache
def _server(imports: tuple[str, ...]) -> socket.socket:
    """Return the connection to a server, which ends with this process."""
    ours, its = socket.socketpair()
    with its:
        process = subprocess.Popen([sys.executable, "-P", __file__, *imports], stdin=its)
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def _serve(imports: Sequence[str]) -> None:
    """Fork for each request; return in the fork, where all is as the request wants it."""
    for name in imports:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=0) as requests:
        while (received := socket.recv_fds(requests, 1, 4))[0]:
            told, output, errors, status = fds = received[1]
            if _fork():
                for each in fds:
                    os.close(each)
                _bury()
                continue
            if pid := _fork():
                _wait(pid, status, told, output, errors)
            os.close(status)
            requests.detach()
            _become(told, output, errors)
            return
        _bury()
    sys.exit()


def _fork() -> int:
    with warnings.catch_warnings():  # of threads: those of numpy and pyarrow are idle
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _bury() -> None:
    """Wait for the children that have ended: their CPU time counts as that of the tests."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait(pid: int, status: int, *others: int) -> None:
    """Tell how a child ended, which only its parent learns; this process does nothing else."""
    for each in others:
        os.close(each)
    os.write(status, pid.to_bytes(4))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(status, code.to_bytes(4, signed=True))
    os._exit(0)


def _become(told: int, output: int, errors: int) -> None:
    """Make this process the one that was asked for."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for fd, number in (os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (errors, 2):
        os.dup2(fd, number)
        os.close(fd)
    with open(told) as file:
        sys.argv[:], environment, folder = json.load(file)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.modules.pop("__mp_main__", None)  # what multiprocessing calls the server's own text


if __name__ == "__main__":
    _serve(sys.argv[1:])
    if sys.argv[0] == "-m":
        sys.argv.pop(0)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
