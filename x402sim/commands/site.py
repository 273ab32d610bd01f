"""`conformance site`: makes a static site of a file of verdicts."""

from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands.common import as_misuse
from x402sim.suite import published
from x402sim.suite.site import write
from x402sim.text.words import counted

HELP = """Make a static site of verdicts on published versions.

Example: x402sim conformance site --verdicts verdicts.json --out site
"""


def site(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR|ZIP", help="Folder, or archive .zip, to write."),
    ],
    verdicts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Verdicts, as --keep writes them. [default: the kit's own]"
        ),
    ] = None,
    contact: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Who takes objections: https://… or mailto:…. [default: the project's issues]",
        ),
    ] = None,
) -> None:
    """Write the site, and say where."""
    with as_misuse(ValueError, OSError):
        found = published.read(verdicts or published.shipped())
        if not found.records:
            raise ValueError(f"--verdicts {verdicts}: it has no verdict; --keep adds one")
        number = write(found, out, contact or issues())
    where = f"unpack {out}" if out.suffix == ".zip" else f"open {out / 'index.html'}"
    typer.echo(f"{counted(number, 'file')} in {out}; {where}")


def issues() -> str:
    """Return the address of the project's issues, as its metadata name it; "" without one."""
    try:
        urls = metadata("x402sim").get_all("Project-URL") or []
    except PackageNotFoundError:  # the standalone program has no metadata
        return ""
    named = dict(each.split(", ", 1) for each in urls)
    return next((url for name, url in named.items() if name.lower() == "issues"), "")
