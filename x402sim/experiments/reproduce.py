"""Repeats a saved run or sweep: runs the program up to the saving call, and compares hashes."""

import ast
import asyncio
import hashlib
import os
import runpy
import shutil
import sys
import tempfile
from codeop import Compile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from inspect import CO_COROUTINE
from itertools import chain, zip_longest
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import msgspec

from x402sim.events import Begin
from x402sim.experiments.grid import labels_of, name_of
from x402sim.experiments.sweep import SweepCall, play_points
from x402sim.journal import Journal
from x402sim.protocol.messages import BadMessage, decode
from x402sim.report import need_extra
from x402sim.report.bundle import (
    BUNDLE,
    SOURCES,
    Awaited,
    NotRepeatable,
    OfRun,
    Origin,
    Reached,
    awaiting,
    cells_in,
    file_sha256,
    frame_files,
    own_versions,
    required,
    versions_of,
)
from x402sim.report.diff import describe
from x402sim.report.run import Run
from x402sim.rng import Rng
from x402sim.text import tracebacks

if TYPE_CHECKING:
    from x402sim.experiments.folder import OfSweep
    from x402sim.experiments.tables import Done, Played

    _Points = Mapping[tuple[str, int], tuple[Played, Done]]

_MOST_TOLD = 5
_JOURNAL = "journal.ndjson"


@dataclass(slots=True)
class Repeated:
    """The outcome of repeating a result.

    `compared` counts the comparisons, by kind. `differences` are sentences, none if all is the
    same. `notes` are sentences on differences around the result, such as versions.
    """

    kind: str
    name: str
    compared: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_same(self) -> bool:
        """Whether no comparison found a difference."""
        return not self.differences


def reproduce(
    folder: Path, *, points: int | None = None, seed: int = 0, workers: int | None = None
) -> Repeated:
    """Repeat the run or the sweep in a folder, and compare. This runs the program in the folder.

    Of a sweep, play all points, or `points` drawn with `seed`, in `workers` processes. Raises
    `NotRepeatable`, with a text that says what to do.
    """
    need_extra(("cloudpickle", "pandas", "pyarrow"), "reproduce", "sweep")
    folder = folder.resolve()  # the program runs in another
    bundle, done = _read(folder)
    origin, is_run = bundle.origin, isinstance(bundle, OfRun)
    if is_run and points is not None:
        raise NotRepeatable(f"{folder} is a run: points are those of a sweep")
    found = Repeated(
        "run" if is_run else "sweep",
        bundle.scenario if isinstance(bundle, OfRun) else bundle.experiment,
        notes=[*_changed_versions(bundle.versions), *_changed_sources(folder, origin)],
    )
    if origin.program is None:
        raise NotRepeatable("; ".join(origin.not_carried))
    with _copied(folder, origin):
        given = _run_to(origin, bundle.versions, done)
        if isinstance(bundle, OfRun):
            run = given[-1]
            if not isinstance(run, Run):
                raise NotRepeatable("its program came to a sweep, not to the run")
            _compare_run(found, bundle, folder, run)
        else:
            found.differences += _changed_results(folder, bundle, done)
            _compare_sweep(found, bundle, given, done, points, seed, workers)
    found.notes += origin.not_carried
    return found


def _read(folder: Path) -> "tuple[OfRun | OfSweep, list[Done]]":
    """Return the bundle in a folder, and the tables of a sweep; raises `NotRepeatable`."""
    from x402sim.experiments.folder import Folder, OfSweep

    file = folder / BUNDLE
    try:
        either: Any = OfRun | OfSweep
        bundle: OfRun | OfSweep = decode(file.read_bytes(), either, most=1_000_000)
    except FileNotFoundError:
        raise NotRepeatable(
            f"{folder} has no {BUNDLE}: save a run with run.save(folder, bundle=True), or play a "
            "sweep with out=folder (--out), and give that folder"
        ) from None
    except (OSError, BadMessage) as error:
        raise NotRepeatable(f"{file} cannot be read: {error}") from error
    try:
        if isinstance(bundle, OfSweep):
            return bundle, list(Folder(folder, list(bundle.grid)).tables()) if bundle.grid else []
    except ValueError as error:
        raise NotRepeatable(str(error)) from error
    return bundle, []


