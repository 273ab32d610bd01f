"""`conformance`: judge a service by its URL."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from x402sim.commands.common import as_misuse, completing, number, whole
from x402sim.spec.clauses import CLAUSES
from x402sim.suite import command, printing
from x402sim.suite.flags import FLAGS, Flag
from x402sim.suite.parse_options import parse

EPILOG = """
Outcomes: passed, failed, skipped (a need is missing), inconclusive (the check could not be
completed), observed (the specification is silent). Exit codes: 0, every MUST held; 1, a MUST
failed; 2, wrong usage, a service that cannot be judged (no answer, another dialect, a payer
without money, a clock that is wrong), or a MUST is inconclusive.
"""
"""The end of the help."""
_PARSERS: dict[type, Callable[[Any], Any]] = {float: number, int: whole}
Command = TypeVar("Command", bound=Callable[..., None])

Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        "--requirement",
        metavar="PREFIX",
        help="Check only clause ids (see `--list`) with this prefix, such as 5 or 7/nonce; "
        "repeatable, or separated by commas.",
        autocompletion=completing(lambda: (clause.id for clause in CLAUSES)),
    ),
]
List = Annotated[
    bool, typer.Option("--list", help="List the ids with their needs and costs, and exit.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Name what does not apply to the service, too.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the JSON report instead; --json-file writes it.")
]


def _report(form: str) -> Any:
    return typer.Option(metavar="FILE", help=f"Write {form} report to FILE; - for stdout.")


def takes(*names: str) -> Callable[[Command], Command]:
    """Give a command the flags of these names, which its `**given` receives; all without names."""
    options = [_parameter(flag) for flag in FLAGS if not names or flag.name in names]

    def give(command: Command) -> Command:
        signature = inspect.signature(command)
        own = [each for each in signature.parameters.values() if each.kind != each.VAR_KEYWORD]
        by_name = [each.replace(kind=each.KEYWORD_ONLY) for each in (*own, *options)]
        vars(command)["__signature__"] = signature.replace(parameters=by_name)
        return command

    return give


def _parameter(flag: Flag) -> inspect.Parameter:
    names = [flag.option, flag.also] if flag.also else [flag.option]
    parser = _PARSERS.get(flag.kind)
    option = typer.Option(
        *names, metavar=flag.metavar, envvar=flag.variable, help=flag.help, parser=parser
    )
    kind: Any = list[str] if flag.is_repeatable else flag.kind
    default = False if flag.kind is bool else flag.default
    if default is None:
        kind |= None
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


@takes()
def conformance(
    base_url: Annotated[
        str | None,
        typer.Argument(
            help="Base URL of the service to judge, or its endpoint.", show_default=False
        ),
    ] = None,
    only: Only = None,
    show_list: List = False,
    verbose: Verbose = False,
    junit: Annotated[Path | None, _report("a JUnit XML")] = None,
    as_json: AsJson = False,
    json_file: Annotated[Path | None, _report("a JSON")] = None,
    html: Annotated[Path | None, _report("an HTML")] = None,
    sarif: Annotated[Path | None, _report("a SARIF")] = None,
    **given: Any,
) -> None:
    """Check a running service against the specification."""
    with as_misuse(ValueError, OSError):
        checks = command.select(only or [])
        if show_list:
            return printing.show_list(checks)
        options = parse(base_url, **given)
        if as_json and json_file:
            raise ValueError("give --json, which prints the report, or --json-file FILE, not both")
        json_place = Path("-") if as_json else json_file
        files = {"json": json_place, "junit": junit, "html": html, "sarif": sarif}
        places = {kind: file for kind, file in files.items() if file is not None}
        command.require_places(places)
    with as_misuse(OSError, begin="cannot write the report: "):
        strict = given["strict"]
        code = command.play(options, checks, files=places, strict=strict, verbose=verbose)
    raise typer.Exit(code)
