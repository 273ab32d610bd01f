"""Starts a program in Python as a fork of a process that has imported x402sim, for half the CPU.

The workers of one run of the tests share such a process; the first that needs it starts it. What is started is a process as any other, in a session of its own, with its own environment,
folder, output, signals and exit code. Only Python's start is not its own: the tests of that use
`subprocess`.
"""

import fcntl
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import Any

SERVERS = "x402sim.cli", "x402sim.commands.serve", "x402sim.commands.service"
STUDIES = (
    "x402sim.cli", "x402sim.commands.reproduce", "x402sim.commands.sweep", "x402sim.story.live",
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
        cwd: Path | None = None,
        imports: tuple[str, ...] = SERVERS,
    ) -> None:
        """Start `python WORDS`, which begin with `-m` or a file."""
        told, tells = os.pipe()
        output, writes = os.pipe()
        self._status, says = os.pipe()
        with _one_at_a_time, socket.socket(fileno=os.dup(_server(imports))) as server:
            socket.send_fds(server, [b"."], [told, writes, stderr.fileno(), says])
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
def _server(imports: tuple[str, ...]) -> int:
    """Return a connection to the server of this run, which ends with its last connection.

    This process only closes the descriptor at its end: other workers may still use the server. A
    Popen or a socket would warn then.
    """
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    named = sha256(repr((__file__, run, imports)).encode()).hexdigest()[:16]
    path = Path(gettempdir()) / f"x402sim-{named}"
    ours = socket.socket(socket.AF_UNIX)
    with _one_server_at_a_time():
        try:
            ours.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)  # of a server that was killed
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(str(path))
                listening.listen()
                words = [sys.executable, "-P", __file__, *imports]
                stdin = (os.POSIX_SPAWN_DUP2, listening.fileno(), 0)
                os.posix_spawn(sys.executable, words, os.environ, file_actions=[stdin])
            ours.connect(str(path))
    return ours.detach()


@contextmanager
def _one_server_at_a_time() -> Iterator[None]:
    """Let none look for a server in the block while another begins or ends."""
    with open(__file__) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _serve(imports: Sequence[str]) -> None:
    """Fork for each request; return in the fork, where all is as the request wants it."""
    for name in imports:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=0) as listening:
        given = [listening.accept()[0]]
        while given:
            for ready in select.select([listening, *given], [], [])[0]:
                if ready is listening:
                    given.append(listening.accept()[0])
                elif fds := socket.recv_fds(ready, 1, 4)[1]:
                    if _is_forked(fds):
                        for each in given:
                            each.close()
                        listening.detach()
                        _become(*fds[:3])
                        return
                else:
                    given.remove(ready)
                    ready.close()
            _bury()
            if not given:
                with _one_server_at_a_time():
                    if select.select([listening], [], [], 0)[0]:
                        given.append(listening.accept()[0])
                    else:
                        Path(listening.getsockname()).unlink()
    sys.exit()


def _is_forked(fds: Sequence[int]) -> bool:
    """Fork, and say whether this is the process that was asked for."""
    told, output, errors, status = fds
    if _fork():
        for each in fds:
            os.close(each)
        return False
    if pid := _fork():
        _wait(pid, status, told, output, errors)
    os.close(status)
    return True


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
