"""`list`: lists the scenarios, or shows some in full."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands.common import AsJson, completing, filled, print_json
from x402sim.commands.run import choose
from x402sim.protocol.permit2_payments import UPTO_CLAUSES
from x402sim.spec.clauses import CLAUSES
from x402sim.world.scenario import Scenario, shipped_names


def list_scenarios(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Scenarios to show in full: names, FILE.py, or FILE.py:FUNCTION.",
            autocompletion=completing(shipped_names),
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the scenarios, or show some in full."""
    chosen = choose(names or [])
    found = [each.scenario for each in chosen]
    if as_json:
        document = [
            {
                "name": each.name,
                "title": each.title,
                "covers": each.covers,
                "needs": each.needs,
                "story": each.description,
                "file": str(_file(each)),
            }
            for each in found
        ]
        print_json(document)
    elif names:
        typer.echo("\n\n".join(_story(each.scenario, each.command) for each in chosen))
    else:
        for each in found:
            clauses = len(each.covers)
            facts = f"{clauses} clause{'' if clauses == 1 else 's'}; needs {_needs(each)}"
            typer.echo(f"{_bold(each.name)}\n{filled(each.title, 2)}\n{filled(facts, 2)}")


def _story(scenario: Scenario, command: str) -> str:
    sentences = {clause.id: clause.text for clause in CLAUSES} | UPTO_CLAUSES
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


def _needs(scenario: Scenario) -> str:
    return ", ".join(scenario.needs) or "nothing"


def _file(scenario: Scenario) -> Path:
    return Path(inspect.getfile(scenario.function))


def _bold(text: str) -> str:
    return typer.style(text, bold=True)
