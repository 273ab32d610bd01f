"""`target init`: examine a service, and write a target file for `conformance`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from x402sim.commands.common import Misuse, as_misuse
from x402sim.commands.conformance import takes
from x402sim.commands.help import HELP
from x402sim.suite.command import require_place
from x402sim.suite.options import flags_of
from x402sim.suite.service.look import look
from x402sim.suite.service.options import Options
from x402sim.suite.service.subject import parse
from x402sim.suite.service.target import as_toml, to_ask
from x402sim.suite.verdict import NotReady

app = typer.Typer(name="target", no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback(help=HELP["target"])
def target() -> None:
    """Write a target file, for a service that differs from ours."""


@app.command(help=HELP["target init"])
@takes([each for each in flags_of(Options) if each.name == "header"])
def init(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Base URL of a service, or a protected endpoint.")
    ],
    output: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="The file; - for stdout.")
    ] = "target.toml",
    **given: Any,
) -> None:
    """Write a target file for a service, without paying it."""
    file = Path(output)
    with as_misuse(ValueError, NotReady):
        if output != "-":
            require_place("--out", file)
            if file.exists():
                raise ValueError(f"{file} exists; remove it, or give --out FILE")
        looked = asyncio.run(look(parse(url, **given)))
    text = as_toml(looked, "mine" if output == "-" else file.stem)
    if output == "-":
        typer.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Misuse(f"cannot write {file}: {error.strerror}") from error
    typer.echo(f"wrote {file}; {parse(url, target=str(file), **given).rerun}")
    typer.echo("pays nothing; for payments add --world URL (x402sim serve) or --payer-key HEX")
    if asked := to_ask(looked):
        typer.echo(asked)
