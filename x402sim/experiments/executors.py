"""Who runs the tasks? Processes of our own, an executor of the user's, Dask, or this process."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

from x402sim.experiments.worker import Packed, warm
from x402sim.version import VERSION


class Pool(Protocol):
    """What a sweep needs of an executor."""

    workers: int
    """How many tasks run at the same time."""
    ahead: int
    """How many tasks are submitted at the same time, so that no worker waits for the next."""

    def submit(self, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Run a function; raises `concurrent.futures.BrokenExecutor`."""

    def restart(self) -> bool:
        """Replace workers that died; False if that is not ours to do."""

    def close(self) -> None:
        """End what `submit` started, if it is ours; what waits is cancelled."""


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Processes:
    """Processes of our own: spawned, and warmed up with the experiment."""

    def __init__(self, workers: int, experiment: Packed) -> None:
        self.workers, self.ahead = workers, 2 * workers
        self._experiment = experiment
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=warm,
            initargs=(self._experiment,),
        )

    def submit(self, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Run a function in a process; the first call starts them all."""
        with _without_main():
            return self._pool.submit(function, *args)

    def restart(self) -> bool:
        """Start new processes in the place of those that died."""
        self.close()
        self._pool = self._new()
        return True

    def close(self) -> None:
        """Wait for the tasks that run, and end the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module, which a spawned process would run again, from its top to the sweep.

    Tasks need nothing of it: its functions are sent by value.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class Given:
    """An executor of the user's own, which stays open; of Dask, its client."""

    def __init__(self, executor: Any) -> None:
        if hasattr(executor, "get_executor"):
            _require_version(executor)
            self.workers = sum(executor.ncores().values()) or 1
            self._executor: Executor = executor.get_executor(pure=False)
        elif isinstance(executor, Executor):
            self.workers = getattr(executor, "_max_workers", None) or cpus()
            self._executor = executor
        else:
            raise TypeError(
                "executor: a concurrent.futures.Executor or a distributed.Client is needed, not "
                f"{executor!r}"
            )
        self.ahead = 2 * self.workers

    def submit(self, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Run a function where the executor does."""
        return self._executor.submit(function, *args)

    def restart(self) -> bool:
        """Leave it to its owner."""
        return False

    def close(self) -> None:
        """Leave it to its owner."""


def _require_version(client: Any) -> None:
    """Raise `ValueError` if a Dask worker has another version of x402sim."""
    for worker, version in client.run(_version).items():
        if version != VERSION:
            raise ValueError(f"{worker} has x402sim {version}, but this process has {VERSION}")


def _version() -> str:
    from x402sim.version import VERSION

    return VERSION


class ThisProcess:
    """This process, one task after the other: for a debugger, and where no other may be started."""

    workers = ahead = 1

    def submit(self, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        """Run a function now."""
        future: Future[Any] = Future()
        future.set_result(function(*args))
        return future

    def restart(self) -> bool:
        """There is nobody to replace."""
        return False

    def close(self) -> None:
        """There is nothing to end."""


def pool_of(executor: Any, workers: int | None, experiment: Packed) -> Pool:
    """Return where the tasks run; raises `TypeError` and `ValueError` for what cannot be that."""
    if executor is not None:
        if workers is not None:
            raise ValueError("give an executor or a number of workers, not both")
        return Given(executor)
    if workers == 0:
        return ThisProcess()
    if workers is not None and workers < 0:
        raise ValueError(f"workers: a whole number from 0 on is needed, not {workers}")
    return Processes(workers or cpus(), experiment)
