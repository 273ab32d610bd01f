"""`conformance`: judge a service by its URL."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from x402sim.commands.common import NetworkFile, give_up

if TYPE_CHECKING:
    from x402sim.suite.remote import Access

OUTCOMES = """
Outcomes: passed, failed, skipped (a need is missing), inconclusive (the check could not be
completed), observed (the specification is silent). Exit codes: 0, every MUST held; 1, a MUST
failed; 2, wrong usage, a service that cannot be judged (no answer, another dialect, a payer
without money, a clock that is wrong), or a MUST is inconclusive.
"""
"""The end of the help."""

Target = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE",
        help="Target file: how the service differs from the specification. A TOML file, or "
        "spec, x402sim or cronos-paywall.",
    ),
]
PayerKey = Annotated[
    str | None,
    typer.Option(
        metavar="HEX",
        envvar="X402SIM_PAYER_KEY",
        help="Private key of a funded payer: 0x and 64 hex digits.",
    ),
]
World = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Control API of the world around the service (`serve --no-service`)."
    ),
]
RpcUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="JSON-RPC node of the chain, to read transfers.")
]
PayTo = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Expected payTo address.")]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="AMOUNT",
        help="Most that the payer may sign for, in tokens; what does not fit is left out. "
        "[default: 2.00]",
        show_default=False,
    ),
]
Mainnet = Annotated[bool, typer.Option("--allow-mainnet", help="Allow payments with real money.")]
Patient = Annotated[
    bool,
    typer.Option(
        "--patient", help="Wait for what takes minutes, too: a run takes about six minutes."
    ),
]
Restart = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Shell command that restarts the service and returns while it runs: checks what "
        "must survive.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Treat SHOULD failures as failures.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        "--requirement",
        metavar="PREFIX",
        help="Check only clause ids (see `--list`) with this prefix, such as 5 or 7/nonce; "
        "repeatable, or separated by commas.",
    ),
]
List = Annotated[
    bool, typer.Option("--list", help="List the ids with their needs and costs, and exit.")
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed of inputs and wallets, to repeat a run.")
]
Skip = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID=REASON",
        help="Skip the ids with this prefix; the reason stands in the report. Repeatable.",
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NEEDS",
        help="Exit 2 unless the run has these: payments, chain, world, clock, restart, expiry, "
        "refunds; with payments, also the budget for all of them.",
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:VALUE",
        help="Send this header with every request to the service; reports hide the value. "
        "Repeatable.",
    ),
]
CaCert = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Trust the certificates of this PEM file, too."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Accept any TLS certificate.")]
Rate = Annotated[
    float | None, typer.Option(metavar="N", help="Send at most N requests in a second.")
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", "--deadline", metavar="SECONDS", help="Longest time for one whole answer."
    ),
]
MaxAnswer = Annotated[
    int, typer.Option(metavar="BYTES", help="Largest body of one answer, after decoding.")
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write a JSON report to FILE; - for stdout."),
]
JUnitFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a JUnit XML report to FILE; - for stdout."),
]
HtmlFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an HTML report to FILE; - for stdout.")
]
SarifFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a SARIF report to FILE; - for stdout.")
]


def conformance(
    context: typer.Context,
    base_url: Annotated[
        str | None, typer.Argument(help="Base URL of the service to judge.", show_default=False)
    ] = None,
    target: Target = "spec",
    payer_key: PayerKey = None,
    world: World = None,
    rpc_url: RpcUrl = None,
    pay_to: PayTo = None,
    budget: Budget = None,
    allow_mainnet: Mainnet = False,
    network_file: NetworkFile = None,
    strict: Strict = False,
    patient: Patient = False,
    restart: Restart = None,
    only: Only = None,
    skip: Skip = None,
    require: Require = None,
    show_list: List = False,
    seed: Seed = None,
    header: Header = None,
    cacert: CaCert = None,
    insecure: Insecure = False,
    timeout: Timeout = 90.0,
    rate: Rate = None,
    max_answer_bytes: MaxAnswer = 1_048_576,
    junit: JUnitFile = None,
    json_file: JsonFile = None,
    html: HtmlFile = None,
    sarif: SarifFile = None,
) -> None:
    """Check a running service against the specification.

    With the URL alone, the suite tests statuses, message shapes and payment checks, and pays
    nothing. With `--payer-key`, it also checks payments, bindings, replays and sessions; it
    prints its plan first, leaves out what does not fit `--budget`, and never exceeds it. With
    `--world`, it also injects faults and counts money on the ledger; the world
    (`x402sim serve --no-service`) is then the service's facilitator, explorer and chain, and
    mints what payers need.
    """
    from x402sim.suite import command, printing

    try:
        checks = command.select(only or [])
        if show_list:
            return printing.show_list(checks)
        means = replace(_means(context), skip=command.skipped(checks, skip or []))
        files = {"json": json_file, "junit": junit, "html": html, "sarif": sarif}
        places = {kind: file for kind, file in files.items() if file is not None}
        wanted = command.Wanted(checks=checks, strict=strict, files=places)
        command.require_places(wanted)
    except (ValueError, OSError) as error:
        raise give_up(error) from error
    try:
        code = command.play(means, wanted)
    except OSError as error:
        raise give_up(f"cannot write the report: {error}") from error
    raise typer.Exit(code)


def _means(context: typer.Context) -> "Access":
    """Return what the options give; raises `ValueError`."""
    from x402sim.suite.options import Options, access

    names = {field.name for field in fields(Options)}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in context.params.items()
        if name in names and value is not None
    }
    return access(Options(**given))
