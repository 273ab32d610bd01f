"""The command line: `python -m x402sim`. Each command is a function of a file in `commands`.

Exit codes: 0, success; 1, it ran and found a failure; 2, it could not start; 70, a
defect of x402sim itself.
"""

import gc
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from x402sim.commands.common import log_to_stderr, made
from x402sim.commands.configuration import SERVERS, defaults
from x402sim.commands.help import HELP
from x402sim.text.console import is_plain
from x402sim.text.keys import keyless
from x402sim.text.program import KEEPER_WORD, STANDALONE, shown
from x402sim.version import VERSION

ABOUT = "Simulate pay-per-request HTTP APIs (HTTP 402, x402, EIP-3009), and test their conformance."

COMMANDS = {
    "serve": "serve.serve",
    "fault": "steer.fault",
    "advance": "steer.advance",
    "mine": "steer.mine",
    "accounts": "steer.accounts",
    "payments": "steer.payments",
    "demo": "demo.demo",
    "pay": "pay.pay",
    "decode": "decode.decode",
    "doctor": "doctor.doctor",
    "watch": "watch.watch",
    "list": "list.list_scenarios",
    "run": "run.run",
    "open": "open.open_run",
    "diff": "diff.diff",
    "sweep": "sweep.sweep",
    "reproduce": "reproduce.reproduce",
    "conformance": "conformance.conformance",
    "service": "service.service",
    "facilitator": "facilitator.facilitator",
    "target": "target.target",
}
"""The file and the function of each command, in the order of the help; `HELP` has what they do."""


class _Unloaded(TyperCommand):
    """A command whose file is imported when the command is used, so that others start at once."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        command = load(str(self.name))
        if self.name in SERVERS:  # `conformance` reads the table of its subject
            named["default_map"] = defaults(command, str(self.name))
        context = command.make_context(*given, **named)
        if not gc.isenabled():  # by `main`: all is imported, and never collected from now on
            gc.freeze()
            gc.enable()
        return context


class _Keyless(TyperGroup):
    """The commands; an error that quotes the command line has no private key."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        with _keyless():
            return super().make_context(*given, **named)

    def invoke(self, ctx: Any) -> Any:
        with _keyless():
            return super().invoke(ctx)


@contextmanager
def _keyless() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # typer exports no class of all its errors, which have a `message`
        if isinstance(message := getattr(error, "message", None), str):
            error.message = keyless(message)  # type: ignore[attr-defined]
        raise


@cache
def load(name: str) -> Any:
    """Return a command with its options."""
    file, _, function = COMMANDS[name].partition(".")
    module = import_module(f"x402sim.commands.{file}")
    own = typer.Typer(add_completion=False, rich_markup_mode=None)
    epilog = getattr(module, "EPILOG", None)
    kind = getattr(module, "Command", None)
    own.command(name, cls=kind, help=HELP[name], epilog=epilog)(getattr(module, function))
    return made(getattr(module, "app", own))


app = typer.Typer(
    name="x402sim",
    cls=_Keyless,
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
    context: typer.Context,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    if is_plain():
        context.color = False  # of what every command prints with typer


for _name in COMMANDS:
    app.command(_name, cls=_Unloaded, help=HELP[_name])(lambda: None)


_COMPLETION = {"--install-completion", "--show-completion"}
"""Options whose scripts complete the name of one program, which `python -m x402sim` is not."""


DEFECT = 70
"""Exit code of a defect of x402sim itself, as `EX_SOFTWARE` of sysexits.h."""


def main() -> None:
    """Run the command line, or, as a judge's standalone program, its keeper."""
    if STANDALONE and sys.argv[1:] == [KEEPER_WORD]:
        from x402sim.suite import keeper

        keeper.serve(socket.socket(fileno=0))
        return
    gc.disable()  # until the command is imported: modules are never freed, so looking is a waste
    log_to_stderr()
    is_module = sys.argv[0].endswith("__main__.py") and not _COMPLETION & {*sys.argv}
    try:
        app(prog_name=shown() if is_module else "x402sim")
    except Exception:  # noqa: BLE001 - a defect of ours: a judge's code 1 says that a MUST failed
        sys.stderr.write(keyless(traceback.format_exc()))
        sys.exit(DEFECT)


if __name__ == "__main__":
    main()
