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
        metavar="FILE",
        help="How it differs from the specification: a TOML file, or the name of a shipped "
        "one: spec, x402sim, cronos-paywall.",
    ),
]
PayerKey = Annotated[
    str | None,
    typer.Option(
        metavar="HEX",
        envvar="X402SIM_PAYER_KEY",
        help="Private key of a payer with money: 0x and 64 hex digits.",
    ),
]
World = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The control URL of the world the target lives in."),
]
RpcUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="A node of its chain, to see the money.")
]
PayTo = Annotated[
    str | None, typer.Option(metavar="ADDR", help="The merchant that a 402 must name.")
]
Budget = Annotated[
    str, typer.Option(metavar="AMOUNT", help="What the payer may sign for in all, in tokens.")
]
Mainnet = Annotated[bool, typer.Option("--allow-mainnet", help="Pay with real money.")]
Strict = Annotated[bool, typer.Option("--strict", help="SHOULD counts too.")]
Requirement = Annotated[
    list[str] | None,
    typer.Option(metavar="PREFIX", help="Only ids that start so: 5, 7/nonce; repeatable."),
]
List = Annotated[
    bool, typer.Option("--list", help="List the ids, what each needs and what it pays.")
]
Seed = Annotated[int | None, typer.Option(help="Draw inputs and wallets from it, to repeat a run.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the report there; - prints it."),
]
ReportFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report there, in this form.")
]


def conformance(
    base_url: Annotated[
        str | None, typer.Argument(help="Where the service to judge is.", show_default=False)
    ] = None,
    target: Target = "spec",
    payer_key: PayerKey = None,
    world: World = None,
    rpc_url: RpcUrl = None,
    pay_to: PayTo = None,
    budget: Budget = "1.00",
    allow_mainnet: Mainnet = False,
    strict: Strict = False,
    requirement: Requirement = None,
    show_list: List = False,
    seed: Seed = None,
    junit: ReportFile = None,
    json_file: JsonFile = None,
    html: ReportFile = None,
    sarif: ReportFile = None,
) -> None:
    """Judge a service by its URL: does it do what the specification says?

    Three depths. With the URL alone: statuses, shapes and gates, no money. With
    `--payer-key`: payments, bindings, replays, sessions; what they may cost is told before,
    and never passes `--budget`. With `--world`, the control URL of the `x402sim serve
    --no-service` that plays facilitator, explorer and chain for the target: faults too, and
    money counted on the ledger; it then mints its own money.

    Verdicts: passed, failed, skipped (what it needs is missing), inconclusive (it could
    not get to the point) and observed (the specification is silent). Exit code 0: every MUST
    held and nothing was inconclusive; 1: something failed; 2: misuse, unreachable, or
    inconclusive.
    """
    from x402sim.suite import command, printing

    try:
        checks = command.select(requirement or [])
        if show_list:
            printing.show_list(checks)
            return
        access = replace(
            _access(base_url, target, payer_key, budget, pay_to),
            world_url=world,
            rpc_url=rpc_url,
            allow_mainnet=allow_mainnet,
            seed=seed,
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
        raise ValueError("which service? Give its URL, such as http://127.0.0.1:4020; see --help")
    if not base_url.startswith(("http://", "https://")):
        raise ValueError(f"a URL starts with http:// or https://, got {base_url!r}")
    return Access(
        base_url=base_url,
        target=find_target(target),
        payer=Wallet(payer_key) if payer_key else None,
        budget_base=to_base(budget, TESTNET.decimals),
        pay_to=parse_address(pay_to) if pay_to else None,
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
