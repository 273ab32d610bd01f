"""Prints steps with their facts, and findings: for `demo`, `pay`, `decode` and `doctor`."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import typer

from x402sim.protocol.findings import Finding
from x402sim.text.console import WIDTH
from x402sim.text.printable import printable

NAME_WIDTH, MOST_NAME_WIDTH = 14, 18
"""The columns of a name: more if one is longer."""
MOST_SHOWN = 2000
"""The characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its title, whether it succeeded, its details, and a word for its outcome."""

    title: str
    ok: bool
    facts: dict[str, Any] = field(default_factory=dict)
    mark: str = ""
    """By default "ok" or "FAILED"."""


def print_step(number: int, step: Step, *, err: bool = False) -> None:
    """Print a step with a mark that says whether it succeeded."""
    mark = step.mark or ("ok" if step.ok else "FAILED")
    mark = typer.style(mark, fg="green" if step.ok else "red")
    typer.echo(f"{number}. {printable(step.title)}: {mark}", err=err)
    print_facts({name.replace("_", " "): value for name, value in step.facts.items()}, err=err)


def print_facts(facts: Mapping[str, Any], *, err: bool = False) -> None:
    """Print names and values in two columns, of other parties escaped.

    They fit in 80 columns, but for ids and hashes that are longer, which stay whole to be copied.
    """
    names = [printable(name) for name in facts]
    column = min(max([NAME_WIDTH, *map(len, names)]), MOST_NAME_WIDTH)
    for name, value in zip(names, facts.values(), strict=True):
        text = printable(value or '""' if isinstance(value, str) else _as_text(value))
        text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        lines = textwrap.wrap(
            text, WIDTH - column - 4, break_on_hyphens=False, break_long_words=False
        )
        typer.echo(f"   {name:<{column}} {lines[0] if lines else ''}".rstrip(), err=err)
        for line in lines[1:]:
            typer.echo(f"   {'':<{column}} {line}", err=err)


def _as_text(value: Any) -> str:
    """Return a fact as text: JSON as JSON, a value of `protocol.values` in its words."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ("; " if any("," in each for each in value) else ", ").join(value)
    is_json = value is None or isinstance(value, dict | list | bool)
    return json.dumps(value) if is_json else str(value)


def print_findings(findings: Iterable["Finding"]) -> None:
    """Print what is wrong: what was seen, what is wanted, and what to do."""
    for each in findings:
        mark = typer.style(each.mark, fg="red" if each.stops else "yellow")
        typer.echo(f"{mark}: {printable(each.about)}")
        print_facts({"seen": each.seen, "wanted": each.wanted, "do": each.do})
