"""`decisions`, `clauses` and `events`: what the specification, we and a journal say, as books."""

import json
from collections.abc import Sequence

import typer

from x402sim.commands.common import (
    AsJson,
    Beginnings,
    Markdown,
    beginning,
    filled,
    require_one_form,
)
from x402sim.commands.event_reference import reference
from x402sim.spec import decisions as book
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.markdown import table

Row = tuple[str, ...]


def decisions(only: Beginnings = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """List our decisions where the specification is silent.

    Example: x402sim decisions 4.1 7/final
    """
    rows = [(d.id, d.question, d.choice, d.alternatives, d.reason) for d in book.decisions()]
    titles = ("id", "question", "choice", "alternatives", "reason")
    _print_book(titles, _only("decision", rows, only), markdown=markdown, as_json=as_json)


def clauses(only: Beginnings = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """List the clauses of the specification, and what keeps each.

    Example: x402sim clauses 5 7/nonce
    """
    rows = [
        (c.id, c.level, c.text, " ".join((f"{c.ground.kind};", *c.ground.told)), c.kept_by)
        for c in CLAUSES
    ]
    titles = ("id", "level", "clause", "ground", "kept by")
    _print_book(titles, _only("clause", rows, only), markdown=markdown, as_json=as_json)


def events(only: Beginnings = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """Show every event that a journal can hold, with its fields.

    Example: x402sim events payment "session opened"
    """
    require_one_form(markdown=markdown, as_json=as_json)
    typer.echo(reference(only, markdown=markdown, as_json=as_json), nl=False)


def _only(kind: str, rows: Sequence[Row], wanted: list[str] | None) -> list[Row]:
    ids = beginning(kind, [row[0] for row in rows], wanted)
    return [row for row in rows if row[0] in ids]


def _print_book(titles: Row, rows: Sequence[Row], *, markdown: bool, as_json: bool) -> None:
    """Print a table; for a terminal, a paragraph for each row, at most 80 columns wide."""
    require_one_form(markdown=markdown, as_json=as_json)
    if as_json:
        names = [title.replace(" ", "_") for title in titles]
        typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    if markdown:
        typer.echo(table(titles, rows), nl=False)
        return
    for row in rows:
        typer.secho(row[0], bold=True)
        for title, text in zip(titles[1:], row[1:], strict=True):
            typer.echo(filled(f"{title}: {text}", 2))
