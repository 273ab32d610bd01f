"""Plays an experiment over a grid of parameters and many seeds, in parallel."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeGuard

from x402sim.experiments.grid import (
    Cell,
    Grid,
    cells,
    function_of,
    is_label,
    labels_key,
    line_of,
    name_of,
    require_fit,
    seeds_of,
)
from x402sim.experiments.summary import Until, seeds_wanted
from x402sim.report import need_extra
from x402sim.report.bundle import Running, awaited
from x402sim.text.words import as_given

if TYPE_CHECKING:
    from pandas import DataFrame

    from x402sim.experiments.dependencies import Dependencies
    from x402sim.experiments.drive import Task
    from x402sim.experiments.folder import Folder
    from x402sim.experiments.tables import Done

Replay = Callable[[Cell], str]
"""Returns the line that replays a point of a cell, with "{seed}" in place of the seed."""
_MOST_SHOWN = 3


class SweepFailed(Exception):
    """Points of a sweep failed; all others were played.

    `frame` has all rows, with the columns `error` and `replay`. The text has the trace of the
    first failure, and the lines that play the first few again.
    """

    def __init__(self, frame: "DataFrame", text: str) -> None:
        super().__init__(text)
        self.frame = frame


class Kept(NamedTuple):
    """The place of the results: the folder, whether to empty the folder first, and a function to
    warn the user."""

    path: Path
    fresh: bool
    tell: Callable[[str], None]
    program: Running | None = None
    """The program that plays the sweep; None for the running program."""


class SweepCall(NamedTuple):
    """The arguments of a repeated sweep, and the digests of its results' dependencies."""

    experiment: Callable[..., Any]
    cells: Sequence[Cell]
    digests: dict[str, dict[str, str]]


def sweep(
    experiment: Callable[..., Any],
    grid: Grid,
    seeds: int | Iterable[int] = 200,
    executor: Any = None,
    *,
    until: Until | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    fresh: bool = False,
    common_random_numbers: bool = True,
    progress: bool = True,
) -> "DataFrame":
    """Play an experiment for every cell of a grid and every seed, in parallel; return all results.

    experiment: a plain function, called as `experiment(rate=0.2, seed=7)`, or a `functools.partial`
    of one. It gives the seed to its `World` and returns a number (the column `value`), a dict of
    numbers and texts, or a DataFrame. It may be written in a notebook.
    grid: the values of each parameter, `{"rate": [0.1, 0.2], "policy": {"naive": Forget()}}`, all
    combined. An object needs a label, as in `policy`.
    seeds: a number, so that 200 is `range(200)`; or the seeds, such as `range(200, 400)`.
    until: `Until(relative=0.05, of="waited_s")` of `x402sim.experiments` plays the seeds in order
    until the interval of each cell's mean is at most ± 5 % of the mean; `seeds` is then the
    maximum. Cells that need more are named in a warning; `summarize` tells the number of seeds.
    executor: any `concurrent.futures.Executor`, or a `distributed.Client` of a Dask cluster. By
    default the sweep starts new processes: `workers`, or one per CPU. 0 plays in this process.
    workers: for your own executor, how many tasks it plays at the same time; by default the number
    of CPUs that this process may use, or of threads in the Dask cluster.
    out: a folder. After an interruption, the same call resumes there, and replays failed points.
    Later calls may add values and seeds: the frame has the points of this call, `results.parquet`
    in the folder all points, and its `points/` one file per task. The call raises `ValueError`,
    and names what changed, if results depend on something that has changed: the text of the
    experiment and of the functions, classes and values that it uses, closures, your files that it
    imports, the values behind labels, the versions of Python, x402sim and the libraries. Other
    inputs, such as a data file, are not compared. The folder also has the program and its files:
    `x402sim reproduce` repeats the sweep.
    fresh: delete the results in `out` first.
    common_random_numbers: play all cells with the same seeds: cells differ by parameters only, and
    differences are precise. False draws other seeds for each cell.
    progress: show a bar with the time left, in a terminal and in Jupyter; in a file, a line every
        five seconds.

    A row is a point (or one row of its frame), in the order of cells and seeds: parameters, `seed`,
    results. The frame does not depend on executor, workers or order. Raises `TypeError` if the
    experiment does not take these parameters, `ValueError` for a grid or a folder that does not
    fit, `ModuleNotFoundError` without the extra `sweep`, and, when all other points are done,
    `SweepFailed` if the experiment raised in a point, or a run that it played has failed.

    >>> from x402sim import World, sweep
    >>> def transfers(scenario, seed):
    ...     return len(World(seed=seed).play(scenario).transfers)
    >>> sweep(transfers, {"scenario": ["replay"]}, seeds=range(2), workers=0)["value"].tolist()
    [2, 2]
    """
    common, where = common_random_numbers, (executor, workers)
    kept = None if out is None else Kept(Path(out), fresh, partial(warnings.warn, stacklevel=2))
    if fresh and kept is None:
        raise ValueError("fresh: it deletes the results in a folder; give `out`, too")
    frame = play(
        experiment, cells(grid), seeds, where, kept, until=until, common=common, shown=progress
    )
    if until is not None and (text := unreached(frame, until)):
        warnings.warn(text, stacklevel=2)
    return checked(frame)


