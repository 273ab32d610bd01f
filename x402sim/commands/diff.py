"""`diff`: shows the first difference between two journals."""

from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands.common import NOT_ALL_HELD, filled, load_journal
from x402sim.report.diff import describe

A = Annotated[
    Path, typer.Argument(metavar="A", help="First journal, or the folder of a saved run.")
]
B = Annotated[Path, typer.Argument(metavar="B", help="Second journal, or folder.")]


def diff(a: A, b: B) -> None:
    """Show the first event in which two journals differ."""
    one, other = load_journal(a), load_journal(b)
    lines = describe(one, other)
    if not lines:
        if one.sha256() == other.sha256():
            typer.echo(f"equal: {one.length} events\njournal sha256 {one.sha256()}")
        else:
            typer.echo("equal except for times, ids and hashes: two recordings of `watch`")
        return
    for line in (f"a {a}", f"b {b}", *lines):
        typer.echo(filled(line.lstrip(), len(line) - len(line.lstrip())))
    raise typer.Exit(NOT_ALL_HELD)
