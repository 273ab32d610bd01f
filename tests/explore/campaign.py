"""`python -m tests.explore`: plays random worlds; at the end of each, money and access must agree.

Each world has payers in two steps and in one, who hang up and send again, smart wallets, sessions,
one to three services of one merchant or of several, latencies, faults, crashes, wrong clocks and
reorganisations. At its end each order is judged: the ledger is compared with what the services
answered. Hypothesis shrinks a failing world, printed as JSON to play again.

The same seed gives the same worlds: batches have seeds of their own, and do not depend on the
number of processes. Exit code 1: a world failed.
"""

import argparse
import multiprocessing
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import eth_account  # noqa: F401 - it raises the recursion limit: not while Hypothesis watches it
import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.explore.case import Case, worlds
from tests.explore.play import play
from tests.money import Law, Violation
from tests.mutants.changes import Change, all_of
from x402sim.clock import stopwatch
from x402sim.protocol.messages import BadMessage, decode

BATCH = 10
"""Worlds that are drawn from one seed: after ten, Hypothesis makes most worlds from earlier ones."""


class Broken(AssertionError):
    """A world broke a law: a class for each law, so Hypothesis shrinks a world within a law."""


_BROKEN = {law: type(law.name, (Broken,), {}) for law in Law}


@dataclass(frozen=True, slots=True)
class Batch:
    seed: int
    runs: int
    adversary: bool


@dataclass(slots=True)
class Found:
    """What became of the worlds of a batch; `failures` holds the smallest that breaks each law."""

    runs: int = 0
    events: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """How many authorizations came to what."""
    failures: dict[Law, tuple[Case, list[Violation]]] = field(default_factory=dict)


def run(batch: Batch, change: Change = all_of(), *, shrinks: bool = True) -> Found:  # noqa: B008
    """Play the worlds of a batch; `change` may put a defect into their services."""
    found = Found()

    @seed(batch.seed)
    @settings(
        max_examples=batch.runs,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrinks else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(worlds(adversary=batch.adversary))
    def hold(case: Case) -> None:
        played = play(case, change)
        if played.violations:
            law = played.violations[0].law
            found.failures[law] = case, played.violations
            raise _BROKEN[law]
        if not found.failures:  # what is played after that is smaller and smaller
            found.runs += 1
            found.events += played.journal.length
            found.outcomes.update(played.counts)

    try:
        hold()
    except* Broken:
        assert found.failures
    return found


def run_all(first: int, runs: int, *, adversary: bool) -> Iterator[Found]:
    """Play so many worlds on all CPUs; end with the first batch in which one fails."""
    batches = [
        Batch(first + number, min(BATCH, runs - number * BATCH), adversary)
        for number in range(-(-runs // BATCH))
    ]
    spawn, cpus = multiprocessing.get_context("spawn"), len(os.sched_getaffinity(0))
    with spawn.Pool(cpus, initializer=end_with_parent) as pool:
        for found in pool.imap(run, batches):
            yield found
            if found.failures:
                return


def end_with_parent() -> None:
    """Let this process end after the parent, even if the parent was killed and tells nobody."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# --- the command --------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.explore", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--runs", type=int, default=1_000, help="worlds to play (%(default)s)")
    add("--seed", type=int, default=random.getrandbits(32), help="by default drawn")
    add("--adversary", action="store_true", help="add third parties, and lies of others")
    add("--replay", type=Path, metavar="FILE", help="play the world in this file")
    asked = parser.parse_args(arguments)
    if asked.replay is not None:
        try:
            case: Case = decode(asked.replay.read_bytes(), Case)
        except (OSError, BadMessage) as wrong:
            parser.error(f"{asked.replay} holds no world: {wrong}")
        violations = play(case).violations
        print("\n".join(map(str, violations)) or "Every invariant held.")
        return int(bool(violations))
    kind = "adversarial" if asked.adversary else "plain"
    print(f"{asked.runs:,} {kind} worlds, seed {asked.seed}", flush=True)
    elapsed, total = stopwatch(), Found()
    for found in run_all(asked.seed, asked.runs, adversary=asked.adversary):
        total.runs += found.runs
        total.events += found.events
        total.outcomes += found.outcomes
        total.failures |= found.failures
    print(f"{total.runs:,} worlds held: {total.events:,} events, {elapsed():.0f} s\n")
    counted = sorted(total.outcomes.items())
    print(*(f"{count:>10,}  {name}" for name, count in counted), "", sep="\n")
    for case, violations in total.failures.values():
        print(failure(case, violations))
    return int(bool(total.failures))


def failure(case: Case, violations: list[Violation]) -> str:
    told = msgspec.json.encode(case).decode()
    return "\n".join([*map(str, violations), "", "--replay a file with:", told, ""])
