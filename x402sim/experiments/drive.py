"""How are tasks handed to a pool, and what if a worker dies?

A task whose worker died, or which could not be returned, is played again point by point, each with
nothing beside it: so the point that kills its worker is found, and nothing else is lost.
"""

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from typing import Any

from x402sim.experiments.batches import Batches, Task
from x402sim.experiments.executors import Pool
from x402sim.experiments.worker import Packed, Work, lost, run

_FUTILE = 3
"""How often the workers may die before any task is done."""


class Drive:
    """Plays all tasks in a pool; `finished` gets each with its table as Parquet.

    `run` raises `concurrent.futures.BrokenExecutor` if workers die again and again at their start,
    or if those of an executor of the user's own die.
    """

    def __init__(
        self,
        pool: Pool,
        experiment: Packed,
        work_of: Callable[[Task], Work],
        finished: Callable[[Task, bytes], None],
    ) -> None:
        self._pool, self._experiment = pool, experiment
        self._work_of, self._finished = work_of, finished
        self._running: dict[Future[Any], Task] = {}
        self._failures = 0

    def run(self, batches: Batches) -> None:
        """Play all that is left; returns when every point is done, or has failed."""
        while self._submit(batches):
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in done:
                self._take(future, batches)

    def _submit(self, batches: Batches) -> bool:
        """Submit as many tasks as the pool takes ahead; False if nothing is left or runs."""
        while len(self._running) < self._pool.ahead:
            if any(task.is_alone for task in self._running.values()):
                break
            task = batches.next(is_idle=not self._running)
            if task is None:
                break
            try:
                future = self._pool.submit(run, self._experiment, self._work_of(task))
            except BrokenExecutor as error:
                future = Future()
                future.set_exception(error)
            self._running[future] = task
        return bool(self._running)

    def _take(self, future: "Future[Any]", batches: Batches) -> None:
        """Keep the result of a task, or find out why there is none."""
        if future not in self._running:
            return
        task = self._running.pop(future)
        error = future.exception()
        if error is None:
            seconds, parquet = future.result()
            self._failures = 0
            batches.learn(task, seconds)
            self._finished(task, parquet)
            return
        if isinstance(error, BrokenExecutor):
            self._recover(error, batches)
        if len(task.seeds) == 1 and (task.is_alone or not isinstance(error, BrokenExecutor)):
            self._finished(task, lost(self._work_of(task), error))
        else:
            batches.split(task)

    def _recover(self, error: BrokenExecutor, batches: Batches) -> None:
        """Take back all tasks that run, and start new workers; raises if that does not help."""
        self._failures += 1
        for task in self._running.values():
            batches.split(task)
        self._running.clear()
        if self._failures > _FUTILE or not self._pool.restart():
            raise error
