"""Where tasks run: in processes of our own, in an executor of the user's, on Dask, or in this one.

joblib is not used: when a worker dies it ends the whole call, and does not say which tasks were
lost, so that the point that kills its worker could not be found, nor the others be kept.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from types import ModuleType
from typing import Any

from x402sim.experiments.worker import warm
from x402sim.version import VERSION


class Pool:
    """An executor and its number of workers; one that we `make` is replaced and closed by us."""

    def __init__(
        self, workers: int, *, make: Callable[[], Executor] | None = None, given: Any = None
    ) -> None:
        self.workers = workers
        self.ahead = 1 if make is _ThisProcess else 2 * workers
        """How many tasks are submitted at the same time, so that no worker waits for the next."""
        self._make = make
        self.executor: Executor = make() if make else given

    def restart(self) -> bool:
        """Replace workers that died; False if that is for the owner of the executor."""
        self.close()
        if self._make is not None:
            self.executor = self._make()
        return self._make is not None

    def close(self) -> None:
        """End an executor of our own once its tasks have ended; what waits is cancelled."""
        if self._make is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _ThisProcess(Executor):
    """This process, one task after the other: for a debugger, and where no other may be started."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        """Run a function now."""
        future: Future[Any] = Future()
        future.set_result(function(*args, **named))
        return future


class _Processes(ProcessPoolExecutor):
    """Processes that are spawned, and warmed up with the experiment."""

    def __init__(self, workers: int, experiment: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(workers, mp_context=context, initializer=warm, initargs=(experiment,))

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        """Run a function in a process; the first call starts them all.

        A spawned process would run the main module again, from its top to the sweep, so that is
        hidden. Tasks need nothing of it: its functions are sent by value.
        """
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return super().submit(function, *args, **named)
        finally:
            sys.modules["__main__"] = main


def _version() -> str:
    return VERSION


def pool_of(executor: Any, workers: int | None, experiment: bytes) -> Pool:
    """Return where the tasks run; raises `TypeError` and `ValueError` for what cannot be that."""
    if executor is not None and workers is not None:
        raise ValueError("give an executor or a number of workers, not both")
    if hasattr(executor, "get_executor"):  # Dask's client, which stays open
        for worker, version in executor.run(_version).items():
            if version != VERSION:
                raise ValueError(f"{worker} has x402sim {version}, but this process has {VERSION}")
        return Pool(sum(executor.ncores().values()) or 1, given=executor.get_executor(pure=False))
    if isinstance(executor, Executor):
        return Pool(getattr(executor, "_max_workers", None) or cpus(), given=executor)
    if executor is not None:
        raise TypeError(
            "executor: a concurrent.futures.Executor or a distributed.Client is needed, not "
            f"{executor!r}"
        )
    if workers == 0:
        return Pool(1, make=_ThisProcess)
    if workers is not None and workers < 0:
        raise ValueError(f"workers: a whole number from 0 on is needed, not {workers}")
    count = workers or cpus()
    return Pool(count, make=lambda: _Processes(count, experiment))
