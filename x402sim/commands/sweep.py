"""`sweep`: play an experiment over a grid of parameters and many seeds, in parallel."""

import inspect
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from x402sim.commands.common import NOT_ALL_HELD, AsJson, Misuse, give_up, quiet
from x402sim.printable import printable

if TYPE_CHECKING:
    from pandas import DataFrame

    from x402sim.experiments.grid import Cell

_INTERRUPTED = 130
_MOST_SHOWN = 10


def sweep(
    experiment: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="The experiment, a plain function.")
    ],
    values: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=A,B,C", help="Values of a parameter; give it for each parameter."
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(metavar="N", help="Seeds 0 to N - 1, or from A up to B with A:B.")
    ] = "200",
    workers: Annotated[
        int | None,
        typer.Option(help="Processes; 0 plays in this one.  [default: one a CPU]", min=0, max=256),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Play on the Dask cluster with this scheduler."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write results to DIR, and resume what is there."),
    ] = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="Give each cell seeds of its own.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play an experiment for every combination of values and every seed; summarize the results.

    An experiment is a plain function of its parameters and `seed`, which returns a number, a dict
    of numbers, or a DataFrame (see `help(x402sim.sweep)`). Values are numbers, true, false, null
    or texts. All cells are played with the same seeds (common random numbers). The summary has
    the mean of each result with its 95 % confidence interval, a bootstrap over seeds.

    With --out, DIR keeps one Parquet file a task, so that an interrupted sweep goes on with the
    same command; at the end, all rows are in results.parquet and the summary in summary.csv. Exit
    code 1: at least one point failed; the output has its error, and the line that replays it.

    Examples:

    - `x402sim sweep study.py:delay --set rate=0.1,0.5,2 --set limit=60,600 --seeds 200`
    - `x402sim sweep study.py:delay --set rate=0.1 --dask tcp://10.0.0.1:8786 --out results`
    """
    try:
        with quiet():
            frame = _played(
                experiment, values or [], seeds, (dask, workers), out, common=not independent
            )
        keys = [text.partition("=")[0] for text in values or []]
        _print_results(frame, keys, out, as_json=as_json)
    except Misuse as misuse:
        raise give_up(misuse) from misuse
    except KeyboardInterrupt:
        raise _interrupted(out) from None
    if frame["error"].notna().any():
        _print_failures(frame[frame["error"].notna()])
        raise typer.Exit(NOT_ALL_HELD)


def _interrupted(out: Path | None) -> typer.Exit:
    again = "the same command goes on from there" if out else "with --out it could go on"
    typer.echo(f"x402sim: interrupted; {again}", err=True)
    return typer.Exit(_INTERRUPTED)


def _played(
    experiment: str,
    values: Sequence[str],
    seeds: str,
    where: tuple[str | None, int | None],
    out: Path | None,
    *,
    common: bool,
) -> "DataFrame":
    """Play the sweep; raises `Misuse` for what cannot be played."""
    from x402sim.experiments.grid import cells
    from x402sim.experiments.sweep import play

    function = _function(experiment)
    numbers = _seeds(seeds)

    def replay(cell: "Cell") -> str:
        given = " ".join(f"--set {shlex.quote(f'{k}={v}')}" for k, v in cell.labels.items())
        start = f"python -m x402sim sweep {shlex.quote(experiment)}"
        return " ".join(part for part in (start, given, "--seeds {seed}: --workers 0") if part)

    try:
        found = cells(dict(map(_parameter, values)))
        with _executor(where[0]) as executor:
            places = executor, None if executor else where[1]
            return play(
                function, found, numbers, places, out, common=common, shown=True, replay=replay
            )
    except (ValueError, TypeError, ModuleNotFoundError, OSError) as error:
        raise Misuse(str(error)) from error


def _function(experiment: str) -> Callable[..., Any]:
    """Return the function in a file; raises `Misuse`."""
    from x402sim.suggest import unknown
    from x402sim.world.story.scenario import load_module

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
        own = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        raise Misuse(f"{name}: {unknown('function', function, own)}")
    result: Callable[..., Any] = found
    return result


def _parameter(text: str) -> tuple[str, list[Any]]:
    name, equals, values = text.partition("=")
    if not equals or not name.isidentifier():
        raise ValueError(f"--set: KEY=A,B,C is needed, not {text!r}")
    return name, [_value(each) for each in values.split(",")]


def _value(text: str) -> Any:
    """Return a number, True, False or None if the text is JSON of one; else the text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, str | list | dict) else value


def _seeds(text: str) -> range:
    """Return the seeds of "200", "100:200" or "17:" (the one seed 17); raises `Misuse`."""
    first, colon, end = text.partition(":")
    try:
        start = int(first)
        return range(start, int(end) if end else start + 1) if colon else range(start)
    except ValueError:
        raise Misuse(f"--seeds: N or A:B is needed, not {text!r}") from None


@contextmanager
def _executor(dask: str | None) -> Iterator[Any]:
    """Connect to a Dask cluster; without an address there is none, and None is returned."""
    if dask is None:
        yield None
        return
    from x402sim.report import need_extra

    need_extra(("distributed",), "--dask", "sweep")
    from distributed import Client

    with Client(dask, timeout=10) as client:  # type: ignore[no-untyped-call]
        yield client


def _print_results(
    frame: "DataFrame", keys: Sequence[str], out: Path | None, *, as_json: bool
) -> None:
    """Print the summary; write it and all rows, if there is a folder."""
    from x402sim.experiments.summary import summarize

    rows = frame.drop(columns="trace")
    try:
        table = summarize(rows, by=list(keys))
    except ValueError as error:  # nothing but texts, or nothing but failures
        table = None
        typer.echo(f"x402sim: no summary: {error}", err=True)
    if out is not None:
        rows.to_parquet(out / "results.parquet", index=False)
        if table is not None:
            table.to_csv(out / "summary.csv", index=False, lineterminator="\n")
    if as_json:
        text = "[]" if table is None else table.to_json(orient="records")
        typer.echo(json.dumps({"points": _points(frame, keys), "summary": json.loads(text)}))
    elif table is not None:
        shown = table[[*keys, "result", "seeds", "mean", "low", "high"]]
        typer.echo(printable_table(shown))


def _points(frame: "DataFrame", keys: Sequence[str]) -> int:
    return len(frame[[*keys, "seed"]].drop_duplicates())


def printable_table(table: "DataFrame") -> str:
    """Return a frame as text: numbers with four digits, on the right; texts on the left."""
    columns = []
    for name in table.columns:
        is_number = table[name].dtype.kind in "if"
        texts = [f"{v:.4g}" if is_number else printable(str(v)) for v in table[name]]
        width = max(map(len, [str(name), *texts]))
        align = ">" if is_number else "<"
        columns.append([f"{text:{align}{width}}" for text in [str(name), *texts]])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def _print_failures(failed: "DataFrame") -> None:
    count = "1 point" if len(failed) == 1 else f"{len(failed)} points"
    typer.echo(f"\nx402sim: {count} failed. The first one:", err=True)
    for line in str(failed["trace"].iloc[0]).splitlines():
        typer.echo(f"  {printable(line)}", err=True)
    for _, row in failed.head(_MOST_SHOWN).iterrows():
        typer.echo(f"\n{printable(row['error'])}\n  replay: {row['replay']}", err=True)
    if len(failed) > _MOST_SHOWN:
        typer.echo(f"\nand {len(failed) - _MOST_SHOWN} more; --out keeps them all", err=True)
