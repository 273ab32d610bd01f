"""`run`: plays scenarios one after the other, and prints which checks held.

Each scenario has its own world with the same seed. Its row is printed as soon as it has ended; each
failure follows in full, in 80 columns. With --json, everything is one JSON object.
"""

import hashlib
import json
import os
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from x402sim.chain.base import ChainError
from x402sim.clock import stopwatch
from x402sim.commands import common
from x402sim.events import RequestSent, StoryRaised
from x402sim.payer.wallet import Wallet
from x402sim.protocol.networks import choose_network
from x402sim.protocol.permit2_payments import UPTO_CLAUSES
from x402sim.report import need_extra
from x402sim.report.progress import telling
from x402sim.report.reading import OUTCOMES, checks_of, reading_of, why_failed
from x402sim.report.run import Run
from x402sim.report.trace import failed_checks
from x402sim.spec.clauses import CLAUSES
from x402sim.story.stages import PAYER_KEY, OtherNetwork, left_ahead
from x402sim.text.console import WIDTH, console as new_console
from x402sim.text.program import shown
from x402sim.text.words import duration, printable
from x402sim.world.chains import DEFAULT_CHAIN, parse_chain
from x402sim.world.scenario import NoScenario, Scenario, find, shipped_names
from x402sim.world.world import BUDGET, Deployment, World, parse_where


@dataclass(frozen=True, slots=True)
class Chosen:
    """A scenario, and the user's word for it: a name, or a file."""

    typed: str
    scenario: Scenario

    @property
    def command(self) -> str:
        """The command that plays the scenario."""
        return f"{shown()} run {shlex.quote(self.typed)}"


@dataclass(frozen=True, slots=True)
class Played:
    """A played scenario: the run, and the command to repeat it."""

    run: Run
    again: str

    @property
    def steps(self) -> int:
        """How many requests the payers sent."""
        sent, services = self.run.journal.events(RequestSent), reading_of(self.run.journal).services
        return sum(each.actor not in services for each in sent)

    @property
    def virtual_s(self) -> float:
        """Seconds that passed in the world."""
        events = list(self.run.journal)
        return (events[-1].at_ms - events[0].at_ms) / 1000


def choose(names: Sequence[str]) -> list[Chosen]:
    """Return the scenarios of these names, files or functions; by default, all shipped ones.

    Raises `Misuse` for an unknown name, and for a file that cannot be loaded.
    """
    chosen = []
    for name in names or shipped_names():
        try:
            chosen.append(Chosen(name, find(name)))
        except NoScenario as error:
            where = "" if name.partition(":")[0] in str(error) else f"{name}: "
            raise common.Misuse(f"{where}{error}") from error
        except Exception as error:
            raise common.Misuse(f"cannot load {name}: {type(error).__name__}: {error}") from error
    return chosen


def play(chosen: Chosen, world: World, options: str, *, progress: bool) -> Played:
    """Play one scenario; raises `Misuse` if the stage or the chain does not answer."""
    try:
        run = world.play(chosen.scenario, progress=progress)
        return Played(run, f"{chosen.command} {options}")
    except (ConnectionError, httpx.HTTPError) as error:
        hint = f"start a service with `{shown()} serve`, or omit --on"
        if "WRONG_VERSION_NUMBER" in str(error):
            hint = "it does not speak TLS: give the URL with http://"
        raise common.Misuse(
            f"--on {world.where.name}: {error or type(error).__name__}; {hint}"
        ) from error
    except OtherNetwork as error:
        raise common.Misuse(f"--network: {error}") from error
    except ChainError as error:
        raise common.Misuse(f"--chain {world.backend.name}: {error}") from error


def combined_sha256(all_played: Sequence[Played]) -> str:
    """Return one hash of all journals: the SHA-256 of their hashes in hex, in order, one per line.

    `jq -r '.scenarios[].journal_sha256' | sha256sum` computes the same. No journal has this hash.
    """
    lines = "".join(f"{played.run.sha256}\n" for played in all_played)
    return hashlib.sha256(lines.encode()).hexdigest()


def document(seed: int, all_played: Sequence[Played]) -> dict[str, Any]:
    """Return the output of `run --json`."""
    return {
        "seed": seed,
        "combined_sha256": combined_sha256(all_played),
        "clock_ahead_s": max(played.run.ahead_s for played in all_played),
        "scenarios": [
            {
                "name": played.run.name,
                "outcome": played.run.outcome,
                "reason": played.run.reason,
                "steps": played.steps,
                "journal_sha256": played.run.sha256,
                "checks": [
                    {name: getattr(check, name) for name in ("clause", "ok", "expected", "actual")}
                    for check in checks_of(played.run.journal)
                ],
            }
            for played in all_played
        ],
    }


