"""`run`: play scenarios, one after the other, and print what held."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from x402sim.clock import stopwatch
from x402sim.commands import playing, results
from x402sim.commands.common import (
    NOT_ALL_HELD,
    AsJson,
    BlockTime,
    Chain,
    Misuse,
    NetworkFile,
    NetworkName,
    RandomSeed,
    Token,
    as_misuse,
    completing,
    quiet,
    seconds,
)
from x402sim.commands.playing import Chosen, Played
from x402sim.report import need_extra
from x402sim.report.progress import telling
from x402sim.text.console import console as new_console
from x402sim.world.scenario import shipped_names
from x402sim.world.stages import left_ahead
from x402sim.world.world import World

_STYLES = {"passed": "", "failed": "bold red", "skipped": "yellow"}


_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Scenarios: names (see `list`), FILE.py, or FILE.py:FUNCTION. [default: all]",
        autocompletion=completing(shipped_names),
    ),
]
_On = Annotated[
    str,
    typer.Option(
        help="Stage to play on: in-process, tcp (real sockets), or the URL of a running service.",
        metavar="STAGE",
    ),
]
_Latencies = Annotated[
    list[str] | None,
    typer.Option(
        "--latency",
        metavar="PART=S",
        help="Latency of one message to service, facilitator, explorer or rpc: seconds, or "
        "MEDIAN,SIGMA of a lognormal; repeatable.",
    ),
]
_ExplorerLag = Annotated[
    float,
    typer.Option(parser=seconds, metavar="S", help="Seconds until the explorer shows a block."),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        help="Write report.html, data frames, plots and journals to DIR "
        "(needs `pip install 'x402sim[report]'`).",
        metavar="DIR",
    ),
]


def run(
    names: _Names = None,
    on: _On = "in-process",
    chain: Chain = "ledger",
    token: Token = None,
    network: NetworkName = None,
    network_file: NetworkFile = None,
    seed: RandomSeed = 0,
    latency: _Latencies = None,
    block_time: BlockTime = None,
    explorer_lag: _ExplorerLag = 0.0,
    out: _Out = None,
    as_json: AsJson = False,
    keep_going: Annotated[bool, typer.Option(help="Continue after a failure.")] = True,
    allow_no_checks: Annotated[
        bool, typer.Option("--allow-no-checks", help="Pass scenarios without a single check.")
    ] = False,
) -> None:
    """Play scenarios, and check them against the specification."""
    with quiet():
        world, options = playing.where(
            on=on,
            chain=chain,
            token=token,
            network=network,
            network_file=network_file,
            seed=seed,
            latency=latency or (),
            block_time_s=block_time,
            explorer_lag_s=explorer_lag,
        )
        all_hold, unchecked = _run(names or [], world, options, out, as_json, keep_going)
    raise typer.Exit(0 if all_hold and (allow_no_checks or not unchecked) else NOT_ALL_HELD)


def _run(
    names: list[str], world: World, options: str, out: Path | None, as_json: bool, keep_going: bool
) -> tuple[bool, bool]:
    """Play, print and save; return whether none failed, and whether one has no checks; `Misuse`."""
    chosen = playing.choose(names)
    if out is not None:
        _prepare(out)
    elapsed = stopwatch()
    all_played = _play(chosen, world, options, as_json, keep_going)
    if as_json:
        typer.echo(json.dumps(playing.document(world.seed or 0, all_played)))
    else:
        typer.echo("\n".join(results.told(world.seed or 0, all_played, elapsed())))
    if out is not None:
        _save(chosen, all_played, out, quietly=as_json)
    if ahead_s := max(played.run.ahead_s for played in all_played):
        typer.echo(f"x402sim: {left_ahead(world.where.name, ahead_s)}", err=True)
    outcomes = {played.run.outcome for played in all_played}
    if outcomes == {"skipped"}:
        raise Misuse("nothing was played: every scenario was skipped")
    unchecked = any(map(results.is_unchecked, all_played))
    return "failed" not in outcomes, unchecked


def _play(
    chosen: list[Chosen], world: World, options: str, as_json: bool, keep_going: bool
) -> list[Played]:
    """Play one after the other, and print each result as soon as it is known."""
    console = new_console(highlight=False, markup=False, soft_wrap=True, quiet=as_json)
    names = [each.scenario.name for each in chosen]
    all_played: list[Played] = []
    for each in chosen:
        played = playing.play(each, world, options, progress=not as_json)
        if not all_played:
            console.print(results.header(names), style="bold")
        all_played.append(played)
        console.print(results.row(names, played), style=_STYLES[played.run.outcome])
        if played.run.outcome == "failed" and not keep_going:
            break
    return all_played


def _prepare(out: Path) -> None:
    """Make the folder of the reports, before anything is played; raises `Misuse`."""
    if out.exists() and not out.is_dir():
        raise Misuse(f"--out {out}: a folder is wanted, and this is a file")
    with as_misuse(ModuleNotFoundError, begin="--out: "):
        need_extra()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"--out: cannot write to {out}: {error.strerror}") from error


def _save(chosen: list[Chosen], all_played: list[Played], out: Path, *, quietly: bool) -> None:
    """Write the reports, and print their path: on stderr if stdout is for a program."""
    from x402sim.report import save  # with pandas

    with nullcontext() if quietly else telling("report", lambda: f"writing {out}"):
        stories = {each.scenario.name: each.scenario.description for each in chosen}
        save.save_runs([played.run for played in all_played], out, stories=stories)
    typer.echo(f"report {out / 'report.html'}", err=quietly)
