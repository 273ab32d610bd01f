"""Plays scenarios for `run`, each in a world of its own with the same seed.

It finds the scenarios, the stage and the chain that the user typed, and makes the JSON.
"""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from x402sim.chain.base import ChainError
from x402sim.commands.common import Misuse, as_misuse
from x402sim.events import RequestSent
from x402sim.explorer.index import ExplorerSettings
from x402sim.protocol.networks import choose_network
from x402sim.report.reading import reading_of
from x402sim.report.run import Run
from x402sim.report.summary import checks_of
from x402sim.world.chains import DEFAULT_CHAIN, parse_chain
from x402sim.world.play import OtherNetwork
from x402sim.world.scenario import NoScenario, Scenario, find, shipped_names
from x402sim.world.world import World, parse_where


@dataclass(frozen=True, slots=True)
class Chosen:
    """A scenario, and what the user typed: its name, or its file."""

    typed: str
    scenario: Scenario

    @property
    def command(self) -> str:
        """The command that plays it."""
        return f"python -m x402sim run {shlex.quote(self.typed)}"


@dataclass(frozen=True, slots=True)
class Played:
    """A scenario that was played: its run, and the command that repeats it."""

    run: Run
    again: str

    @property
    def steps(self) -> int:
        """How many requests the payers sent."""
        sent, services = self.run.journal.events(RequestSent), reading_of(self.run.journal).services
        return sum(each.actor not in services for each in sent)

    @property
    def virtual_s(self) -> float:
        """How much time passed in the world."""
        events = list(self.run.journal)
        return (events[-1].at_ms - events[0].at_ms) / 1000


def choose(names: Sequence[str]) -> list[Chosen]:
    """Return the scenarios of these names, files or functions; without any, all that are shipped.

    Raises `Misuse` for an unknown name, and for a file that cannot be loaded.
    """
    return [Chosen(name, _scenario(name)) for name in names or shipped_names()]


def _scenario(name: str) -> Scenario:
    """Return the scenario that the user typed; raises `Misuse`."""
    try:
        return find(name)
    except NoScenario as error:
        where = "" if name.partition(":")[0] in str(error) else f"{name}: "
        raise Misuse(f"{where}{error}") from error
    except Exception as error:
        raise Misuse(f"cannot load {name}: {type(error).__name__}: {error}") from error


def where(
    *,
    on: str,
    chain: str,
    token: str | None,
    network: str | None,
    network_file: Path | None,
    seed: int,
    latency: Sequence[str],
    block_time_s: float | None,
    explorer_lag_s: float,
) -> tuple[World, str]:
    """Return the world to play in, and the options that repeat it; raises `Misuse`.

    A node's URL is shown without secrets.
    """
    with as_misuse(begin="--chain: "):
        backend = parse_chain(chain, token=token)
    with as_misuse(begin="--on: "):
        build = partial(World, on=parse_where(on), chain=backend, seed=seed)
        world = build()
    with as_misuse(begin="--network: "):
        is_chosen = network is not None or network_file is not None
        chosen = choose_network(network, network_file) if is_chosen else None
    with as_misuse():
        given = dict(map(_latency, latency))
        explorer = ExplorerSettings(lag_s=explorer_lag_s) if explorer_lag_s else None
        world = build(network=chosen, latency=given, block_time_s=block_time_s, explorer=explorer)
    options = (
        ("on", world.where.name),
        ("chain", None if backend == DEFAULT_CHAIN else backend.name),
        ("token", token),
        ("network", chosen and chosen.name),
        ("network-file", network_file),
        ("seed", seed),
        *(("latency", each) for each in latency),
        ("block-time", None if block_time_s is None else f"{block_time_s:g}"),
        ("explorer-lag", f"{explorer_lag_s:g}" if explorer_lag_s else None),
    )
    said = (f"--{name} {shlex.quote(str(it))}" for name, it in options if it is not None)
    return world, " ".join(said)


def _latency(text: str) -> tuple[str, float | tuple[float, ...]]:
    """Return the part and the latency of an option; raises `ValueError` if it cannot be read."""
    part, _, given = text.partition("=")
    try:
        numbers = tuple(map(float, given.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2) or not min(numbers) >= 0:
        wanted = "PART=SECONDS or PART=MEDIAN,SIGMA is needed, from 0 on"
        raise ValueError(f"--latency: {wanted}, not {text!r}")
    return part, numbers if len(numbers) == 2 else numbers[0]


def play(chosen: Chosen, world: World, options: str, *, progress: bool) -> Played:
    """Play one scenario; raises `Misuse` if the stage or the chain does not answer."""
    try:
        run = world.play(chosen.scenario, progress=progress)
        return Played(run, f"{chosen.command} {options}")
    except (ConnectionError, httpx.HTTPError) as error:
        hint = "start a service with `python -m x402sim serve`, or omit --on"
        if "WRONG_VERSION_NUMBER" in str(error):
            hint = "it does not speak TLS: give the URL with http://"
        raise Misuse(f"--on {world.where.name}: {error or type(error).__name__}; {hint}") from error
    except OtherNetwork as error:
        raise Misuse(f"--network: {error}") from error
    except ChainError as error:
        raise Misuse(f"--chain {world.backend.name}: {error}") from error


def combined_sha256(all_played: Sequence[Played]) -> str:
    """Return one hash for all journals: of their hashes in hex, in order, one a line.

    `jq -r '.scenarios[].journal_sha256' | sha256sum` computes the same. It is not the hash of a
    journal, and is never called so.
    """
    lines = "".join(f"{played.run.sha256}\n" for played in all_played)
    return hashlib.sha256(lines.encode()).hexdigest()


def document(seed: int, all_played: Sequence[Played]) -> dict[str, Any]:
    """Return what `run --json` prints."""
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
