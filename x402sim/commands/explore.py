"""`explore`: plays random worlds, audits each at its end, and shrinks what fails."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from x402sim.commands.common import NOT_ALL_HELD, AsJson, give_up
from x402sim.commands.progress import Progress
from x402sim.protocol.messages import BadMessage, decode
from x402sim.rng import Rng
from x402sim.text.printable import printable_lines

if TYPE_CHECKING:
    from x402sim.explore.campaign import Failure, Report
    from x402sim.explore.case import Case


def explore(
    as_json: AsJson = False,
    runs: Annotated[int, typer.Option(help="Worlds to play.", min=1)] = 1_000,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the first world.  [default: random]", min=0)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes.  [default: one a CPU]", min=1, max=256)
    ] = None,
    adversary: Annotated[
        bool,
        typer.Option(
            "--adversary", help="Add third parties, and lies of facilitator and explorer."
        ),
    ] = False,
    replay: Annotated[
        Path | None, typer.Option(help="Play the one world in this JSON file.", metavar="FILE")
    ] = None,
) -> None:
    """Play random worlds, and check at the end of each that money and access agree.

    Each world has payers in two steps and in one, who hang up and send again, smart wallets,
    sessions, one to three services of one merchant or of several, latencies, faults, crashes, wrong
    clocks and reorganisations. At its end each order is judged: the ledger is compared with what
    the services answered. A world that fails is shrunk, and printed as the program that plays it
    again.

    The same seed gives the same result, whatever the number of processes: world n has the seed
    SEED + n. Exit code 1: at least one world failed.
    """
    from x402sim.explore.campaign import Campaign, failure_of, run, smallest, to_shrink
    from x402sim.explore.play import play

    if replay is not None:
        _print_replay(failure_of(play(_read(replay))), as_json)
        return
    campaign = Campaign(
        seed=Rng().stream("campaign").getrandbits(32) if seed is None else seed,
        runs=runs,
        workers=workers or len(os.sched_getaffinity(0)),
        adversary=adversary,
    )
    with Progress(float(runs), shown=not as_json) as progress:

        def show(played: int, failed: int) -> None:
            text = f"{played:,} of {runs:,} worlds" + (f", {failed} failed" if failed else "")
            progress.update(text, played)

        report = run(campaign, show)
        shrunk = []
        for failure in to_shrink(report):
            progress.update(f"shrinking the world of seed {failure.case.seed}", runs)
            shrunk.append(smallest(failure))
    if as_json:
        body = msgspec.to_builtins(report) | {"shrunk": msgspec.to_builtins(shrunk)}
        typer.echo(json.dumps(body, indent=2))
    else:
        typer.echo("\n".join(_lines(report, shrunk)))
    if report.failures:
        raise typer.Exit(NOT_ALL_HELD)


def _read(file: Path) -> "Case":
    from x402sim.explore.case import Case

    try:
        case: Case = decode(file.read_bytes(), Case)
    except (OSError, BadMessage) as wrong:
        raise give_up(f"{file} holds no world: {wrong}") from None
    return case


def _print_replay(failure: "Failure", as_json: bool) -> None:
    """Print what one world broke; exit code 1 if anything."""
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(failure), indent=2))
    else:
        typer.echo(printable_lines("\n".join(failure.how)) or "Every invariant held.")
    if failure.laws:
        raise typer.Exit(NOT_ALL_HELD)


def _lines(report: "Report", shrunk: list["Failure"]) -> list[str]:
    """Return the report as lines: kinds, outcomes, what broke, and the smallest programs."""
    from x402sim.explore.program import program

    last = report.seed + report.runs - 1
    kind = "adversarial" if report.adversary else "plain"
    lines = [
        f"{report.runs:,} {kind} worlds, seeds {report.seed} to {last}, {report.events:,} events, "
        f"{report.real_s:.0f} s",
        "",
        "    worlds  with",
        *(f"{count:>10,}  {name}" for name, count in report.kinds.items()),
        "",
        *(f"{count:>10,}  authorizations: {name}" for name, count in report.outcomes.items()),
        "",
    ]
    if not report.failures:
        return [*lines, "Every invariant held in every world."]
    lines.append(f"{len(report.failures):,} worlds failed:")
    lines += [f"{count:>10,}  {_meaning(law)}" for law, count in report.broken.items()]
    seeds = ", ".join(str(each.case.seed) for each in report.failures[:20])
    lines += ["", f"seeds: {seeds}{', ...' if len(report.failures) > 20 else ''}"]
    for each in shrunk:
        lines += ["", *(printable_lines(how) for how in each.how), "", program(each.case).rstrip()]
        lines += ["", "or --replay a file with:", msgspec.json.encode(each.case).decode()]
    return lines


def _meaning(law: str) -> str:
    from x402sim.explore.laws import Law

    return f"{law}: {Law[law].value}"