MAX_CHECKS = 5
"""Failed checks of one scenario that are printed in full."""
_SENTENCES = {clause.id: clause.text for clause in CLAUSES} | UPTO_CLAUSES


def header(names: Sequence[str]) -> str:
    """Return the header of the table."""
    return _cells(names, "scenario", "outcome", "checks", "steps", "virtual time", "real time")


def row(names: Sequence[str], played: Played) -> str:
    """Return the row of one scenario."""
    run = played.run
    held = [check.ok for check in checks_of(run.journal)]
    virtual_s = played.virtual_s
    return _cells(
        names,
        run.name,
        "no checks" if is_unchecked(played) else run.outcome,
        "" if is_unchecked(played) else f"{sum(held)}/{len(held)}",
        str(played.steps),
        f"{virtual_s:.3g} s" if virtual_s < 60 else duration(int(virtual_s)),
        f"{run.real_s or 0:.2f} s",
    )


def _cells(names: Sequence[str], name: str, outcome: str, *numbers: str) -> str:
    size = min(24, max(len("scenario"), *map(len, names)))
    shown = name if len(name) <= size else name[: size - 1] + "…"
    widths = (7, 6, 13, 10)
    cells = [f"{number:>{width}}" for number, width in zip(numbers, widths, strict=True)]
    cells[0] = cells[0][max(0, len(outcome) - 7) :]  # "no checks" is wider, without a number
    return "  ".join([f"{shown:<{size}}", f"{outcome:<7}", *cells])


def conclusion(seed: int, all_played: Sequence[Played], real_s: float) -> Iterator[str]:
    """Yield the lines after the table: why scenarios were skipped, failures, totals and hash."""
    reasons: dict[str, list[str]] = {}
    for played in all_played:
        if played.run.outcome == "skipped":
            reasons.setdefault(played.run.reason, []).append(played.run.name)
    for reason, names in reasons.items():
        yield "\n" + common.filled(f"skipped, because {reason}:")
        yield common.filled(", ".join(names), 2)
    for played in all_played:
        if played.run.outcome == "failed":
            yield "\n" + "\n".join(_failure(played))
    if unchecked := [played.run.name for played in all_played if is_unchecked(played)]:
        yield "\nno checks, which proves nothing:"
        yield common.filled(", ".join(unchecked), 2)
    outcomes = ["no checks" if is_unchecked(it) else it.run.outcome for it in all_played]
    counts = [(outcome, outcomes.count(outcome)) for outcome in (*OUTCOMES, "no checks")]
    numbers = ", ".join(
        f"{count} {'with ' if outcome == 'no checks' else ''}{outcome}"
        for outcome, count in counts
        if count
    )
    yield f"\n{numbers} in {real_s:.2f} s with seed {seed}"
    if len(all_played) == 1:
        yield f"journal sha256 {all_played[0].run.sha256}"
    else:
        yield f"combined sha256 {combined_sha256(all_played)}"


def is_unchecked(played: Played) -> bool:
    """Tell whether a scenario passed without a single check, which proves nothing.

    Invariants do not count: a world without payments keeps them, too.
    """
    return played.run.outcome == "passed" and not checks_of(played.run.journal)


def _failure(played: Played) -> Iterator[str]:
    run = played.run
    yield common.filled(f"FAILED {run.name}: {run.title}")
    yield common.filled(why_failed(run), 2)
    broken = failed_checks(run.journal)
    last_exchange = None
    for check, trace in broken[:MAX_CHECKS]:
        sentence = _SENTENCES.get(check.clause, "must hold in every run")
        yield "\n" + common.filled(f"{check.clause}: {sentence}", 2)
        for name, value in ("expected", check.expected), ("actual", check.actual):
            first, *rest = textwrap.wrap(printable(repr(value)), WIDTH - 14) or [""]
            yield f"    {name:<9} {first}"
            yield from (f"    {'':<9} {line}" for line in rest)
        if check.exchange == last_exchange:
            yield f"    about exchange {last_exchange}, too"
        elif trace:
            yield f"    exchange {check.exchange}, from request to answer:"
            yield from (_cut(f"  {line}") for line in trace)
        else:
            yield "    no request had been sent"
        last_exchange = check.exchange
    if len(broken) > MAX_CHECKS:
        yield f"\n  and {len(broken) - MAX_CHECKS} more; --json prints them all"
    for entry in run.journal:
        if isinstance(entry.event, StoryRaised) and entry.event.trace:
            yield "\n  the scenario raised it here:"
            yield from (_cut(f"    {frame}") for frame in entry.event.trace)
    yield f"\n  run it again: {played.again}"


def _cut(line: str) -> str:
    line = printable(line)
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


_STYLES = {"passed": "", "failed": "bold red", "skipped": "yellow"}


_Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME",
        help="Names (see `list`), FILE.py, or FILE.py:FUNCTION. [default: all]",
        autocompletion=common.completing(shipped_names),
    ),
]
_On = Annotated[
    str,
    typer.Option(
        help="Stage: in-process, tcp (real sockets), or the URL of a running service.",
        metavar="STAGE",
    ),
]
_Out = Annotated[
    Path | None,
    typer.Option(
        help="Write report.html, frames, plots and journals. Needs the extra `report`.",
        metavar="DIR",
        file_okay=False,
    ),
]


def run(
    names: _Names = None,
    on: _On = "in-process",
    chain: common.Chain = "ledger",
    token: common.Token = None,
    network: common.NetworkName = None,
    network_file: common.NetworkFile = None,
    seed: common.RandomSeed = 0,
    out: _Out = None,
    as_json: common.AsJson = False,
    budget: Annotated[
        str,
        typer.Option(
            help=f"Most tokens that the key in {PAYER_KEY} may sign for.",
            metavar="AMOUNT",
        ),
    ] = BUDGET,
    allow_mainnet: Annotated[
        bool, typer.Option("--allow-mainnet", help="Allow that key to pay with real money.")
    ] = False,
) -> None:
    """Play scenarios, and check them against the specification."""
    with common.quiet():
        with common.as_misuse(begin="--chain: "):
            backend = parse_chain(chain, token=token)
        with common.as_misuse(begin="--on: "):
            where = parse_where(on)
        with common.as_misuse(begin="--"):
            if isinstance(where, Deployment):
                where = replace(where, budget=budget, allow_mainnet=allow_mainnet)
        with common.as_misuse(begin="--on: "):
            build = partial(World, on=where, chain=backend, seed=seed)
            place = build().where.name
        with common.as_misuse(begin="--network: "):
            is_chosen = network is not None or network_file is not None
            chosen = choose_network(network, network_file) if is_chosen else None
        with common.as_misuse():
            world = build(network=chosen)
        options = (
            ("on", place),
            ("chain", None if backend == DEFAULT_CHAIN else backend.name),
            ("token", token),
            ("network", chosen and chosen.name),
            ("network-file", network_file),
            ("seed", seed),
            ("budget", None if budget == BUDGET else budget),
        )
        again = [f"--{name} {shlex.quote(str(it))}" for name, it in options if it is not None]
        again += ["--allow-mainnet"] * allow_mainnet
        scenarios = choose(names or [])
        if out is not None:
            _prepare(out)
        key = os.environ.get(PAYER_KEY)
        if key and isinstance(where, Deployment):
            with common.as_misuse(begin=f"{PAYER_KEY}: "):
                payer = Wallet(key).address
            told = f"if it funds no payers, {payer} ({PAYER_KEY}) pays at most {budget} tokens"
            typer.echo(f"x402sim: {place}: {told}", err=True)
        elapsed = stopwatch()
        all_played = _play(scenarios, world, " ".join(again), as_json)
        if as_json:
            typer.echo(json.dumps(document(seed, all_played)))
        else:
            typer.echo("\n".join(conclusion(seed, all_played, elapsed())))
        if out is not None:
            from x402sim.report import save  # with pandas

            with nullcontext() if as_json else telling("report", lambda: f"writing {out}"):
                stories = {each.scenario.name: each.scenario.description for each in scenarios}
                save.save_runs([played.run for played in all_played], out, stories=stories)
            typer.echo(f"report {out / 'report.html'}", err=as_json)  # stdout has the JSON
    if ahead_s := max(played.run.ahead_s for played in all_played):
        typer.echo(f"x402sim: {left_ahead(place, ahead_s)}", err=True)
    outcomes = {played.run.outcome for played in all_played}
    if outcomes == {"skipped"}:
        raise common.Misuse("nothing was played: every scenario was skipped")
    if "failed" in outcomes or any(map(is_unchecked, all_played)):
        raise typer.Exit(common.NOT_ALL_HELD)


def _play(chosen: list[Chosen], world: World, options: str, as_json: bool) -> list[Played]:
    """Play the scenarios one after the other, and print each row when its run has ended."""
    console = new_console(highlight=False, markup=False, soft_wrap=True, quiet=as_json)
    names = [each.scenario.name for each in chosen]
    all_played: list[Played] = []
    for each in chosen:
        played = play(each, world, options, progress=not as_json)
        if not all_played:
            console.print(header(names), style="bold")
        all_played.append(played)
        console.print(row(names, played), style=_STYLES[played.run.outcome])
    return all_played


def _prepare(out: Path) -> None:
    """Make the folder of the reports before the first run; raises `Misuse`."""
    with common.as_misuse(ModuleNotFoundError, begin="--out: "):
        need_extra()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise common.Misuse(f"--out: cannot write to {out}: {error.strerror}") from error
