"""The command line: `python -m x402sim`.

Exit codes: 0 it worked, 1 it ran and found something wrong, 2 it could not start.
"""

import json
import logging
import signal
import sqlite3
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from x402sim.commands.bench import bench
from x402sim.commands.common import AsJson, Chain, Token, give_up
from x402sim.commands.conformance import conformance
from x402sim.commands.diff import diff
from x402sim.commands.list import list_scenarios
from x402sim.commands.run import run
from x402sim.commands.service import service
from x402sim.protocol.networks import TESTNET, network_named
from x402sim.spec.markdown import table
from x402sim.version import VERSION

app = typer.Typer(
    name="x402sim",
    help="A pay-per-request API (HTTP 402, x402, EIP-3009) and the world around it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"x402sim {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it."),
    ] = False,
) -> None:
    """A pay-per-request API (HTTP 402, x402, EIP-3009) and the world around it."""


def main() -> None:
    """Run the command line."""
    is_module = sys.argv[0].endswith("__main__.py")
    app(prog_name="python -m x402sim" if is_module else "x402sim")


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port; 0 takes a free one.", max=65535, min=0)]
Db = Annotated[
    Path | None,
    typer.Option(
        help="Keep everything in this SQLite file (and the chain in FILE.chain); "
        "without it nothing outlives the server.",
        metavar="FILE",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Draw the accounts (and, without --db, the payment ids) from this seed."),
]
NetworkName = Annotated[
    str, typer.Option(help="cronos-testnet (chain 338) or cronos-mainnet (25).")
]
BlockTime = Annotated[
    float | None,
    typer.Option(help="Seconds between blocks; without it every transaction is mined at once."),
]
ControlToken = Annotated[
    str | None,
    typer.Option(
        help="Whoever sends it as a bearer token controls the world; needed for /_sim on any "
        "host but loopback.",
        envvar="X402SIM_CONTROL_TOKEN",
    ),
]
NoService = Annotated[
    bool,
    typer.Option(
        "--no-service",
        help="Leave the service out: the world for a service of your own, whose settings are "
        "printed; `conformance --world` judges it.",
    ),
]
Deploy = Annotated[
    bool,
    typer.Option(
        "--deploy",
        help="Put a new token on that node first, owned by the first key, with money for the ten "
        "accounts.",
    ),
]
AllowOrigin = Annotated[
    str | None,
    typer.Option(
        help="Let a web page of this origin use the server, such as http://localhost:3000.",
        metavar="URL",
    ),
]


@app.command()
def serve(
    host: Host = "127.0.0.1",
    port: Port = 4020,
    db: Db = None,
    seed: Seed = None,
    network: NetworkName = TESTNET.name,
    block_time: BlockTime = None,
    chain: Chain = "ledger",
    token: Token = None,
    deploy: Deploy = False,
    control_token: ControlToken = None,
    allow_origin: AllowOrigin = None,
    no_service: NoService = False,
    as_json: AsJson = False,
) -> None:
    """Start the whole world on one port, as a local mock server.

    Service at `/`, facilitator at `/facilitator`, explorer at `/explorer`, the chain's
    JSON-RPC at `/rpc`, and control at `/_sim`. Ten accounts have money. Ctrl-C stops it.
    """
    from x402sim.chain.base import ChainError
    from x402sim.world.assembly.recipe import Recipe
    from x402sim.world.chains.parse import DEFAULT_CHAIN, parse_chain
    from x402sim.world.server import serve as server
    from x402sim.world.server.listen import Listen

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    try:
        listen = Listen(
            host=host,
            port=port,
            control_token=control_token,
            allow_origin=allow_origin.rstrip("/") if allow_origin else None,
        )
        backend = parse_chain(chain, token=token, deploy=deploy)
        recipe = Recipe(
            network=network_named(network),
            seed=seed,
            file=db,
            unlocked=listen.is_local,
            has_service=not no_service,
            block_time_s=block_time,
            chain=backend,
        )
        parts, sock = server.open_world(recipe, listen)
    except ValueError as error:
        raise give_up(str(error)) from error
    except OSError as error:
        raise give_up(str(error.strerror)) from error
    except (sqlite3.Error, ChainError) as error:
        if "locked" in str(error):
            raise give_up(f"another x402sim is using {db}; stop it, or use another") from error
        if backend != DEFAULT_CHAIN:
            raise give_up(f"--chain {backend.name}: {error}") from error
        raise give_up(f"cannot use the database {db}: {error}") from error

    def on_start(running: Any, ready: dict[str, Any]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(running, "should_exit", True))
        if as_json:
            print(json.dumps(ready), flush=True)
        else:
            from x402sim.commands.banner import show

            show(ready, db)

    server.run(server.serve(parts, listen, sock, on_start))
    if not as_json:
        typer.echo("stopped" + (f"; everything is in {db}" if db else ""))


@app.command()
def demo(
    seed: Annotated[int, typer.Option(help="Draw the accounts from this seed.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Pay for a quote through every component, and tell what happened, step by step."""
    from x402sim.commands.demo_story import Step, tell

    steps: list[Step] = []

    def each(step: Step) -> None:
        steps.append(step)
        if not as_json:
            _tell_step(len(steps), step)

    went_well = tell(seed, each)
    if as_json:
        told = [{"title": s.title, "ok": s.ok, **s.facts} for s in steps]
        typer.echo(json.dumps({"ok": went_well, "steps": told}, indent=2))
    elif went_well:
        typer.echo("Paid, served and indexed.")
    if not went_well:
        raise typer.Exit(1)


def _tell_step(number: int, step: Any) -> None:
    mark = typer.style("ok" if step.ok else "FAILED", fg="green" if step.ok else "red")
    typer.echo(f"{number}. {step.title}: {mark}")
    for name, value in step.facts.items():
        shown = json.dumps(value) if isinstance(value, dict) else str(value)
        lines = textwrap.wrap(shown, 62, break_on_hyphens=False, break_long_words=False)
        for first, line in zip([name.replace("_", " "), *[""] * len(lines)], lines, strict=False):
            typer.echo(f"   {first:<14} {line}")


app.command("list")(list_scenarios)
app.command()(run)
app.command()(diff)
app.command()(bench)
app.command()(conformance)
app.command()(service)
Markdown = Annotated[bool, typer.Option("--markdown", help="Print it as a Markdown table.")]


@app.command()
def decisions(markdown: Markdown = False) -> None:
    """List what we decided where the specification is silent, and why."""
    from x402sim.spec import decisions as book

    rows = [(d.id, d.question, d.choice, d.alternatives, d.reason) for d in book.decisions()]
    _print_book(("id", "question", "choice", "alternatives", "reason"), rows, markdown)


@app.command()
def clauses(markdown: Markdown = False) -> None:
    """List the clauses of the specification, and the code that keeps each of them."""
    from x402sim.spec.clauses import CLAUSES

    rows = [(c.id, c.level, c.text, c.kept_by) for c in CLAUSES]
    _print_book(("id", "level", "clause", "kept by"), rows, markdown)


def _print_book(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]], markdown: bool) -> None:
    """Print a table for a terminal: an entry a paragraph, so that it reads at 80 columns."""
    if markdown:
        typer.echo(table(titles, rows), nl=False)
        return
    for row in rows:
        typer.secho(row[0], bold=True)
        for title, text in zip(titles[1:], row[1:], strict=True):
            typer.echo(
                textwrap.fill(f"{title}: {text}", 78, initial_indent="  ", subsequent_indent="    ")
            )


if __name__ == "__main__":
    main()
