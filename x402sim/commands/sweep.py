"""`sweep`: plays an experiment over a grid of parameters and many seeds, in parallel."""

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from x402sim.commands.common import NOT_ALL_HELD, AsJson, Misuse, Workers, as_misuse, quiet
from x402sim.experiments.grid import Cell, cells
from x402sim.experiments.summary import Until, results_of, summarize
from x402sim.experiments.sweep import Kept, failures, play, unreached
from x402sim.report.bundle import Program, Running, imports
from x402sim.text.program import shown
from x402sim.text.words import printable, printable_lines, unknown
from x402sim.world.scenario import load_module

if TYPE_CHECKING:
    from pandas import DataFrame

INTERRUPTED = 130
_MOST_SHOWN = 10


_Experiment = Annotated[
    str, typer.Argument(metavar="FILE.py:FUNCTION", help="The experiment, a plain function.")
]
_Values = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=A,B,C", help="Values of one parameter; repeatable."),
]
_Seeds = Annotated[
    str,
    typer.Option(metavar="N", help="N: seeds 0 to N - 1; A:B: seeds A to B - 1; A: seed A only."),
]
_Until = Annotated[
    str | None,
    typer.Option(
        metavar="WIDTH",
        help="Stop once each interval is this narrow: 5%, 0.01, waited_s=5%.",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", file_okay=False, help="Keep results in DIR, and resume a sweep there."
    ),
]


def sweep(
    experiment: _Experiment,
    values: _Values = None,
    seeds: _Seeds = "200",
    until: _Until = None,
    workers: Workers = None,
    out: _Out = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the results in DIR first.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play an experiment for every combination of values and seeds."""
    keys = [text.partition("=")[0] for text in values or []]
    replay = partial(_replay, experiment)
    try:
        function = _function(experiment)
        again = [each for value in values or [] for each in ("--set", value)]
        again += ["--seeds", seeds, "--out", "results"]
        enough = _until(until)
        again += ["--until", until] if until else []
        kept = _kept(out, fresh=fresh, program=_program(experiment, again))
        numbers, wrong = _seeds(seeds), (ValueError, TypeError, ModuleNotFoundError, OSError)
        with quiet(), as_misuse(*wrong):
            found = cells(dict(map(_parameter, values or [])))
            frame = play(
                function, found, numbers, (None, workers), kept, until=enough, common=True,
                shown=True, replay=replay,
            )  # fmt: skip
        if enough is not None and (text := unreached(frame, enough)):
            typer.echo(f"x402sim: {printable(text)}", err=True)
        if out is not None:
            _write(keys, out, _points(frame, keys))
    except KeyboardInterrupt as interrupt:
        typer.echo(f"x402sim: {interrupt or 'interrupted'}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    _print_results(frame, keys, as_json=as_json)
    if frame["error"].notna().any():
        _print_failures(frame)
        raise typer.Exit(NOT_ALL_HELD)


def _replay(experiment: str, cell: Cell) -> str:
    """Return the command that plays one cell again, with a place for the seed."""
    given = " ".join(f"--set {shlex.quote(f'{k}={v}')}" for k, v in cell.labels.items())
    start = f"{shown()} sweep {shlex.quote(experiment)}"
    return " ".join(part for part in (start, given, "--seeds {seed}: --workers 0") if part)


def _function(experiment: str) -> Callable[..., Any]:
    name, _, function = experiment.rpartition(":")
    file = Path(name)
    if not name.endswith(".py") or not function.isidentifier():
        raise Misuse(f"FILE.py:FUNCTION is needed, not {experiment!r}")
    if not file.is_file():
        raise Misuse(f"no such file: {name}")
    sys.path.insert(0, str(file.resolve().parent))  # as `python FILE.py` does
    try:
        module: ModuleType = load_module(file)
    except Exception as error:
        raise Misuse(f"cannot load {name}: {type(error).__name__}: {error}") from error
    found = vars(module).get(function)
    if not callable(found):
        own = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
            if "seed" in inspect.signature(value).parameters
        ]
        raise Misuse(f"{name}: {unknown('function', function, own)}")
    result: Callable[..., Any] = found
    return result


def _parameter(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier() or "" in values.split(","):
        raise ValueError(f"--set: KEY=A,B,C is needed, not {text!r}")
    return name, [_value(each) for each in values.split(",")]


def _value(text: str) -> Any:
    """Return a number, True, False or None for a text with its JSON; else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str | list | dict) else value


