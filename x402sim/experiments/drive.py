"""Cuts a sweep into tasks, hands them to a pool, and finds the point that kills its worker.

A task has as many points as take about two seconds: small tasks cost too much on the way to a
worker; large ones leave the others idle at the end, and lose more when a sweep is interrupted.

A task whose worker died, or which could not be returned, is played again point by point, each with
nothing beside it: so the point that kills its worker is found, and nothing else is lost.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass
from typing import Any

from x402sim.experiments.executors import Pool
from x402sim.experiments.tables import Work
from x402sim.experiments.worker import lost, run

_MOST_FAILURES = 3
"""How often the workers may die before any task is done."""
LEAST_S, WANTED_S = 1.0, 2.5
"""Real seconds of a task: at the end of a sweep, and before."""


@dataclass(frozen=True, slots=True)
class Task:
    """Points of one cell, which are played together."""

    cell: Work
    seeds: tuple[int, ...]
    is_alone: bool = False
    """Whether it is played with no other beside it, since it may kill its worker."""


class Batches:
    """The points that are left, cut into tasks as the time of a point becomes known."""

    def __init__(self, left: Sequence[tuple[Work, Sequence[int]]], workers: int) -> None:
        self._left = deque((cell, deque(seeds)) for cell, seeds in left if seeds)
        self._points = sum(len(seeds) for _, seeds in self._left)
        self._workers = workers
        self._suspects: deque[Task] = deque()
        self._seconds: dict[str, float] = {}
        """The seconds of a point, by the key of its cell."""
        self._last_s: float | None = None

    def next(self, *, is_idle: bool) -> Task | None:
        """Return the next task; None if there is none, or it must wait until all is idle."""
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
        """Note how long a task took."""
        each_s = seconds / len(task.seeds)
        self._seconds[task.cell.key] = self._last_s = each_s

    def split(self, task: Task) -> None:
        """Take back a task that was lost: its points are played one by one, alone."""
        self._suspects.extend(Task(task.cell, (seed,), is_alone=True) for seed in task.seeds)


def drive(
    pool: Pool, experiment: bytes, batches: Batches, finished: Callable[[Task, bytes], None]
) -> None:
    """Play all that is left in a pool; `finished` gets each task with its table as Parquet.

    Returns when every point is done, or has failed. Raises `BrokenExecutor` if workers die again
    and again at their start, or if those of an executor of the user's own die.
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
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            if (task := running.pop(future, None)) is None:
                continue  # it was taken back
            error = future.exception()
            if error is None:
                seconds, parquet = future.result()
                failures = 0
                batches.learn(task, seconds)
                finished(task, parquet)
                continue
            is_broken = isinstance(error, BrokenExecutor)
            if is_broken:  # what runs is lost, too
                failures += 1
                for each in running.values():
                    batches.split(each)
                running.clear()
                if failures > _MOST_FAILURES or not pool.restart():
                    raise error
            if len(task.seeds) == 1 and (task.is_alone or not is_broken):
                finished(task, lost(task.cell, task.seeds, error))
            else:
                batches.split(task)


def _submitted(pool: Pool, experiment: bytes, task: Task) -> "Future[Any]":
    """Return the future of a task, which has failed already if the workers are dead."""
    try:
        return pool.executor.submit(run, experiment, task.cell, task.seeds)
    except BrokenExecutor as error:
        future: Future[Any] = Future()
        future.set_exception(error)
        return future
