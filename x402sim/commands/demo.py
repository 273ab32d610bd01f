"""`demo`: one paid request, step by step."""

import json
import textwrap
from typing import TYPE_CHECKING

import typer

from x402sim.commands.common import (
    NOT_ALL_HELD,
    AsJson,
    NetworkFile,
    NetworkName,
    RandomSeed,
    give_up,
)

if TYPE_CHECKING:
    from x402sim.commands.demo_story import Step

WIDTH = 62


def demo(
    seed: RandomSeed = 0,
    network: NetworkName = None,
    network_file: NetworkFile = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a quote through every component, and print each step."""
    from x402sim.commands.demo_story import play
    from x402sim.protocol.network_file import choose_network

    try:
        chosen = choose_network(network, network_file)
    except ValueError as error:
        raise give_up(error) from error
    steps = []
    for step in play(seed, chosen):
        steps.append(step)
        if not as_json:
            _print_step(len(steps), step)
    all_ok = all(step.ok for step in steps)
    if as_json:
        facts = [{"title": step.title, "ok": step.ok, **step.facts} for step in steps]
        typer.echo(json.dumps({"ok": all_ok, "steps": facts}, indent=2))
    elif all_ok:
        typer.echo("Paid, served and indexed.")
    if not all_ok:
        raise typer.Exit(NOT_ALL_HELD)


def _print_step(number: int, step: "Step") -> None:
    mark = typer.style("ok" if step.ok else "FAILED", fg="green" if step.ok else "red")
    typer.echo(f"{number}. {step.title}: {mark}")
    for name, value in step.facts.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        lines = textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False)
        for first, line in zip([name.replace("_", " "), *[""] * len(lines)], lines, strict=False):
            typer.echo(f"   {first:<14} {line}")
