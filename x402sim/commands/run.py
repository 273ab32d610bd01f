"""`run`: play scenarios, one after the other, and say what held."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from x402sim.commands.common import (
    MISUSE,
    NOT_ALL_HELD,
    AsJson,
    Chain,
    Misuse,
    Token,
    give_up,
    quiet,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from x402sim.commands.playing import Chosen, Played, Where

_STYLES = {"passed": "", "failed": "bold red", "skipped": "yellow"}


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Names (see `list`), or .py files of your own; all without."
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            help="Where: in-process (virtual time), tcp (the same through real sockets), or the "
            "URL of a service that runs.",
            metavar="STAGE",
        ),
    ] = "in-process",
    chain: Chain = "ledger",
    token: Token = None,
    seed: Annotated[int, typer.Option(help="All that is drawn is drawn from it.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write report.html, frames, plots and journals there (extra `report`).",
            metavar="DIR",
        ),
    ] = None,
    as_json: AsJson = False,
    keep_going: Annotated[
        bool, typer.Option(help="Whether to play on after a scenario has failed.")
    ] = True,
) -> None:
    """Play scenarios, and check what the specification says must hold.

    A scenario is a short script: payers ask, sign, pay and misbehave, things go wrong, time
    goes by, and the money is counted on the chain. In process and over tcp time is virtual
    (a day passes in moments), and the same seed always gives the same journal, to the byte.
    What a stage or a chain cannot offer is skipped, with the reason.

    Exit code 0: every check held; 1: one did not, and it is told which clause, what was
    expected, what came, and how to play it again; 2: nothing could be played.
    `--json` prints seed, journal_sha256 and scenarios; the first hash is of the
    scenarios' own hashes in order, a line each (`sha256sum` gives the same).

    Examples: `run replay`, `run --out report`, `run mine.py --on http://127.0.0.1:4020`.
    """
    from x402sim.commands import playing

    try:
        with quiet():
            where = playing.where(on=on, chain=chain, token=token, seed=seed)
            code = _run(names or [], where, out, as_json, keep_going)
    except Misuse as misuse:
        raise give_up(misuse) from misuse
    raise typer.Exit(code)


def _run(
    names: list[str], where: "Where", out: Path | None, as_json: bool, keep_going: bool
) -> int:
    """Play, tell and save; return the exit code. Raises `Misuse`."""
    from x402sim.clock import stopwatch
    from x402sim.commands import playing, telling

    chosen = playing.choose(names)
    if out is not None:
        _prepare(out)
    elapsed = stopwatch()
    all_played = _play(chosen, where, as_json, keep_going)
    if as_json:
        typer.echo(json.dumps(playing.document(where.seed, all_played)))
    else:
        _tell_end(all_played, telling.summary(where.seed, all_played, elapsed()))
    if out is not None:
        _save(chosen, all_played, out, quietly=as_json)
    outcomes = {played.run.outcome for played in all_played}
    if outcomes == {"skipped"}:
        typer.echo("x402sim: nothing could be played: every scenario was skipped", err=True)
        return MISUSE
    return NOT_ALL_HELD if "failed" in outcomes else 0


def _play(
    chosen: "list[Chosen]", where: "Where", as_json: bool, keep_going: bool
) -> "list[Played]":
    """Play one after the other, and tell of each as soon as it is over."""
    from rich.console import Console

    from x402sim.commands import playing, telling
    from x402sim.commands.progress import Progress

    console = Console(highlight=False, markup=False, soft_wrap=True, quiet=as_json)
    names = [each.scenario.name for each in chosen]
    all_played: list[Played] = []
    with Progress(len(chosen), shown=not as_json) as progress:
        for number, each in enumerate(chosen):
            progress.tell(f"{number + 1} of {len(chosen)}: {each.scenario.name}", number)
            played = playing.play(each, where)
            all_played.append(played)
            progress.hide()
            if not number:
                console.print(telling.header(names), style="bold")
            console.print(telling.row(names, played), style=_STYLES[played.run.outcome])
            if played.run.outcome == "failed" and not keep_going:
                break
    return all_played


def _tell_end(all_played: "list[Played]", summary: "Iterable[str]") -> None:
    """Tell why some were skipped, all about each failure, and the sum of it all."""
    from x402sim.commands import telling

    for line in telling.skipped(all_played):
        typer.echo(line)
    for played in all_played:
        if played.run.outcome == "failed":
            typer.echo("\n" + "\n".join(telling.failure(played)))
    typer.echo("\n" + "\n".join(summary))


def _prepare(out: Path) -> None:
    """See to it that reports can be written there, before anything is played.

    Raises `Misuse`.
    """
    from x402sim.report import need_extra

    try:
        need_extra()
        out.mkdir(parents=True, exist_ok=True)
    except ModuleNotFoundError as error:
        raise Misuse(f"--out: {error}") from error
    except OSError as error:
        raise Misuse(f"--out: cannot write into {out}: {error.strerror}") from error


def _save(chosen: "list[Chosen]", all_played: "list[Played]", out: Path, *, quietly: bool) -> None:
    """Write the reports, and say where they are: to stderr if stdout is for a program."""
    from x402sim.commands.progress import Progress
    from x402sim.report import save

    with Progress(1, shown=not quietly) as progress:
        progress.tell(f"writing {out}", 0)
        stories = {each.scenario.name: each.scenario.story for each in chosen}
        save.save_runs([played.run for played in all_played], out, stories=stories)
    typer.echo(f"report {out / 'report.html'}", err=quietly)
