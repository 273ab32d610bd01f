"""Keeps the commands a judge starts: no process of a command outlives the command or the judge.

    python -I -S keeper.py

The keeper is a process without this package, since a start is a fork then and takes 3 ms. On its
standard input, a socket, the judge passes for each start a second socket and the command's standard
input, output and error. The second socket brings the command as a line of JSON (words, environment,
folder), and takes back the command's pid, which leads a session, and at the end its exit code
(below 0 for a signal) and CPU time.

When a command ends, or its socket closes because the judge ended, the keeper kills every process
the command started. On Linux that includes processes outside the command's group: an orphan becomes
a child of the command's keeper.
"""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36
NOT_OURS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that do not end a keeper: the judge does."""
LOOK_S, MOST_LOOKS = 0.005, 400
"""Seconds between looks for killed processes, and the most looks: another user's process stays."""


def serve(judge: socket.socket) -> None:
    """Fork a keeper for each start, until the judge has ended."""
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    else:
        prctl = print
    for number in NOT_OURS:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a keeper
    while fds := socket.recv_fds(judge, 1, 4)[1]:
        if not os.fork():
            judge.close()
            prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            keep(socket.socket(fileno=fds[0]), fds[1:])
        for each in fds:
            os.close(each)


def keep(judge: socket.socket, streams: list[int]) -> None:
    """Run one command until the command or the judge ends, and kill the processes left."""
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    told = b""
    while not told.endswith(b"\n"):
        told += judge.recv(1 << 16) or os._exit(1)
    if not (command := os.fork()):
        run(streams, **json.loads(told))
    for each in streams:
        os.close(each)
    with suppress(OSError):
        judge.sendall(b"%d\n" % command)
    ended: dict[int, int] = {}
    while command not in ended and judge.fileno() not in ready(judge, wake):
        os.read(wake, 4096)
        reap(ended)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(command, signal.SIGKILL)
    for _ in range(MOST_LOOKS):
        if not reap(ended):
            break
        for each in {*children(), *({command} - ended.keys())}:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        select.select([], [], [], LOOK_S)
    code = os.waitstatus_to_exitcode(ended.get(command, signal.SIGKILL))
    took = os.times()
    with suppress(OSError):
        judge.sendall(b"%d %f\n" % (code, took.children_user + took.children_system))
    os._exit(0)


def ready(judge: socket.socket, wake: int) -> list[int]:
    """Wait until the judge closes the socket, or a child has ended."""
    return select.select([judge.fileno(), wake], [], [])[0]


def run(streams: list[int], words: list[str], environment: dict[str, str], folder: str) -> None:
    """Become the command, with signals as in a shell."""
    os.setsid()
    for place, each in enumerate(streams):
        os.dup2(each, place)
    for number in (*NOT_OURS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(folder)
        os.execvpe(words[0], words, environment)  # noqa: S606 - the user's own command
    except OSError as wrong:
        os.write(2, f"{words[0]} cannot be started: {wrong}\n".encode())
        os._exit(127)


def reap(ended: dict[int, int]) -> bool:
    """Add the statuses of ended children; return whether children are left."""
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    except ChildProcessError:
        return False
    return True


def children() -> list[int]:
    """Return this process's children; none on a system without /proc."""
    found = []
    for each in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with suppress(OSError):  # the process has ended
            if each.isdigit():
                with open(f"/proc/{each}/stat", "rb") as file:
                    if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                        found.append(int(each))
    return found


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