def _changed_versions(theirs: Mapping[str, str]) -> Iterator[str]:
    ours = {**versions_of(theirs), **required(), **own_versions()}
    for name, version in theirs.items():
        if ours.get(name) != version:
            yield f"{name} was {version}, is {ours.get(name, 'not installed')}"


def _changed_sources(folder: Path, origin: Origin) -> Iterator[str]:
    """Yield a sentence for each file that differs from its saved digest; raises `NotRepeatable`."""
    for place, digest in origin.sources.items():
        try:
            text = (folder / SOURCES / place).read_bytes()
        except OSError as error:
            raise NotRepeatable(f"{SOURCES}/{place} cannot be read: {error.strerror}") from error
        if hashlib.sha256(text).hexdigest() != digest:
            yield f"{SOURCES}/{place} is not as it was saved"


# --- the program -------------------------------------------------------------------------


@contextmanager
def _copied(folder: Path, origin: Origin) -> Iterator[None]:
    """Run a block in a copy of the sources, with the program's arguments; its prints go to stderr.

    The copy has every file in the folder of the sources: a user can add data there.
    """
    before = os.getcwd(), sys.argv[:], sys.path[:]
    with tempfile.TemporaryDirectory(prefix="x402sim-") as place:
        shutil.copytree(folder / SOURCES, place, dirs_exist_ok=True)
        program = origin.program
        assert program is not None
        os.chdir(place)
        sys.argv[:] = [program.name, *program.args]
        sys.path.insert(0, os.getcwd())
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            os.chdir(before[0])
            sys.argv[:], sys.path[:] = before[1:]


def _run_to(origin: Origin, versions: Mapping[str, str], done: "list[Done]") -> list[Any]:
    """Run a program up to the call that saved the result; return the arguments of its calls."""
    program, place = origin.program, os.getcwd()
    assert program is not None
    try:
        with awaiting(Awaited(origin.calls, done)):
            match program.way:
                case "script":
                    runpy.run_path(program.name, run_name="__main__")
                case "module":
                    runpy.run_module(program.name, run_name="__main__", alter_sys=True)
                case "cells":
                    file = Path(".x402sim_cells.py")
                    file.write_text(_RUN_CELLS.format(name=program.name))
                    runpy.run_path(str(file), run_name="__main__")
    except Reached as reached:
        found: list[Any] = reached.what
        return found
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted before `{program}` came to what it saved") from None
    except SystemExit as ended:
        wrong = f"it ended with exit code {ended.code}"
    except Exception as error:
        at = next(iter(reversed([line for line in tracebacks.lines(error) if place])), "")
        wrong = f"it raised {tracebacks.summary(error)}" + (f" ({at})" if at else "")
        if isinstance(error, ModuleNotFoundError):
            name = (error.name or "").partition(".")[0]
            version = f"=={versions[name]}" if name in versions else ""
            wrong += f"; install it, such as by: pip install {name}{version}"
        elif isinstance(error, FileNotFoundError):
            wrong += f"; data are not carried: put a copy into {SOURCES}/, where the program runs"
        raise NotRepeatable(f"`{program}` did not come to what it saved: {wrong}") from error
    else:
        wrong = "it ended"
    raise NotRepeatable(
        f"`{program}` did not come to call {origin.calls[-1]} of those that save: {wrong}"
    )


_RUN_CELLS = """from x402sim.experiments.reproduce import play_cells
play_cells({name!r}, globals())
"""


def play_cells(name: str, space: dict[str, Any]) -> None:
    """Run the cells of a notebook in a namespace, one after the other, or the text of `-c`.

    A cell that raises ends, and the next cell starts, as in the notebook. An import from
    `__future__` holds for all later cells.
    """
    text, is_book = Path(name).read_bytes(), name.endswith(".ipynb")
    del space["__file__"]
    compiled = Compile()
    compiled.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    space["In"] = [""]  # as IPython keeps it: a sweep compares the text
    for cell in cells_in(text) if is_book else [text.decode()]:
        space["In"].append(cell)
        code = compiled(f"{cell}\n", "<string>", "exec")
        try:
            result = FunctionType(code, space)()
            if code.co_flags & CO_COROUTINE:
                asyncio.run(result)
        except Exception as error:
            if not is_book:
                raise
            print(f"x402sim: a cell raised {tracebacks.summary(error)}", file=sys.stderr)  # noqa: T201


