"""The worker: plays the points of a task, and returns their table as bytes.

Everything that a task needs comes with it, so that it runs in any process on any machine which has
x402sim: in a pool's, in Dask's, or in this one.
"""

import gc
import importlib
import inspect
import io
import logging
import marshal
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

from x402sim.clock import stopwatch
from x402sim.experiments.grid import function_of
from x402sim.experiments.tables import Point, Work, result_of, table_of
from x402sim.report.bundle import lines_sha256
from x402sim.report.run import RunFailed, Watched, watched_runs
from x402sim.report.summary import checks_of
from x402sim.text import tracebacks

INVARIANTS = "invariant/"
_HERE = tracebacks.shown(__file__)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # it has no types
    """cloudpickle's, which drops the file names of functions: a failure is text with its line."""

    dispatch_table: ClassVar = ChainMap(
        {CodeType: lambda code: (marshal.loads, (marshal.dumps(code),))},
        cloudpickle.CloudPickler.dispatch_table,
    )


def pickled(value: Any, experiment: Callable[..., Any]) -> bytes:
    """Pickle a value; classes and functions of the experiment's own module go with it.

    So a worker needs no copy of that file. What the file imports, it must be able to import.
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
    for module in "x402sim.world.live", "x402sim.report.frames":
        importlib.import_module(module)
    with suppress(Exception):  # the first task raises it again, and the sweep tells it
        _loaded(experiment)
    gc.collect()
    gc.freeze()


@lru_cache(maxsize=8)
def _loaded(function: bytes) -> Any:
    return pickle.loads(function)  # noqa: S301 - of our own making


def run(experiment: bytes, work: Work, seeds: Sequence[int]) -> tuple[float, bytes]:
    """Play points of a cell; return the real seconds that took, and their table as Parquet.

    An exception of the experiment fails its point only.
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
        points.append(
            replace(point, worlds=watched.worlds, journals=lines_sha256(watched.journals))
        )
    return elapsed(), table_of(points, work)


def _played(experiment: Any, values: dict[str, Any], seed: int, watched: Watched) -> Any:
    """Play one point; raises what the experiment raises, and `RunFailed` for a failed scenario."""
    try:
        returned = experiment(**values, seed=seed)
    except Exception:
        for run in watched.failed:  # what the experiment raised may follow from it
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
    """Return an error in one line; of a run that failed, what to do if that is meant."""
    if not isinstance(error, RunFailed):
        return " ".join(tracebacks.summary(error).split())
    run = error.run
    text = f"the story {run.name!r} failed: {run.reason}"
    broken = [check.clause for check in checks_of(run.journal) if not check.ok]
    if broken:
        text += f" ({', '.join(dict.fromkeys(broken))})"
    if any(clause.startswith(INVARIANTS) for clause in broken):
        text += "; if that is what you study: World(invariants=False)"
    return text


def lost(work: Work, seeds: Sequence[int], error: BaseException) -> bytes:
    """Return the table of points whose worker died, or could not return the results."""
    text, trace = tracebacks.summary(error), "\n".join(tracebacks.lines(error))
    points = [Point(seed, None, text, trace) for seed in seeds]
    return table_of(points, work)
