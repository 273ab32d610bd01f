"""`conformance`: judge a service by its URL."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from x402sim.commands.common import give_up
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.money import to_base
from x402sim.protocol.networks import TESTNET

if TYPE_CHECKING:
    from x402sim.suite.remote import Access

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
    str, typer.Option(metavar="AMOUNT", help="Most that the payer may sign for, in tokens.")
]
Mainnet = Annotated[bool, typer.Option("--allow-mainnet", help="Allow payments with real money.")]
Patient = Annotated[
    bool,
    typer.Option("--patient", help="Wait for what takes minutes, too: about six in all."),
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
Requirement = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PREFIX",
        help="Check only clause ids (see `--list`) with this prefix, such as 5 or 7/nonce; "
        "repeatable.",
    ),
]
List = Annotated[
    bool, typer.Option("--list", help="List the ids with their needs and costs, and exit.")
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed of inputs and wallets, to repeat a run.")
]
Deadline = Annotated[
    float, typer.Option(metavar="SECONDS", help="Longest time for one whole answer.")
]
MaxAnswer = Annotated[
    int, typer.Option(metavar="BYTES", help="Largest body of one answer, after decoding.")
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write a JSON report to FILE; - for stdout."),
]
JUnitFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a JUnit XML report to FILE.")
]
HtmlFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an HTML report to FILE.")
]
SarifFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a SARIF report to FILE.")
]


def conformance(
    base_url: Annotated[
        str | None, typer.Argument(help="Base URL of the service to judge.", show_default=False)
    ] = None,
    target: Target = "spec",
    payer_key: PayerKey = None,
    world: World = None,
    rpc_url: RpcUrl = None,
    pay_to: PayTo = None,
    budget: Budget = "1.00",
    allow_mainnet: Mainnet = False,
    strict: Strict = False,
    patient: Patient = False,
    restart: Restart = None,
    requirement: Requirement = None,
    show_list: List = False,
    seed: Seed = None,
    deadline: Deadline = 90.0,
    max_answer_bytes: MaxAnswer = 1_048_576,
    junit: JUnitFile = None,
    json_file: JsonFile = None,
    html: HtmlFile = None,
    sarif: SarifFile = None,
) -> None:
    """Check a running service against the specification.

    With the URL alone, the suite tests statuses, message shapes and payment checks, and pays
    nothing. With `--payer-key`, it also checks payments, bindings, replays and sessions; it
    prints the most that they may cost first, and never exceeds `--budget`. With `--world`, it
    also injects faults and counts money on the ledger; the world (`x402sim serve --no-service`)
    is then the service's facilitator, explorer and chain, and mints what payers need.

    Outcomes: passed, failed, skipped (a need is missing), inconclusive (the check could
    not be completed), observed (the specification is silent). Exit codes: 0, every MUST
    held; 1, a MUST failed; 2, wrong usage, no answer, or a MUST is inconclusive.
    """
    from x402sim.bounded import Limits
    from x402sim.suite import command, printing

    try:
        checks = command.select(requirement or [])
        if show_list:
            return printing.show_list(checks)
        access = replace(
            _access(base_url, target, payer_key, budget, pay_to),
            world_url=world,
            rpc_url=rpc_url,
            allow_mainnet=allow_mainnet,
            seed=seed,
            patient=patient,
            restart=restart,
            limits=Limits(max_answer_bytes=max_answer_bytes, deadline_s=deadline),
            rerun=_again(base_url, target, world, rpc_url),
        )
    except (ValueError, OSError) as error:
        raise give_up(error) from error
    wanted = command.Wanted(
        checks=checks, strict=strict, json=json_file, junit=junit, html=html, sarif=sarif
    )
    try:
        code = command.play(access, wanted)
    except OSError as error:
        raise give_up(f"cannot write the report: {error}") from error
    raise typer.Exit(code)


def _access(
    base_url: str | None, target: str, payer_key: str | None, budget: str, pay_to: str | None
) -> "Access":
    """Return what the options give; raises `ValueError`."""
    from x402sim.payer.wallet import Wallet
    from x402sim.suite.command import find_target
    from x402sim.suite.remote import Access

    if base_url is None:
        raise ValueError("no service to judge: give its URL, such as http://127.0.0.1:4020")
    if not base_url.startswith(("http://", "https://")):
        raise ValueError(f"expected a URL that starts with http:// or https://, got {base_url!r}")
    return Access(
        base_url=base_url,
        target=find_target(target),
        payer=Wallet(payer_key) if payer_key is not None else None,
        budget_base=to_base(budget, TESTNET.decimals),
        pay_to=parse_address(pay_to) if pay_to is not None else None,
    )


def _again(base_url: str | None, *options: str | None) -> str:
    """Return the command that repeats the run; a key is never shown."""
    names = ("--target", "--world", "--rpc-url")
    given = (
        f"{name} {value}"
        for name, value in zip(names, options, strict=True)
        if value and value != "spec"
    )
    return " ".join(["python -m x402sim conformance", base_url or "", *given])
