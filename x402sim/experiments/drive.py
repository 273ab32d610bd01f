"""Cuts a sweep into tasks for a pool of workers, and finds the point that kills a worker.

A task has the points of about two seconds: sending small tasks to workers costs too much; large
tasks leave other workers idle at the end, and lose more when a sweep is interrupted.

If the worker of a task dies, or the result cannot be returned, the points of the task are played
again, alone: the deadly point is found, and no other point is lost.

A worker plays the points of a task and returns the table as bytes. A task carries all inputs, and
runs in any process with x402sim: of a pool, of Dask, or in this process.
"""

import gc
import importlib
import inspect
import io
import logging
import marshal
import os
import pickle
import signal
import sys
from collections import ChainMap, deque
from collections.abc import Callable, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

from x402sim.clock import stopwatch
from x402sim.experiments.grid import function_of
from x402sim.experiments.tables import Point, Work, result_of, table_of
from x402sim.report.bundle import lines_sha256
from x402sim.report.reading import checks_of
from x402sim.report.run import RunFailed, Watched, watched_runs
from x402sim.text import tracebacks
from x402sim.text.words import as_given
from x402sim.version import VERSION

_HERE = tracebacks.shown(__file__)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles code with file names and lines, which traces need and cloudpickle drops."""

    dispatch_table: ClassVar = ChainMap(
        {CodeType: lambda code: (marshal.loads, (marshal.dumps(code),))},
        cloudpickle.CloudPickler.dispatch_table,
    )


def pickled(value: Any, experiment: Callable[..., Any]) -> bytes:
    """Pickle a value, with the classes and functions of the experiment's own module.

    A worker needs no copy of the module's file, but all modules that the file imports.
    Raises `ValueError` if the value refers to something that cannot be sent.
    """
    module = inspect.getmodule(function_of(experiment) or experiment)
    name = module.__name__ if module else "__main__"
    by_value = name != "__main__" and not name.startswith("x402sim.") and name in sys.modules
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        file = io.BytesIO()
        _Pickler(file).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(f"the experiment cannot be sent to another process: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


def warm(experiment: bytes) -> None:
    """Prepare a worker's process: import what tasks need, once."""
    logging.getLogger("x402sim").setLevel(logging.ERROR)  # experiments break things on purpose
    for module in "x402sim.story.live", "x402sim.report.frames":
        importlib.import_module(module)
    with suppress(Exception):  # the first task raises the same exception, for the user
        _loaded(experiment)
    gc.collect()
    gc.freeze()


@lru_cache(maxsize=8)
def _loaded(function: bytes) -> Any:
    return pickle.loads(function)  # noqa: S301 - of our own making


def run(experiment: bytes, work: Work, seeds: Sequence[int]) -> tuple[float, bytes]:
    """Play points of a cell; return the real seconds taken, and the table as Parquet.

    An exception of the experiment fails only its point.
    """
    elapsed = stopwatch()
    function, values = _loaded(experiment), pickle.loads(work.values)  # noqa: S301
    plain = function_of(function)
    file, points = plain.__code__.co_filename if plain else "", []
    for seed in seeds:
        with watched_runs() as watched:
            try:
                point = Point(seed, _played(function, values, seed, watched))
            except Exception as error:  # noqa: BLE001 - recorded, and raised when the sweep ends
                point = _failed(error, seed, file)
        points.append(replace(point, journals=lines_sha256(watched.journals)))
    return elapsed(), table_of(points, work)


def _played(experiment: Any, values: dict[str, Any], seed: int, watched: Watched) -> Any:
    """Play one point; raises the experiment's errors, and `RunFailed` for a failed scenario."""
    try:
        returned = experiment(**values, seed=seed)
    except Exception:
        for run in watched.failed:  # probably the cause of the exception
            run.raise_for_failure()
        raise
    for run in watched.failed:
        run.raise_for_failure()
    return result_of(returned, list(values))