def play(
    experiment: Callable[..., Any],
    found: Sequence[Cell],
    seeds: int | Iterable[int],
    where: tuple[Any, int | None],
    kept: Kept | None,
    *,
    common: bool,
    shown: bool,
    until: Until | None = None,
    replay: Replay | None = None,
) -> "DataFrame":
    """Play a sweep; return the frame, with error, trace and replay line of each failure.

    `where` has executor and workers; `replay` makes a cell's replay line, by default in Python.
    With `until`, the frame's attribute "wanted more" has the labels of cells that need more seeds.
    """
    need_extra(("cloudpickle", "pandas", "pyarrow"), "sweeps", "sweep")
    from x402sim.experiments.tables import frame_of

    require_fit(experiment, found)
    numbers = _whole(seeds)
    every = {each.key: seeds_of(each, numbers, common=common) for each in found}
    first = len(numbers) if until is None else until.least
    wanted = {key: seeds[:first] for key, seeds in every.items()}
    folder = None
    tables: list[Done] = []
    if kept is not None and (call := awaited()) is not None:  # `reproduce` runs it: write nothing
        digests = {name: each.digests for name, each in dependencies_of(experiment, found).items()}
        is_ours = call.arrive(SweepCall(experiment, found, digests))
        kept, tables = None, call.done if is_ours else []
    if kept is not None:
        missing = [] if where[0] is None else [_OWN_EXECUTOR.format(type(where[0]).__name__)]
        folder = _claimed(kept, experiment, found, missing)
        tables = list(folder.tables())
    others = [each for each in tables if each.cell not in wanted]
    tables = [each for each in tables if each.cell in wanted]
    done = {(each.cell, seed) for each in tables for seed in set(each.seeds) - each.failed}
    unsettled: list[dict[str, Any]] = []
    """The labels of cells whose intervals are still too wide."""

    def save(task: "Task", parquet: bytes) -> None:
        if folder is not None:
            folder.keep(task, parquet)

    def so_far(points: int, total: int) -> str:
        again, option = ("command", "--out DIR") if replay is not None else ("call", "out=")
        if kept is None:
            return f"interrupted: {points} of {total} points played, none saved: give {option}"
        saved = f"{points} of {total} points saved in {kept.path}"
        return f"interrupted: {saved}; the same {again} resumes"

    def left() -> list[tuple[Cell, list[int]]]:
        return [
            (cell, [seed for seed in wanted[cell.key] if (cell.key, seed) not in done])
            for cell in found
        ]

    def more(new: "Sequence[Done]") -> list[tuple[Cell, list[int]]]:
        """Return the points to play after these results; nothing at the end."""
        tables.extend(new)
        done.update((each.cell, seed) for each in new for seed in each.seeds)
        if until is None:
            return []
        labels = list(found[0].labels)
        counts = seeds_wanted(until, frame_of(tables, found, wanted), labels)
        keys = {labels_key(each.labels.values()): each.key for each in found}
        needed = {keys[label]: count for label, count in counts.items()}
        unsettled[:] = [dict(each.labels) for each in found if each.key in needed]
        longer = {key: every[key][:count] for key, count in needed.items()}
        if all(len(seeds) == len(wanted[key]) for key, seeds in longer.items()):
            return []
        wanted.update(longer)
        return left()

    rest = left()
    known = sum(map(len, wanted.values())) - sum(len(seeds) for _, seeds in rest)
    play_points(
        experiment, rest, where, save, so_far, more=more, known=known, shown=shown, replay=replay
    )
    if folder is not None:
        folder.note([*others, *tables])
    frame = frame_of(tables, found, wanted)
    if until is not None:
        frame.attrs["wanted more"] = unsettled
    return frame


