"""Where tasks run: in processes of our own, in an executor of the user's, on Dask, or in this one.

joblib is not used: when a worker dies it ends the whole call, and does not say which tasks were
lost, so that the point that kills its worker could not be found, nor the others be kept.
"""

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from x402sim.experiments.processes import Processes
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


def _version() -> str:
    return VERSION


def pool_of(executor: Any, workers: int | None, experiment: bytes) -> Pool:
    """Return where the tasks run; raises `TypeError` and `ValueError` for what cannot be that."""
    if workers is not None and (workers < 0 or (workers == 0 and executor is not None)):
        least = 0 if executor is None else 1
        raise ValueError(f"workers: a whole number from {least} on is needed, not {workers}")
    if hasattr(executor, "get_executor"):  # Dask's client, which stays open
        for worker, version in executor.run(_version).items():
            if version != VERSION:
                raise ValueError(f"{worker} has x402sim {version}, but this process has {VERSION}")
        threads = sum(executor.ncores().values()) or 1
        return Pool(workers or threads, given=executor.get_executor(pure=False))
    if isinstance(executor, Executor):
        return Pool(workers or cpus(), given=executor)
    if executor is not None:
        raise TypeError(
            "executor: a concurrent.futures.Executor or a distributed.Client is needed, not "
            f"{executor!r}"
        )
    if workers == 0:
        return Pool(1, make=_ThisProcess)
    count = workers or cpus()
    return Pool(count, make=lambda: Processes(count, warm, (experiment,)))
