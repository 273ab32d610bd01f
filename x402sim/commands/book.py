"""`decisions` and `clauses`: the specification's clauses and our decisions."""

from collections.abc import Sequence

import typer

from x402sim.commands.common import Markdown, filled
from x402sim.spec.markdown import table


def decisions(markdown: Markdown = False) -> None:
    """List our decisions where the specification is silent, with the reasons."""
    from x402sim.spec import decisions as book

    rows = [(d.id, d.question, d.choice, d.alternatives, d.reason) for d in book.decisions()]
    _print_book(("id", "question", "choice", "alternatives", "reason"), rows, markdown)


def clauses(markdown: Markdown = False) -> None:
    """List the clauses of the specification, each with its ground and the code that keeps it."""
    from x402sim.spec.clauses import CLAUSES

    rows = [
        (c.id, c.level, c.text, " ".join((f"{c.ground.kind};", *c.ground.told)), c.kept_by)
        for c in CLAUSES
    ]
    _print_book(("id", "level", "clause", "ground", "kept by"), rows, markdown)


def _print_book(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], markdown: bool) -> None:
    """Print a table; for a terminal, a paragraph for each row, at most 80 columns wide."""
    if markdown:
        typer.echo(table(titles, rows), nl=False)
        return
    for row in rows:
        typer.secho(row[0], bold=True)
        for title, text in zip(titles[1:], row[1:], strict=True):
            typer.echo(filled(f"{title}: {text}", 2))
