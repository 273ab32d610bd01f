"""Sizes the tasks of a sweep: each has as many points as take about two seconds.

Small tasks cost too much on the way to a worker; large ones leave the others idle at the end, and
lose more when a sweep is interrupted.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from x402sim.experiments.grid import Cell

LEAST_S, WANTED_S = 1.0, 2.5
"""Real seconds of a task: at the end of a sweep, and before."""


@dataclass(frozen=True, slots=True)
class Task:
    """Points of one cell, which are played together."""

    cell: Cell
    seeds: tuple[int, ...]
    is_alone: bool = False
    """Whether it is played with no other beside it, since it may kill its worker."""


class Batches:
    """The points that are left, cut into tasks as the time of a point becomes known."""

    def __init__(self, left: Sequence[tuple[Cell, Sequence[int]]], workers: int) -> None:
        self._left = deque((cell, deque(seeds)) for cell, seeds in left if seeds)
        self._points = sum(len(seeds) for _, seeds in self._left)
        self._workers = workers
        self._suspects: deque[Task] = deque()
        self._seconds: dict[int, float] = {}
        """The seconds of a point, by the number of its cell."""
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

    def _size(self, cell: Cell) -> int:
        seconds = self._seconds.get(cell.number, self._last_s)
        if seconds is None:
            return 1
        seconds = max(seconds, 1e-6)
        fair = -(-self._points // (2 * self._workers))
        return max(1, int(min(WANTED_S / seconds, max(LEAST_S / seconds, fair))))

    def learn(self, task: Task, seconds: float) -> None:
        """Note how long a task took."""
        each_s = seconds / len(task.seeds)
        self._seconds[task.cell.number] = self._last_s = each_s

    def split(self, task: Task) -> None:
        """Take back a task that was lost: its points are played one by one, alone."""
        self._suspects.extend(Task(task.cell, (seed,), is_alone=True) for seed in task.seeds)
