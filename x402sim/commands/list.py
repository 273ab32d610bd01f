"""`list`: the scenarios, or one of them in full."""

import inspect
import json
from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands.common import AsJson, completing, filled
from x402sim.commands.playing import choose
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.needs import Need
from x402sim.world.scenario import Scenario, shipped_names


def list_scenarios(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Scenarios to show in full: names, FILE.py or FILE.py:FUNCTION.",
            autocompletion=completing(shipped_names),
        ),
    ] = None,
    as_json: AsJson = False,
    needs: Annotated[
        bool, typer.Option("--needs", help="List the needs, with the scenarios that have each.")
    ] = False,
) -> None:
    """List the scenarios, or show some in full."""
    chosen = choose(names or [])
    found = [each.scenario for each in chosen]
    if as_json:
        typer.echo(json.dumps([_document(each) for each in found], indent=2))
    elif needs:
        _print_needs(found)
    elif names:
        typer.echo("\n\n".join(_story(each.scenario, each.command) for each in chosen))
    else:
        typer.echo("\n".join(_row(each) for each in found))


def _row(scenario: Scenario) -> str:
    clauses = len(scenario.covers)
    facts = f"{clauses} clause{'' if clauses == 1 else 's'}; needs {_needs(scenario)}"
    return f"{_bold(scenario.name)}\n{filled(scenario.title, 2)}\n{filled(facts, 2)}"


def _story(scenario: Scenario, command: str) -> str:
    sentences = {clause.id: clause.text for clause in CLAUSES}
    return "\n".join(
        [
            _bold(scenario.name),
            filled(scenario.title, 2),
            "",
            filled(scenario.description, 2),
            "",
            *(filled(f"{clause}: {sentences[clause]}", 2) for clause in scenario.covers),
            "",
            filled(f"needs {_needs(scenario)}", 2),
            f"  file  {_file(scenario)}",
            f"  run   {command}",
        ]
    )


def _print_needs(scenarios: list[Scenario]) -> None:
    for need in Need:
        who = [each.name for each in scenarios if need in each.needs]
        if who:
            typer.echo(_bold(f"{need}: {need.meaning}"))
            typer.echo(filled(", ".join(who), 2))


def _document(scenario: Scenario) -> dict[str, object]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "covers": scenario.covers,
        "needs": scenario.needs,
        "story": scenario.description,
        "file": str(_file(scenario)),
    }


def _needs(scenario: Scenario) -> str:
    return ", ".join(scenario.needs) or "nothing"


def _file(scenario: Scenario) -> Path:
    return Path(inspect.getfile(scenario.function))


def _bold(text: str) -> str:
    return typer.style(text, bold=True)
