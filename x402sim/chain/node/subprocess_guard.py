"""Runs a program, and kills it when the parent process ends.

    subprocess_guard.py PROGRAM ARGUMENT...

The parent holds the other end of our standard input. When the parent ends, by exit or by a signal,
the input ends, and this script kills the program.
"""

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Run a command until it or our standard input ends; return its exit code."""
    child = subprocess.Popen(  # noqa: S603 - the caller's own command
        command, stdin=subprocess.DEVNULL, start_new_session=True
    )
    threading.Thread(target=_kill_at_the_end, args=[child], daemon=True).start()
    return child.wait()


def _kill_at_the_end(child: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1):
        pass
    if hasattr(os, "killpg"):
        os.killpg(child.pid, signal.SIGKILL)  # a script may have started the real program
    else:
        child.kill()


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]) & 0xFF)
