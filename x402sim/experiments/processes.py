"""An executor whose tasks run in new processes of Python, which do not run the user's script again.

Those of `multiprocessing` would, from its top to the sweep. Here, this file is the script of each
process, which needs nothing but Python to start. Pickled tasks come through its standard input,
and answers leave through its standard output; what a task prints goes to standard error.
"""

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, BinaryIO


class Processes(Executor):
    """Up to so many processes, each started when a task finds no other idle.

    In each, `initializer(*initargs)` runs first. If one of them dies, its task fails with
    `BrokenProcessPool`, and the executor is to be shut down, which kills the others.
    """

    def __init__(
        self, workers: int, initializer: Callable[..., object], initargs: tuple[Any, ...]
    ) -> None:
        self._threads = ThreadPoolExecutor(workers)
        """Each waits for the answer of one process."""
        self._first = pickle.dumps((initializer, initargs, {}))
        self._started: list[_Process] = []
        self._idle: list[_Process] = []
        self._is_broken = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        """Run a function in a process; what it refers to is pickled now."""
        return self._threads.submit(self._run, pickle.dumps((function, args, named)))

    def _run(self, task: bytes) -> Any:
        try:
            try:
                process = self._idle.pop()
            except IndexError:
                process = _Process()
                self._started.append(process)
                if self._is_broken:  # `kill` may not have seen it
                    raise BrokenProcessPool("it is shut down") from None
                process.run(self._first)
            try:
                return process.run(task)
            finally:
                self._idle.append(process)
        except BrokenProcessPool:
            self._is_broken = True
            raise

    def kill(self) -> None:
        """End the processes at once, whatever they do; their tasks fail."""
        self._is_broken = True
        self.shutdown(cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, once their tasks have ended; a broken executor's end at once."""
        if self._is_broken:
            for each in self._started:
                each.kill()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for each in self._started:
            each.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let a process that is started in the block hear no Ctrl-C until it has read `main`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process:
    """One process, as its executor sees it."""

    def __init__(self) -> None:
        flags = ["-P", *(f"-W{each}" for each in sys.warnoptions)]
        if sys.flags.optimize:
            flags.append("-" + "O" * sys.flags.optimize)
        with _without_interrupts():
            self._child = subprocess.Popen(  # noqa: S603 - this Python and this file
                [sys.executable, *flags, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._tasks, self._answers = self._child.stdin, self._child.stdout
        pickle.dump((sys.path, sys.argv), self._tasks)

    def run(self, task: bytes) -> Any:
        """Run a pickled task and return its result.

        Raises what the task raises, and `BrokenProcessPool` if the process dies.
        """
        try:
            pickle.dump(task, self._tasks)
            self._tasks.flush()
            answer = pickle.load(self._answers)  # noqa: S301 - of our own making
        except (EOFError, OSError, pickle.UnpicklingError) as died:
            raise BrokenProcessPool(f"its process ended with {self._child.wait()}") from died
        error, result = pickle.loads(answer)  # noqa: S301
        if error is not None:
            raise error
        return result

    def kill(self) -> None:
        """End the process at once."""
        self._child.kill()

    def close(self) -> None:
        """Close the process's input, whereupon it ends."""
        self._child.communicate()


def main() -> None:
    """Run the tasks that come, one after the other, until the parent process ends.

    However it ended: the system closes its end of the input with it. Ctrl-C is left to the parent.
    What this process has started is not ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.path[:], sys.argv[:] = pickle.load(given)  # noqa: S301 - of our own making
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=[given, tasks], daemon=True).start()
    gc.disable()  # until the first task has imported what it needs: nothing of it can be freed
    while True:
        answer = _answer(tasks.get())
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        sys.stdout.flush()
        pickle.dump(answer, answers)
        answers.flush()


def _receive(given: BinaryIO, tasks: "queue.SimpleQueue[bytes]") -> None:
    """Pass on the tasks that come; end this process, also in the midst of one, at their end."""
    try:
        while True:
            tasks.put(pickle.load(given))  # noqa: S301
    except EOFError:
        os._exit(1)


def _answer(task: bytes) -> bytes:
    """Run a pickled task; return its error and its result, pickled."""
    try:
        function, args, named = pickle.loads(task)  # noqa: S301
        return pickle.dumps((None, function(*args, **named)))
    except BaseException as error:  # noqa: BLE001 - raised again where the task came from
        try:
            return pickle.dumps((error, None))
        except Exception:  # noqa: BLE001 - some errors hold what cannot be pickled
            return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None))


if __name__ == "__main__":
    main()