def _seeds(text: str) -> range:
    """Parse "200", "100:200" or "17:" (only seed 17); raises `Misuse`."""
    first, colon, end = text.partition(":")
    try:
        start = int(first)
        found = range(start, int(end) if end else start + 1) if colon else range(start)
    except ValueError:
        found = range(0)
    if not found or found.start < 0:
        raise Misuse(f"--seeds: N from 1 on, A:B with A below B, or A: is needed, not {text!r}")
    return found


def _until(text: str | None) -> Until | None:
    """Parse "5%", "0.01" or "waited_s=5%"; raises `Misuse`."""
    if text is None:
        return None
    result, _, width = text.rpartition("=")
    try:
        number = float(width.removesuffix("%"))
        if width.endswith("%"):
            return Until(of=result or None, relative=number / 100)
        return Until(of=result or None, absolute=number)
    except ValueError:
        wanted = "a width above 0 is needed, such as 5% or 0.01 or waited_s=5%"
        raise Misuse(f"--until: {wanted}, not {text!r}") from None


def _program(experiment: str, options: list[str]) -> Running:
    name, _, function = experiment.rpartition(":")
    file = Path(name).resolve()
    root = Path.cwd() if file.is_relative_to(Path.cwd()) else file.parent
    place, text = file.relative_to(root).as_posix(), file.read_bytes()
    program = Program("module", "x402sim", ["sweep", f"{place}:{function}", *options])
    return Running(program, {place: text}, root, tuple(imports(text, "")))


def _kept(out: Path | None, *, fresh: bool, program: Running) -> Kept | None:
    """Return where results are kept; None without --out. Raises `Misuse`."""
    if fresh and out is None:
        raise Misuse("--fresh: it deletes the results in a folder; give --out DIR, too")

    def tell(text: str) -> None:
        typer.echo(f"x402sim: {printable(text)}", err=True)

    return None if out is None else Kept(out, fresh, tell, program)


def _write(keys: Sequence[str], out: Path, played: int) -> None:
    """Write the summary of all rows in a folder, with a note if the folder has more points."""
    import pandas as pd

    from x402sim.experiments.folder import ALL_ROWS, SUMMARY, Folder  # with the extra

    rows = pd.read_parquet(out / ALL_ROWS)
    table = _summary(rows, keys)
    if table is not None:
        table.to_csv(out / SUMMARY, index=False, lineterminator="\n")
        Folder(out, keys).note_summary()
    if (points := _points(rows, keys)) > played:
        typer.echo(f"x402sim: the files in {out} have the {points} points of all sweeps", err=True)


def _summary(rows: "DataFrame", keys: Sequence[str]) -> "DataFrame | None":
    """Return the summary; None if no result is a number."""
    return summarize(rows, by=list(keys)) if results_of(rows, keys) else None


def _print_results(frame: "DataFrame", keys: Sequence[str], *, as_json: bool) -> None:
    table = _summary(frame, keys)
    if as_json:
        text = "[]" if table is None else table.to_json(orient="records")
        typer.echo(json.dumps({"points": _points(frame, keys), "summary": json.loads(text)}))
    elif table is not None:
        columns = ["result", "seeds", "failed", "mean", "low", "high"]
        shown = table[[*keys, *columns]]
        text = shown.to_string(index=False, na_rep="-", float_format="{:.4g}".format)
        typer.echo(printable_lines(text))
        if table["low"].isna().any():
            typer.echo("x402sim: '-' means no interval: it needs two seeds", err=True)
        if (table["rows"] > table["seeds"]).any():
            text = "intervals count seeds, as rows of one seed may depend on each other"
            do = 'if rows are independent, use summarize(..., unit="row")'
            typer.echo(f"x402sim: {text}; {do}", err=True)
    elif frame["error"].isna().any():
        text = "the results have no numbers; return a number, or a dict or frame of numbers"
        text += ". --out DIR keeps other results"
        typer.echo(f"x402sim: no summary: {text}", err=True)


def _points(frame: "DataFrame", keys: Sequence[str]) -> int:
    return len(frame[[*keys, "seed"]].drop_duplicates())


def _print_failures(frame: "DataFrame") -> None:
    failed = frame[frame["error"].notna()]
    head = failures(frame)
    typer.echo(f"x402sim: {head[0].lower()}{head[1:]}", err=True)
    for line in str(failed["trace"].iloc[0]).splitlines():
        typer.echo(f"  {printable(line)}", err=True)
    for _, row in failed.head(_MOST_SHOWN).iterrows():
        typer.echo(f"\n{printable(row['error'])}\n  replay: {row['replay']}", err=True)
    if len(failed) > _MOST_SHOWN:
        typer.echo(f"\nand {len(failed) - _MOST_SHOWN} more; --out keeps them all", err=True)
