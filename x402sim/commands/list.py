"""`list`: which scenarios there are, and what one of them is about."""

import inspect
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from x402sim.commands.common import AsJson, Misuse, give_up

if TYPE_CHECKING:
    from x402sim.world.story.scenario import Scenario


def list_scenarios(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Tell all about these.")
    ] = None,
    as_json: AsJson = False,
    needs: Annotated[
        bool, typer.Option("--needs", help="List the needs instead, and who has them.")
    ] = False,
) -> None:
    """List the scenarios that `run` plays, or tell all about one.

    Each has a title, the clauses of the specification it covers (`clauses` has their
    sentences), and needs: what a stage must offer for it, such as control of the clock.
    In process and over tcp everything is offered; a service behind a URL offers what its
    control plane `/_sim` does, and without one nothing. With a NAME, its story, clauses,
    needs and file are told. A .py file of your own can be told about, and run, by its path.
    """
    from x402sim.commands.playing import choose

    try:
        chosen = choose(names or [])
    except Misuse as misuse:
        raise give_up(misuse) from misuse
    found = [each.scenario for each in chosen]
    if as_json:
        typer.echo(json.dumps([_document(each) for each in found], indent=2))
    elif needs:
        _tell_needs(found)
    elif names:
        typer.echo("\n\n".join(_story(each.scenario, each.command) for each in chosen))
    else:
        typer.echo("\n".join(_row(each) for each in found))


def _row(scenario: "Scenario") -> str:
    clauses = len(scenario.covers)
    facts = f"{clauses} clause{'' if clauses == 1 else 's'}; needs {_needs(scenario)}"
    return f"{_bold(scenario.name)}\n{_fill(scenario.title)}\n{_fill(facts)}"


def _story(scenario: "Scenario", command: str) -> str:
    from x402sim.spec.clauses import CLAUSES

    sentences = {clause.id: clause.text for clause in CLAUSES}
    return "\n".join(
        [
            _bold(scenario.name),
            _fill(scenario.title),
            "",
            _fill(scenario.story),
            "",
            *(_fill(f"{clause}: {sentences[clause]}") for clause in scenario.covers),
            "",
            _fill(f"needs {_needs(scenario)}"),
            f"  file  {_file(scenario)}",
            f"  play  {command}",
        ]
    )


def _tell_needs(scenarios: "list[Scenario]") -> None:
    from x402sim.spec.needs import Need

    for need in Need:
        who = [each.name for each in scenarios if need in each.needs]
        if who:
            typer.echo(_bold(f"{need}: {need.meaning}"))
            typer.echo(_fill(", ".join(who)))


def _document(scenario: "Scenario") -> dict[str, object]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "covers": scenario.covers,
        "needs": scenario.needs,
        "story": scenario.story,
        "file": str(_file(scenario)),
    }


def _needs(scenario: "Scenario") -> str:
    return ", ".join(scenario.needs) or "nothing"


def _file(scenario: "Scenario") -> Path:
    return Path(inspect.getfile(scenario.play))


def _bold(text: str) -> str:
    return typer.style(text, bold=True)


def _fill(text: str) -> str:
    return textwrap.fill(
        text, 80, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
    )
