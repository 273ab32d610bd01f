"""Plays many random cases, in several processes, and counts what happened.

Run number n of a campaign with seed s is the case of seed s + n, so the result depends on the
seeds only, not on the number of processes.
"""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from x402sim.clock import stopwatch
from x402sim.explore.case import Case, kind_of
from x402sim.explore.draw import draw
from x402sim.explore.play import Played, play
from x402sim.explore.shrink import shrink

CHUNK = 10
"""Cases that a process plays before it reports."""
MOST_SHRUNK = 3
"""Failures that are shrunk; of each law, the first is."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A case that broke laws, by name, and how."""

    case: Case
    laws: tuple[str, ...]
    how: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a campaign; `kinds` counts the cases that exercised each kind."""

    seed: int
    runs: int
    adversary: bool
    kinds: dict[str, int]
    outcomes: dict[str, int]
    """How many authorizations came to what."""
    events: int
    broken: dict[str, int]
    """How many cases broke each law."""
    failures: tuple[Failure, ...]
    real_s: float


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a few cases, as a process reports it."""

    kinds: dict[str, int]
    outcomes: dict[str, int]
    events: int
    failures: tuple[Failure, ...]


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What to play: seeds from `seed` on, in so many worker processes."""

    seed: int
    runs: int = 1_000
    workers: int = 1
    adversary: bool = False


def run(campaign: Campaign, progress: Callable[[int, int], None] = lambda *_: None) -> Report:
    """Play a campaign; `progress` is called with the cases played and the failures so far."""
    elapsed = stopwatch()
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failures: list[Failure] = []
    played = events = 0
    for batch in _batches(campaign):
        kinds.update(batch.kinds)
        outcomes.update(batch.outcomes)
        failures += batch.failures
        events += batch.events
        played = min(campaign.runs, played + CHUNK)
        progress(played, len(failures))
    failures.sort(key=lambda failure: failure.case.seed)
    return Report(
        seed=campaign.seed,
        runs=campaign.runs,
        adversary=campaign.adversary,
        kinds=dict(sorted(kinds.items())),
        outcomes=dict(sorted(outcomes.items())),
        events=events,
        broken=dict(sorted(Counter(law for each in failures for law in each.laws).items())),
        failures=tuple(failures),
        real_s=elapsed(),
    )


def _batches(campaign: Campaign) -> Iterator[Batch]:
    ends = campaign.seed + campaign.runs
    work = [
        (start, min(start + CHUNK, ends), campaign.adversary)
        for start in range(campaign.seed, ends, CHUNK)
    ]
    if campaign.workers == 1:
        yield from map(_batch, work)
        return
    with multiprocessing.get_context("spawn").Pool(campaign.workers) as pool:
        yield from pool.imap_unordered(_batch, work)


def _batch(work: tuple[int, int, bool]) -> Batch:
    """Play the cases of a range of seeds."""
    first, end, adversary = work
    kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failures, events = [], 0
    for seed in range(first, end):
        played = play(draw(seed, adversary=adversary))
        kinds.update({kind_of(step) for step in played.case.steps})
        outcomes.update(played.counts)
        events += played.journal.length
        if played.violations:
            failures.append(failure_of(played))
    return Batch(
        kinds=dict(kinds), outcomes=dict(outcomes), events=events, failures=tuple(failures)
    )


def failure_of(played: Played) -> Failure:
    """Return the failure of a case that was played."""
    return Failure(
        case=played.case,
        laws=tuple(sorted(law.name for law in played.laws)),
        how=tuple(f"{each.law.value}: {each.how}" for each in played.violations),
    )


def smallest(failure: Failure) -> Failure:
    """Return the smallest case that breaks the same law, the first that this one breaks."""
    law = failure.laws[0]

    def fails(case: Case) -> bool:
        return law in {each.name for each in play(case).laws}

    return failure_of(play(shrink(failure.case, fails)))


def to_shrink(report: Report) -> list[Failure]:
    """Return the failures worth shrinking: of each set of laws the one with the fewest steps."""
    first: dict[tuple[str, ...], Failure] = {}
    for each in sorted(report.failures, key=lambda failure: len(failure.case.steps)):
        first.setdefault(each.laws, each)
    return list(first.values())[:MOST_SHRUNK]
