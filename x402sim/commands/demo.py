"""`demo`: one paid request, step by step."""

import json

import typer

from x402sim.commands.common import (
    NOT_ALL_HELD,
    AsJson,
    NetworkFile,
    NetworkName,
    RandomSeed,
    as_misuse,
)
from x402sim.commands.demo_story import play
from x402sim.commands.steps import print_step
from x402sim.protocol.network_file import choose_network


def demo(
    seed: RandomSeed = 0,
    network: NetworkName = None,
    network_file: NetworkFile = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a quote through every component, and print each step."""
    with as_misuse():
        chosen = choose_network(network, network_file)
    steps = []
    for step in play(seed, chosen):
        steps.append(step)
        if not as_json:
            print_step(len(steps), step)
    all_ok = all(step.ok for step in steps)
    if as_json:
        facts = [{"title": step.title, "ok": step.ok, **step.facts} for step in steps]
        typer.echo(json.dumps({"ok": all_ok, "steps": facts}, indent=2))
    elif all_ok:
        typer.echo("Paid, served and indexed.")
    if not all_ok:
        raise typer.Exit(NOT_ALL_HELD)