def play_points(
    experiment: Callable[..., Any],
    left: Sequence[tuple[Cell, Sequence[int]]],
    where: tuple[Any, int | None],
    save: "Callable[[Task, bytes], None]",
    so_far: Callable[[int, int], str],
    *,
    more: "Callable[[Sequence[Done]], Sequence[tuple[Cell, Sequence[int]]]]" = lambda _: (),
    title: str = "sweep",
    known: int = 0,
    shown: bool = True,
    replay: Replay | None = None,
) -> "list[Done]":
    """Play these seeds of each cell; return their tables. `save` gets each table at once, as bytes.

    `more` gets the tables of one round and returns the next points; an empty list ends the sweep.
    `known` points were played before. Raises `KeyboardInterrupt` with the text of `so_far`, which
    gets the number of played points and of all points.
    """
    from x402sim.experiments.drive import Batches, drive, pickled, pool_of
    from x402sim.experiments.tables import Work, decoded
    from x402sim.report.progress import Bar

    function = function_of(experiment)
    if function is not None and function.__module__ == "__mp_main__":
        raise RuntimeError(
            "the new processes of this sweep run its script, too, from the top: put "
            "`if __name__ == '__main__':` around the sweep"
        )
    package = pickled(experiment, experiment)
    tables: list[Done] = []
    points, total, failed = known, known, 0

    def finished(task: "Task", parquet: bytes) -> None:
        nonlocal points, failed
        save(task, parquet)
        table = decoded(parquet)
        tables.append(table)
        points, failed = points + len(table.seeds), failed + len(table.failed)
        bar.update(points, failed, total)

    pool, has_ended = pool_of(*where, package), False
    bar = Bar(title, total, known=known, shown=shown)
    with _one_interrupt() if pool.has_processes else nullcontext():
        try:
            while True:
                works = []
                for cell, seeds in left:
                    line = replay(cell) if replay else _python(experiment, cell)
                    values = pickled(cell.values, experiment)
                    works.append((Work(cell.key, cell.labels, values, line), seeds))
                total += sum(len(seeds) for _, seeds in left)
                bar.update(points, failed, total)
                before = len(tables)
                drive(pool, package, Batches(works, pool.workers), finished)
                if not (left := more(tables[before:])):
                    break
            has_ended = True
        except KeyboardInterrupt:
            raise KeyboardInterrupt(so_far(points, total)) from None
        finally:
            bar.close()
            pool.close(at_once=not has_ended)
    return tables