def _failed(error: Exception, seed: int, file: str) -> Point:
    place = tracebacks.place(error, file)
    if isinstance(error, RunFailed):
        place = error.run.place
    text = f"{_text(error)} ({place})" if place else _text(error)
    lines = [line for line in tracebacks.lines(error) if not line.startswith(_HERE)]
    trace = "\n".join((*lines, f"{type(error).__name__}: {error}"))
    return Point(seed, None, text, trace)


def _text(error: BaseException) -> str:
    """Return an error in one line; for a broken invariant, with the switch of invariants."""
    if not isinstance(error, RunFailed):
        return " ".join(tracebacks.summary(error).split())
    run = error.run
    text = f"the story {run.name!r} failed: {run.reason}"
    broken = [check.clause for check in checks_of(run.journal) if not check.ok]
    if broken:
        text += f" ({', '.join(dict.fromkeys(broken))})"
    if any(clause.startswith("invariant/") for clause in broken):
        text += "; if that is what you study: World(invariants=False)"
    return text


def lost(work: Work, seeds: Sequence[int], error: BaseException) -> bytes:
    """Return the table of points whose worker died or could not return the results."""
    text, trace = tracebacks.summary(error), "\n".join(tracebacks.lines(error))
    points = [Point(seed, None, text, trace) for seed in seeds]
    return table_of(points, work)


# --- tasks and pools --------------------------------------------------------------------


class Processes(ProcessPoolExecutor):
    """Python's pool of new processes; the kill of this process ends them, too.

    Prints of a task go to stderr.
    """

    def __init__(self, workers: int, experiment: bytes) -> None:
        context = get_context("spawn")
        theirs, self._ours = context.Pipe(duplex=False)
        super().__init__(workers, context, _begin, (experiment, theirs))

    def kill(self) -> None:
        """Kill the processes at once; their tasks fail."""
        self._ours.close()
        self.shutdown(cancel_futures=True)


