"""An executor whose tasks run in new Python processes that do not run the user's script again.

Processes of `multiprocessing` would run the script from the top to the sweep. Here, this file is
the script of each process, and imports Python's library only. Pickled tasks come through stdin, and
pickled answers leave through stdout; prints of a task go to stderr.
"""

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, BinaryIO


class Processes(Executor):
    """Up to `workers` processes; another process starts when a task finds no idle process.

    Each runs `initializer(*initargs)` first. If a process dies, its task fails with
    `BrokenProcessPool`; then shut the executor down, which kills the other processes.
    """

    def __init__(
        self, workers: int, initializer: Callable[..., object], initargs: tuple[Any, ...]
    ) -> None:
        self._threads = ThreadPoolExecutor(workers)
        """Each thread waits for the answer of one process."""
        self._first = pickle.dumps((initializer, initargs, {}))
        self._started: list[_Process] = []
        self._idle: list[_Process] = []
        self._is_broken = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        """Run a function in a process; function and arguments are pickled now."""
        return self._threads.submit(self._run, pickle.dumps((function, args, named)))

    def _run(self, task: bytes) -> Any:
        try:
            try:
                process = self._idle.pop()
            except IndexError:
                process = _Process()
                self._started.append(process)
                if self._is_broken:  # `kill` ran before this process was in the list
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
        """Kill the processes at once; their tasks fail."""
        self._is_broken = True
        self.shutdown(cancel_futures=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes after the running tasks; at once if a process has died."""
        if self._is_broken:
            for each in self._started:
                each.kill()
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for each in self._started:
            each.close()


class _Process:
    """A process, seen from the executor."""

    def __init__(self) -> None:
        flags = ["-P", *(f"-W{each}" for each in sys.warnoptions)]
        if sys.flags.optimize:
            flags.append("-" + "O" * sys.flags.optimize)
        self._child = subprocess.Popen(  # noqa: S603 - this Python and this file
            [sys.executable, *flags, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # a terminal sends Ctrl-C to the parent's group: it ends the tasks
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._tasks, self._answers = self._child.stdin, self._child.stdout
        pickle.dump((sys.path, sys.argv), self._tasks)

    def run(self, task: bytes) -> Any:
        """Run a pickled task and return its result.

        Raises the task's errors, and `BrokenProcessPool` if the process dies.
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
        """Close stdin of the process, which ends the process, and wait."""
        self._child.communicate()


def main() -> None:
    """Run tasks one after the other until the parent process ends.

    When the parent ends, even killed, the system closes this process's stdin. Processes started by
    tasks are not ended.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Windows has no process groups
    given, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sys.path[:], sys.argv[:] = pickle.load(given)  # noqa: S301 - of our own making
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=[given, tasks], daemon=True).start()
    gc.disable()  # until the first task has imported modules, which are never freed
    while True:
        answer = _answer(tasks.get())
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        sys.stdout.flush()
        pickle.dump(answer, answers)
        answers.flush()


def _receive(given: BinaryIO, tasks: "queue.SimpleQueue[bytes]") -> None:
    """Queue incoming tasks; at the end of stdin, exit at once, even during a task."""
    try:
        while True:
            tasks.put(pickle.load(given))  # noqa: S301
    except EOFError:
        os._exit(1)


def _answer(task: bytes) -> bytes:
    """Run a pickled task; return error and result, pickled."""
    try:
        function, args, named = pickle.loads(task)  # noqa: S301
        return pickle.dumps((None, function(*args, **named)))
    except BaseException as error:  # noqa: BLE001 - raised again in the parent process
        try:
            return pickle.dumps((error, None))
        except Exception:  # noqa: BLE001 - some errors hold unpicklable values
            return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None))


if __name__ == "__main__":
    main()
