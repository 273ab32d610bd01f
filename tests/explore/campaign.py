"""Plays many random worlds, in several processes; Hypothesis shrinks those that fail.

The worlds are drawn in batches, each from a seed of its own, so that a campaign's worlds depend on
its seed only, not on the number of processes.
"""

import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import eth_account  # noqa: F401 - it raises the recursion limit: not while Hypothesis watches it
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.explore.case import Case, kind_of
from tests.explore.play import play
from tests.explore.worlds import worlds
from tests.money import Law, Violation
from tests.mutants.mutant import Change, all_of

BATCH = 10
"""Worlds that are drawn from one seed: after ten, Hypothesis makes most worlds from earlier ones."""


class Broken(AssertionError):
    """A world broke a law: a class for each, so that a world is shrunk without changing its law."""


_BROKEN = {law: type(law.name, (Broken,), {}) for law in Law}


@dataclass(frozen=True, slots=True)
class Batch:
    """What to play."""

    seed: int
    runs: int
    adversary: bool


@dataclass(slots=True)
class Found:
    """What became of the worlds of a batch; `failures` holds the smallest that breaks each law."""

    runs: int = 0
    events: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """How many worlds exercised each kind of step."""
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
            found.kinds.update({kind_of(step) for step in case.steps})
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
    """Let this process end once its parent has, however that was: killed, a parent tells nobody."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