def _begin(experiment: bytes, lifeline: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this
    os.dup2(2, 1)
    Thread(target=_end_with, args=[lifeline], daemon=True).start()
    warm(experiment)


def _end_with(lifeline: Connection) -> None:
    try:
        lifeline.recv_bytes()
    except EOFError:
        os._exit(1)


# Why not joblib: when a worker dies, joblib ends the whole call without naming the lost tasks. So
# the deadly point could not be found, nor could the other results be kept.


class Pool:
    """An executor with a number of workers. The pool replaces and closes an executor of our own."""

    def __init__(
        self, workers: int, *, make: Callable[[], Executor] | None = None, given: Any = None
    ) -> None:
        self.workers = workers
        self.ahead = 1 if make is _ThisProcess else 2 * workers
        """Tasks submitted at the same time: enough to keep all workers busy."""
        self._make = make
        self.executor: Executor = make() if make else given
        self.has_processes = isinstance(self.executor, Processes)
        """Whether the executor has processes that we must end."""

    def restart(self) -> bool:
        """Replace dead workers; return False if only the executor's owner can."""
        self.close()
        if self._make is not None:
            self.executor = self._make()
        return self._make is not None

    def close(self, *, at_once: bool = False) -> None:
        """End our own executor, after its running tasks or at once; no other task starts."""
        if self._make is not None:
            if at_once and isinstance(self.executor, Processes):  # results are lost anyway
                self.executor.kill()
            else:
                self.executor.shutdown(wait=True, cancel_futures=True)


def cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _ThisProcess(Executor):
    """Runs tasks in this process: for a debugger, and where no process may be started."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.set_result(function(*args, **named))
        return future


def _version() -> str:
    return VERSION


def pool_of(executor: Any, workers: int | None, experiment: bytes) -> Pool:
    """Return the pool for `executor` and `workers`; raises `TypeError` and `ValueError`."""
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
            f"{as_given(executor)}"
        )
    if workers == 0:
        return Pool(1, make=_ThisProcess)
    count = workers or cpus()
    return Pool(count, make=lambda: Processes(count, experiment))


_GUARD = 'A script that sweeps needs the line `if __name__ == "__main__":` before its sweep'
_MOST_FAILURES = 3  # how often workers may die without a finished task in between
LEAST_S, WANTED_S = 1.0, 2.5
"""Real seconds of a task: at least, at the end of a sweep; and before."""


@dataclass(frozen=True, slots=True)
class Task:
    """Points of a cell, played together."""

    cell: Work
    seeds: tuple[int, ...]
    is_alone: bool = False
    """Whether no other task may run meanwhile, since this task may kill a worker."""


class Batches:
    """Cuts the remaining points into tasks, by the time that earlier points took."""

    def __init__(self, left: Sequence[tuple[Work, Sequence[int]]], workers: int) -> None:
        self._left = deque((cell, deque(seeds)) for cell, seeds in left if seeds)
        self._points = sum(len(seeds) for _, seeds in self._left)
        self._workers = workers
        self._suspects: deque[Task] = deque()
        self._seconds: dict[str, float] = {}  # the seconds of a point, by the key of its cell
        self._last_s: float | None = None

    def next(self, *, is_idle: bool) -> Task | None:
        """Return the next task; None at the end, or while a suspect task waits for idle workers."""
        if self._suspects:
            return self._suspects.popleft() if is_idle else None
        if not self._left:
            return None
        cell, seeds = self._left[0]
        size = min(self._size(cell), len(seeds))
        taken = tuple(seeds.popleft() for _ in range(size))
        self._points -= size
        if not seeds:
            self._left.popleft()
        return Task(cell, taken)

    def _size(self, cell: Work) -> int:
        seconds = self._seconds.get(cell.key, self._last_s)
        if seconds is None:
            return 1
        seconds = max(seconds, 1e-6)
        fair = -(-self._points // (2 * self._workers))
        return max(1, int(min(WANTED_S / seconds, max(LEAST_S / seconds, fair))))

    def learn(self, task: Task, seconds: float) -> None:
        """Record how long a task took."""
        each_s = seconds / len(task.seeds)
        self._seconds[task.cell.key] = self._last_s = each_s

    def split(self, task: Task) -> None:
        """Put back the points of a lost task, to be played alone."""
        self._suspects.extend(Task(task.cell, (seed,), is_alone=True) for seed in task.seeds)


def drive(
    pool: Pool, experiment: bytes, batches: Batches, finished: Callable[[Task, bytes], None]
) -> None:
    """Play all remaining points in a pool; `finished` gets each task with its table as Parquet.

    Returns when every point is done or has failed. Raises `BrokenExecutor` if workers keep dying at
    their start, or if a worker of the user's own executor dies. An interrupt cancels tasks that
    have not started.
    """
    running: dict[Future[Any], Task] = {}
    failures = 0
    while True:
        while len(running) < pool.ahead and not any(task.is_alone for task in running.values()):
            task = batches.next(is_idle=not running)
            if task is None:
                break
            running[_submitted(pool, experiment, task)] = task
        if not running:
            return
        try:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
        except KeyboardInterrupt:
            for future in running:
                future.cancel()
            raise
        for future in done:
            if (task := running.pop(future, None)) is None:
                continue  # `split` has withdrawn the task
            error = future.exception()
            if error is None:
                seconds, parquet = future.result()
                failures = 0
                batches.learn(task, seconds)
                finished(task, parquet)
                continue
            is_broken = isinstance(error, BrokenExecutor)
            if is_broken:  # all running tasks are lost
                failures += 1
                for lost_too in running.values():
                    batches.split(lost_too)
                running.clear()
                if failures > _MOST_FAILURES or not pool.restart():
                    error.add_note(_GUARD)
                    raise error
            if len(task.seeds) == 1 and (task.is_alone or not is_broken):
                finished(task, lost(task.cell, task.seeds, error))
            else:
                batches.split(task)


def _submitted(pool: Pool, experiment: bytes, task: Task) -> "Future[Any]":
    """Submit a task and return its future, a failed one if the workers are dead."""
    try:
        return pool.executor.submit(run, experiment, task.cell, task.seeds)
    except BrokenExecutor as error:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future
