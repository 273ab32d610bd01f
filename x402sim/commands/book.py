"""`decisions`, `clauses` and `events`: reference tables of specification and journal."""

import json
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from msgspec import UnsetType

from x402sim import events as declared
from x402sim.commands.common import (
    AsJson,
    Beginnings,
    Markdown,
    beginning,
    completing,
    filled,
    require_one_form,
)
from x402sim.journal import HEADER
from x402sim.spec import decisions as book
from x402sim.spec.clauses import CLAUSES, Clause
from x402sim.text.console import WIDTH
from x402sim.text.templates import markdown_table

Row = tuple[str, ...]
Groups = Mapping[str, Sequence[type[declared.Event]]]
GROUPS: Groups = {
    "The story": get_args(declared.StoryEvent),
    "The chain": get_args(declared.ChainEvent),
    "The service": get_args(declared.ServiceEvent),
    "HTTP exchanges": get_args(declared.ExchangeEvent | declared.PartEvent),
}
"""The events by who records them."""
INTRODUCTION = (
    f"A journal is NDJSON. Its first line is `{HEADER.decode().strip()}`, and each further line "
    "is one event: `seq` (counts from 0), `at_ms` (Unix milliseconds), `event` (its name), and "
    "its fields in the order they have here. Units are in the names: `_base` is base units of "
    "the token, `_ms` Unix milliseconds, `_s` and `seconds` seconds, `_wei` wei."
)
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON"}


def _beginnings(ids: Callable[[], Iterable[str]]) -> Any:
    """Return an argument that takes beginnings of ids."""
    help_ = "Show only ids that begin with one of these."
    return typer.Argument(metavar="BEGINNING", help=help_, autocompletion=completing(ids))


_Decisions = Annotated[
    list[str] | None, _beginnings(lambda: (each.id for each in book.decisions()))
]
_Clauses = Annotated[list[str] | None, _beginnings(lambda: (each.id for each in CLAUSES))]


def decisions(only: _Decisions = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """List our decisions where the specification is silent."""
    rows = [(d.id, d.question, d.choice, d.alternatives, d.reason) for d in book.decisions()]
    titles = ("id", "question", "choice", "alternatives", "reason")
    _print_book(titles, _only("decision", rows, only), markdown=markdown, as_json=as_json)


def clauses(only: _Clauses = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """List the clauses of the specification, and what keeps each."""
    require_one_form(markdown=markdown, as_json=as_json)
    if as_json:
        ids = beginning("clause", [each.id for each in CLAUSES], only)
        typer.echo(json.dumps([_clause(each) for each in CLAUSES if each.id in ids], indent=2))
        return
    rows = [
        (c.id, c.level, c.text, " ".join((f"{c.ground.kind};", *c.ground.lines)), c.kept_by)
        for c in CLAUSES
    ]
    titles = ("id", "level", "clause", "ground", "kept by")
    _print_book(titles, _only("clause", rows, only), markdown=markdown)


def events(only: Beginnings = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """Show every event that a journal can hold, with its fields."""
    require_one_form(markdown=markdown, as_json=as_json)
    typer.echo(reference(only, markdown=markdown, as_json=as_json), nl=False)


def _only(kind: str, rows: Sequence[Row], wanted: list[str] | None) -> list[Row]:
    ids = beginning(kind, [row[0] for row in rows], wanted)
    return [row for row in rows if row[0] in ids]


def _clause(clause: Clause) -> dict[str, Any]:
    """Return a clause for JSON; `kept_by` is a place in the code."""
    ground = clause.ground
    sentences = [{"section": each.section, "text": each.text} for each in ground.sentences]
    return {
        "id": clause.id,
        "level": clause.level,
        "clause": clause.text,
        "ground": {"kind": ground.kind, "sentences": sentences, "why": ground.why},
        "kept_by": clause.kept_by,
    }


def _print_book(titles: Row, rows: Sequence[Row], *, markdown: bool, as_json: bool = False) -> None:
    """Print a table; for a terminal, a paragraph for each row, at most 80 columns wide."""
    require_one_form(markdown=markdown, as_json=as_json)
    if as_json:
        names = [title.replace(" ", "_") for title in titles]
        typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
        return
    if markdown:
        typer.echo(markdown_table(titles, rows), nl=False)
        return
    for row in rows:
        typer.secho(row[0], bold=True)
        for title, text in zip(titles[1:], row[1:], strict=True):
            typer.echo(filled(f"{title}: {text}", 2))


# --- the events, made from their declarations --------------------------------------------


def reference(only: list[str] | None, *, markdown: bool, as_json: bool) -> str:
    """Return the reference of the events whose names begin so; raises `Misuse` if none does."""
    known = {declared.name_of(kind): kind for kinds in GROUPS.values() for kind in kinds}
    wanted = [known[name] for name in beginning("event", [*known], only)]
    found = {group: [kind for kind in kinds if kind in wanted] for group, kinds in GROUPS.items()}
    shown = {group: kinds for group, kinds in found.items() if kinds}
    if as_json:
        document = [
            {
                "name": declared.name_of(kind),
                "group": group,
                "text": _meaning(kind),
                "fields": dict(fields_of(kind)),
            }
            for group, kinds in shown.items()
            for kind in kinds
        ]
        return json.dumps(document, indent=2) + "\n"
    return as_markdown(shown) if markdown else as_text(shown)


def as_markdown(groups: Groups) -> str:
    """Return the reference as Markdown."""
    parts = [f"# Events of a journal\n\n{INTRODUCTION}\n"]
    for group, kinds in groups.items():
        parts.append(f"\n## {group}\n")
        for kind in kinds:
            fields = [(f"`{name}`", json_type) for name, json_type in fields_of(kind)]
            text = f"\n### {declared.name_of(kind)}\n\n{_meaning(kind)}\n\n"
            parts.append(text + markdown_table(("field", "JSON"), fields))
    return "".join(parts)


def as_text(groups: Groups) -> str:
    """Return the reference for a terminal, in 80 columns."""
    lines = [textwrap.fill(INTRODUCTION.replace("`", ""), WIDTH, break_on_hyphens=False)]
    for group, kinds in groups.items():
        lines += ["", group.upper()]
        for kind in kinds:
            lines += ["", declared.name_of(kind), filled(_meaning(kind).replace("`", ""), 2)]
            lines += [filled(f"{name:<15} {json}", 4) for name, json in fields_of(kind)]
    return "\n".join(lines) + "\n"


def fields_of(kind: type[declared.Event]) -> Iterator[tuple[str, str]]:
    """Yield the fields of an event in order, each with its JSON type."""
    hints = get_type_hints(kind)
    for name in kind.__struct_fields__:
        yield name, _json(hints[name])


def _json(annotation: Any) -> str:
    """Return the JSON type of an annotation: "integer or null", "used or canceled"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if annotation is UnsetType:
        return "absent"
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in arguments)
    if origin is UnionType:
        is_number = float in arguments  # JSON's number includes integers
        members = [each for each in arguments if not (is_number and each is int)]
        return " or ".join(_json(each) for each in members)
    if origin is dict:
        return f"object of {_json(arguments[1])}"
    if origin is tuple:
        return f"array of {_json(arguments[0])}"
    return _JSON[annotation]


def _meaning(kind: type[declared.Event]) -> str:
    return " ".join(kind.meaning.split())