def _changed_files(folder: Path, bundle: "OfRun | OfSweep", names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if name in bundle.files and file_sha256(folder / name) != bundle.files[name]:
            yield f"{name} in the folder is not the one that was saved"


# --- a run -------------------------------------------------------------------------------


def _compare_run(found: Repeated, bundle: OfRun, folder: Path, run: Run) -> None:
    from x402sim.report.bundle import frame_sha256
    from x402sim.report.frames import TABLES

    if (run.name, run.seed) != (bundle.scenario, bundle.seed):
        raise NotRepeatable(
            f"its program saved {run.name!r} with seed {run.seed} at this call, not "
            f"{bundle.scenario!r} with seed {bundle.seed}"
        )
    found.compared["journal"] = 1
    try:
        kept = Journal.open(folder / _JOURNAL)
    except (OSError, ValueError) as error:
        kept = None
        found.differences.append(f"{_JOURNAL} in the folder cannot be read: {error}")
    if kept is not None and kept.sha256() != bundle.journal:
        found.differences.append(f"{_JOURNAL} in the folder is not the one that was saved")
    found.differences += _changed_files(
        folder, bundle, chain.from_iterable(map(frame_files, TABLES))
    )
    if next(run.journal.events(Begin)).options != bundle.world:
        found.differences.append(f"{BUNDLE} has another world than the run")
    if run.sha256 != bundle.journal:
        lines = describe(kept, run.journal) if kept is not None else []
        shown = ["the journal differs (a: saved, b: repeated)", *lines]
        found.differences.append("\n".join(shown))
    compared = [name for name in TABLES if name in bundle.frames]
    found.compared["frame"] = len(compared)
    follow = []
    for name in compared:  # one frame in memory at a time
        frame = TABLES[name](run.journal)
        if frame_sha256(frame) == bundle.frames[name]:
            continue
        if run.sha256 != bundle.journal:
            follow.append(name)
            continue
        text = frame.to_csv(index=False, lineterminator="\n")
        found.differences.append(f"the frame {name} differs{_first(folder, name, text)}")
    if follow:
        found.differences.append(f"so do frames: {', '.join(follow)}")


def _first(folder: Path, name: str, text: str) -> str:
    """Return where a frame first differs from its CSV in the folder; empty without a CSV."""
    try:
        saved = (folder / f"{name}.csv").read_text(encoding="utf-8")
    except OSError:
        return ""
    pairs = zip_longest(saved.splitlines(), text.splitlines(), fillvalue="(no line)")
    for number, (one, other) in enumerate(pairs, 1):
        if one != other:
            return f", first in line {number} of {name}.csv\n  a {one}\n  b {other}"
    return ", though not as it is written in CSV"


# --- a sweep -----------------------------------------------------------------------------


def _changed_results(folder: Path, bundle: "OfSweep", done: "list[Done]") -> Iterator[str]:
    """Yield a sentence for each part of the results that differs from the saved one."""
    from x402sim.experiments.folder import ALL_ROWS, SUMMARY, grid_of
    from x402sim.experiments.tables import played_in, points_sha256, rows_of
    from x402sim.report.bundle import lines_sha256

    saved = played_in(done)
    if bundle.table:
        if points_sha256(saved) != bundle.table:
            yield "the results in the folder are not those that were saved"
        if (bundle.points, (bundle.grid, bundle.seeds)) != (len(saved), grid_of(saved)):
            yield f"{BUNDLE} has another grid, or other seeds, than the results"
        yield from _changed_files(folder, bundle, (ALL_ROWS, SUMMARY))
    for each in done:
        lines = rows_of(each.table)
        for seed, rows in zip(each.seeds, each.rows, strict=True):
            if lines_sha256(lines.get(seed, ())) != rows:
                yield f"{_place((each.cell, seed))}: the folder has other rows than were saved"


def _compare_sweep(
    found: Repeated,
    bundle: "OfSweep",
    given: Sequence[Any],
    done: "list[Done]",
    points: int | None,
    seed: int,
    workers: int | None,
) -> None:
    from x402sim.experiments.tables import played_in

    calls = [each for each in given if isinstance(each, SweepCall)]
    if len(calls) < len(given):
        raise NotRepeatable("its program came to a run, not to the sweep")
    experiment = calls[-1].experiment
    if name_of(experiment) != bundle.experiment:
        raise NotRepeatable(f"its program swept {name_of(experiment)}, not {bundle.experiment}")
    saved = played_in(done)
    if not saved:
        raise NotRepeatable("no point of it is saved: play the sweep to its end")
    if not bundle.table:
        found.notes.append(f"the sweep was interrupted: it has {len(saved)} points")
    found.notes += _changed_code(bundle, calls[-1])
    cells = {cell.key: cell for call in calls for cell in call.cells}
    known = [point for point in saved if point[0] in cells]
    if len(known) < len(saved):
        found.notes.append(
            f"{len(saved) - len(known)} of {len(saved)} points are of another grid, with objects "
            "that the program does not give any more: these points are not repeated"
        )
    if points is not None and points < len(known):
        known = sorted(Rng(seed).stream("points to repeat").sample(known, points))
    left = [(cells[key], [each for own, each in known if own == key]) for key in cells]
    tables = play_points(
        experiment,
        [(cell, seeds) for cell, seeds in left if seeds],
        (None, workers),
        lambda task, parquet: None,
        lambda points, total: f"interrupted: {points} of {total} points repeated, none compared",
        title="reproduce",
    )
    _compare_points(found, saved, played_in(tables))


def _changed_code(bundle: "OfSweep", call: SweepCall) -> list[str]:
    """Return the code and values that have changed, if Python is the same: syntax trees differ."""
    from x402sim.experiments.folder import differences

    if bundle.versions.get("Python") != own_versions()["Python"]:
        return []
    both = sorted(call.digests.keys() & bundle.depends_on.keys())
    changed = [differences(bundle.depends_on[name], call.digests[name]) for name in both]
    return list(dict.fromkeys(chain.from_iterable(changed)))


def _compare_points(found: Repeated, saved: "_Points", repeated: "_Points") -> None:
    from x402sim.experiments.tables import rows_of

    found.compared["point"] = len(repeated)
    lines_of = cache(lambda number: rows_of(tables[number].table))
    tables = {id(done): done for points in (saved, repeated) for _, done in points.values()}
    differing = []
    for point, (ours, own) in repeated.items():
        theirs, done = saved[point]
        seed = point[1]
        if ours != theirs:
            kept = lines_of(id(done)).get(seed, [])
            rows = _rows(kept, lines_of(id(own)).get(seed, [])) if ours.rows != theirs.rows else ""
            journals = "" if ours.journals == theirs.journals else "its journals differ"
            differing.append(f"{_place(point)}: {'; '.join(filter(None, [rows, journals]))}")
    found.differences += differing[:_MOST_TOLD]
    if len(differing) > _MOST_TOLD:
        found.differences.append(f"and {len(differing) - _MOST_TOLD} more points differ")


def _place(point: tuple[str, int]) -> str:
    labels = [f"{name}={label}" for name, label in labels_of(point[0]).items()]
    return ", ".join([*labels, f"seed {point[1]}"])


def _rows(saved: Sequence[str], repeated: Sequence[str]) -> str:
    """Return the first differing row, with the differing fields."""
    for number, (one, other) in enumerate(zip_longest(saved, repeated), 1):
        if one != other:
            a, b = (msgspec.json.decode(each) if each else {} for each in (one, other))
            names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
            shown = ", ".join(f"{n} was {_shown(a, n)}, is {_shown(b, n)}" for n in names[:3])
            return shown if len(saved) == len(repeated) == 1 else f"row {number}: {shown}"
    return ""


def _shown(row: Mapping[str, Any], name: str) -> str:
    return msgspec.json.encode(row[name]).decode() if name in row else "missing"
