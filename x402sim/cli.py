"""The command line: `python -m x402sim`. Each command is a function of a file in `commands`.

Exit codes: 0, success; 1, it ran and found a failure; 2, it could not start.
"""

import sys
from typing import Annotated

import typer

from x402sim.commands.book import clauses, decisions, events
from x402sim.commands.common import log_to_stderr
from x402sim.commands.conformance import OUTCOMES, conformance
from x402sim.commands.decode import decode
from x402sim.commands.demo import demo
from x402sim.commands.diff import diff
from x402sim.commands.doctor import doctor
from x402sim.commands.list import list_scenarios
from x402sim.commands.open import open_run
from x402sim.commands.pay import pay
from x402sim.commands.run import run
from x402sim.commands.serve import serve
from x402sim.commands.service import service
from x402sim.commands.sweep import sweep
from x402sim.commands.target import target
from x402sim.version import VERSION

ABOUT = "Simulate pay-per-request HTTP APIs (HTTP 402, x402, EIP-3009), and test their conformance."

app = typer.Typer(
    name="x402sim",
    help=ABOUT,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"x402sim {VERSION}")
        raise typer.Exit


@app.callback(help=ABOUT)
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options that come before a command."""


app.command()(serve)
app.command()(demo)
app.command()(pay)
app.command()(decode)
app.command()(doctor)
app.command("list")(list_scenarios)
app.command()(run)
app.command("open")(open_run)
app.command()(diff)
app.command()(events)
app.command()(sweep)
app.command(epilog=OUTCOMES)(conformance)
app.add_typer(target, name="target")
app.command()(service)
app.command()(decisions)
app.command()(clauses)


_COMPLETION = {"--install-completion", "--show-completion"}
"""Options whose scripts complete the name of one program, which `python -m x402sim` is not."""


def main() -> None:
    """Run the command line."""
    log_to_stderr()
    is_module = sys.argv[0].endswith("__main__.py") and not _COMPLETION & {*sys.argv}
    app(prog_name="python -m x402sim" if is_module else "x402sim")


if __name__ == "__main__":
    main()
