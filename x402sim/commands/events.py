"""`events`: what a journal can hold."""

import typer

from x402sim.commands.common import AsJson, Beginnings, Markdown, require_one_form


def events(only: Beginnings = None, markdown: Markdown = False, as_json: AsJson = False) -> None:
    """Show every event that a journal can hold, with its fields.

    Example: x402sim events payment "session opened"
    """
    from x402sim.commands.event_reference import reference

    require_one_form(markdown=markdown, as_json=as_json)
    typer.echo(reference(only, markdown=markdown, as_json=as_json), nl=False)
