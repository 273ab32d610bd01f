"""Which scenarios, played where, and what came of them?

Each scenario is played in a world of its own, with the same seed.
"""

import hashlib
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import httpx

from x402sim.chain.base import ChainError
from x402sim.commands.common import Misuse
from x402sim.report.reading import SERVICE, Reading
from x402sim.report.run import Run
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.parse import DEFAULT_CHAIN, parse_chain
from x402sim.world.stages.parse import parse_stage
from x402sim.world.stages.stage import Stage
from x402sim.world.story.scenario import Scenario, load, shipped
from x402sim.world.story.world import World


@dataclass(frozen=True, slots=True)
class Chosen:
    """A scenario, and what one types to play it: its name, or its file."""

    typed: str
    scenario: Scenario

    @property
    def command(self) -> str:
        """The command that plays it."""
        return f"python -m x402sim run {shlex.quote(self.typed)}"


@dataclass(frozen=True, slots=True)
class Played:
    """A scenario that was played: its run, and the command that plays it again."""

    run: Run
    again: str

    @property
    def steps(self) -> int:
        """How many requests the payers sent."""
        return sum(each.caller != SERVICE for each in Reading(self.run.journal).exchanges)

    @property
    def virtual_s(self) -> float:
        """How much time went by in the world."""
        events = list(self.run.journal)
        return (events[-1].at_ms - events[0].at_ms) / 1000

    @property
    def held(self) -> int:
        """How many checks held."""
        return sum(check["ok"] for check in self.run.checked)


def choose(names: Sequence[str]) -> list[Chosen]:
    """Return the scenarios of these names or files, all that are shipped without any.

    Raises `Misuse` if there is none of that name, or its file cannot be loaded.
    """
    with _loading("the scenarios of x402sim"):
        known = {each.name: each for each in shipped()}
    return [Chosen(name, known.get(name) or _own(name, known)) for name in names or known]


def _own(name: str, known: Collection[str]) -> Scenario:
    """Return the scenario in a file of the user's own; raises `Misuse`."""
    file = Path(name)
    if not name.endswith(".py"):
        near = get_close_matches(name, known, 1)
        hint = f"do you mean {near[0]}?" if near else "a file of your own ends with .py;"
        raise Misuse(f"there is no scenario {name!r}; {hint} `list` has them all")
    if not file.is_file():
        raise Misuse(f"there is no file {name}")
    with _loading(name):
        return load(file)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Turn whatever a file raises as it is loaded into `Misuse`."""
    try:
        yield
    except Exception as error:
        raise Misuse(f"cannot load {what}: {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Where:
    """On which stage to play, on which chain, with which token on it, from which seed."""

    on: Stage
    chain: ChainBackend
    token: str | None = None
    seed: int = 0

    @property
    def world(self) -> World:
        """A new world there; raises `ValueError` if stage and chain do not go together."""
        return World(seed=self.seed, on=self.on, chain=self.chain)

    @property
    def options(self) -> str:
        """What one types to play there again; a node is named without what may be secret."""
        is_default = self.chain == DEFAULT_CHAIN
        chain = "" if is_default else f" --chain {shlex.quote(self.chain.name)}"
        token = "" if self.token is None else f" --token {shlex.quote(self.token)}"
        return f"--on {shlex.quote(self.on.name)}{chain}{token} --seed {self.seed}"


def where(*, on: str, chain: str, token: str | None, seed: int) -> Where:
    """Return where the options of the command line say to play; raises `Misuse`."""
    try:
        backend = parse_chain(chain, token=token)
    except ValueError as error:
        raise Misuse(f"--chain: {error}") from error
    try:
        found = Where(on=parse_stage(on), chain=backend, token=token, seed=seed)
        _ = found.world
    except ValueError as error:
        raise Misuse(f"--on: {error}") from error
    return found


def play(chosen: Chosen, where: Where) -> Played:
    """Play one scenario; raises `Misuse` if nobody answers on the stage, or it has no chain."""
    try:
        return Played(where.world.play(chosen.scenario), f"{chosen.command} {where.options}")
    except (ConnectionError, httpx.HTTPError) as error:
        hint = "start one with `python -m x402sim serve`, or leave --on out"
        raise Misuse(f"--on {where.on.name}: {error or type(error).__name__}; {hint}") from error
    except ChainError as error:
        raise Misuse(f"--chain {where.chain.name}: {error}") from error


def combined_sha256(all_played: Sequence[Played]) -> str:
    """Return one hash for all journals: of their hashes in hex, in order, a line each.

    The same as `jq -r '.scenarios[].journal_sha256' | sha256sum` gives.
    """
    lines = "".join(f"{played.run.sha256}\n" for played in all_played)
    return hashlib.sha256(lines.encode()).hexdigest()


def document(seed: int, all_played: Sequence[Played]) -> dict[str, Any]:
    """Return what `run --json` prints."""
    return {
        "seed": seed,
        "journal_sha256": combined_sha256(all_played),
        "scenarios": [
            {
                "name": played.run.name,
                "outcome": played.run.outcome,
                "reason": played.run.reason,
                "steps": played.steps,
                "journal_sha256": played.run.sha256,
                "checks": list(_checks(played.run)),
            }
            for played in all_played
        ],
    }


def _checks(run: Run) -> Iterator[dict[str, Any]]:
    for check in run.checked:
        yield {key: check[key] for key in ("clause", "ok", "expected", "actual")}