@contextmanager
def _one_interrupt() -> Iterator[None]:
    """Let only the first Ctrl-C interrupt a block: another would come while processes end.

    Does nothing in threads other than the main one, or if the user has set a handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def unreached(frame: "DataFrame", until: Until) -> str:
    """Return a sentence on the cells that needed more seeds; empty without any."""
    cells = frame.attrs.get("wanted more", [])
    if not cells:
        return ""
    shown = ["; ".join(f"{k}={v}" for k, v in each.items()) for each in cells[:_MOST_SHOWN]]
    shown += [f"and {len(cells) - _MOST_SHOWN} more"] if len(cells) > _MOST_SHOWN else []
    count = "interval of 1 cell is" if len(cells) == 1 else f"intervals of {len(cells)} cells are"
    return f"the {count} wider than {until} with all seeds ({', '.join(filter(None, shown))})"


_OWN_EXECUTOR = "your own executor ({}) played it: reproduce uses processes of this machine"


def _claimed(
    kept: Kept, experiment: Callable[..., Any], found: Sequence[Cell], missing: Sequence[str]
) -> "Folder":
    """Return the folder; raises `ValueError` if its results depend on something else."""
    from x402sim.experiments.folder import Folder

    folder = Folder(kept.path, list(found[0].labels))
    if kept.fresh:
        folder.clear()
    parts = dependencies_of(experiment, found)
    if limits := folder.claim(name_of(experiment), parts, kept.program, missing):
        kept.tell(limits)
    return folder


def dependencies_of(
    experiment: Callable[..., Any], found: Sequence[Cell]
) -> "dict[str, Dependencies]":
    """Return the dependencies of an experiment (under ""), and of values in its cells."""
    from x402sim.experiments.dependencies import Dependencies

    name, function = name_of(experiment), function_of(experiment)
    home = {} if function is None else function.__globals__
    parts = {"": Dependencies(experiment, name, home)}
    for cell in found:
        for parameter, label in cell.labels.items():
            value, key = cell.values[parameter], f"{parameter}={label!r}"
            if key not in parts and not is_label(value):
                parts[key] = Dependencies(value, f"{key} of the grid", home)
    return parts


def _whole(seeds: object) -> list[int]:
    given = range(index(seeds)) if _is_seed(seeds) else seeds
    found = list(given) if isinstance(given, Iterable) else []
    if not found or not all(map(_is_seed, found)):
        raise ValueError(
            "seeds: a number of seeds from 1 on, or whole numbers from 0 on are needed, "
            f"not {as_given(seeds)}"
        )
    if len(set(found)) < len(found):
        raise ValueError("seeds: each is played once, but one is given twice")
    return list(map(index, found))


def _is_seed(value: object) -> TypeGuard[SupportsIndex]:
    """Tell whether a value is a whole number from 0 on, also of numpy."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return False
    return 0 <= index(value) < 2**63


def _python(experiment: Callable[..., Any], cell: Cell) -> str:
    codes = {n: getattr(it, "__name__", None) or repr(it) for n, it in cell.values.items()}
    given = "".join(f"{name}={code}, " for name, code in codes.items())
    return line_of(experiment, f"{given}seed={{seed}}")


def checked(frame: "DataFrame") -> "DataFrame":
    """Return the frame without columns of errors; raises `SweepFailed` if a point failed."""
    failed = frame[frame["error"].notna()]
    if failed.empty:
        return frame.drop(columns=["error", "trace", "replay"])
    lines = [failures(frame), failed["trace"].iloc[0], ""]
    for error, again in list(zip(failed["error"], failed["replay"], strict=True))[:_MOST_SHOWN]:
        lines += [str(error), f"  {again}"]
    if len(failed) > _MOST_SHOWN:
        lines.append(f"and {len(failed) - _MOST_SHOWN} more: `frame` of this exception has all")
    raise SweepFailed(frame.drop(columns="trace"), "\n".join(lines))


def failures(frame: "DataFrame") -> str:
    """Return how many points of a frame failed, as the head of a list."""
    failed = int(frame["error"].notna().sum())
    match failed, len(frame) - failed:
        case 1, 0:
            return "The only point failed:"
        case 1, _:
            return "1 point failed:"
        case _, 0:
            return f"All {failed} points failed. The first one:"
        case _:
            return f"{failed} points failed. The first one:"
