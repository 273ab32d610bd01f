"""`reproduce`: repeat a saved result, and compare."""

import json
from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands import common
from x402sim.commands.sweep import INTERRUPTED
from x402sim.experiments.reproduce import reproduce as repeat
from x402sim.text.words import counted

_Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A saved run, or a sweep's folder.")
]
_Points = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=common.within(1, 1 << 62),
        help="Repeat only N points of a sweep, drawn by a fixed seed.",
    ),
]


def reproduce(
    folder: _Folder,
    points: _Points = None,
    workers: common.Workers = None,
    as_json: common.AsJson = False,
) -> None:
    """Repeat a result, print what differs, and exit with 0, 1 or 2."""
    try:
        with common.quiet(), common.as_misuse(ValueError, TypeError, ModuleNotFoundError, OSError):
            found = repeat(folder, points=points, workers=workers)
    except KeyboardInterrupt as interrupt:
        typer.echo(f"x402sim: {interrupt or 'interrupted'}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        shown = ("kind", "name", "compared", "differences", "notes")
        fields = {name: getattr(found, name) for name in shown}
        typer.echo(json.dumps({"same": found.is_same, **fields}))
    else:
        compared = ", ".join(counted(count, what) for what, count in found.compared.items())
        word = "same" if found.is_same else "DIFFERS"
        typer.echo(common.filled(f"{word}: the {found.kind} {found.name} ({compared})"))
        for each in found.notes:
            typer.echo(common.filled(f"note: {each}"))
        for each in found.differences:
            for number, line in enumerate(each.split("\n")):
                typer.echo(common.filled(line.lstrip(), 2 + 2 * bool(number)))
    if not found.is_same:
        raise typer.Exit(common.NOT_ALL_HELD)
