"""Defects are seen in a service of somebody else, too, whose clock nobody can advance.

The loop's time is virtual, but no check can move it: each one waits, beside the others.
"""

import msgspec
import pytest

from tests.mutants.honest import own_target
from tests.mutants.judging import quiet
from tests.mutants.rows import MUTANTS
from x402sim import World
from x402sim.suite.case import matching
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service.case import IDS_BEGIN
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge
from x402sim.suite.service.target import Indexer, Target

SEEN = (
    "requirements-live-for-ever", "requirements-end-early", "payments-are-forgotten",
    "served-after-expiry", "expires-at-once", "never-expires", "never-refunded",
    "whole-deposit-refunded", "one-refund-for-each-payer", "refunded-twice", "comes-back-to-life",
    "sessions-in-memory", "never-runs", "runs-every-hour", "runs-all-the-time", "never-asks",
    "oldest-first", "batch-of-a-thousand", "asks-for-all-again", "one-failure-ends-the-run",
    "unknown-is-block-zero", "next-block", "reputation-stays",
)  # fmt: skip
"""Defects that need time: the checks of their clauses see them by waiting for it."""
EVERY_DAY = {"requirements-end-early", "never-refunded", "sessions-in-memory", "runs-every-hour"}


def target() -> Target:
    """Return our own target, which says how long its durations are."""
    own = own_target()
    sessions = msgspec.structs.replace(own.sessions, duration_unit_s=1, refund_within_s=300)
    return msgspec.structs.replace(own, sessions=sessions, indexer=Indexer(interval_s=300))


def judged(world: World, *prefixes: str) -> dict[str, Result]:
    checks = [
        check for prefix in prefixes or ("",) for check in matching(all_checks(), prefix, IDS_BEGIN)
    ]
    with quiet():
        results = judge(world, target=target(), checks=checks, has_clock=False)
    return {result.id: result for result in results}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in EVERY_DAY else [pytest.mark.thorough])
        for name in SEEN
    ],
)
def test_a_defect_is_seen_without_a_clock_that_turns(name: str) -> None:
    results = judged(MUTANTS[name].world(World(seed=1)), *MUTANTS[name].check_ids)
    assert {each.outcome for each in results.values()} == {Outcome.FAILED}


def test_a_payer_who_has_paid_and_is_told_that_the_nonce_was_used_is_not_left_open() -> None:
    """After a lost answer, a service that never finds the payment is not only in doubt."""
    name = "internal-error-is-a-failure"
    results = judged(MUTANTS[name].world(World(seed=1)), "kit/3/pending")
    lost = [
        each for each in results["kit/3/pending-resolved"].cases if "After any loss" in each.title
    ]
    assert [each.outcome for each in lost] == [Outcome.FAILED]
    assert "Nonce already used" in str(lost[0].actual)


def odd(results: dict[str, Result]) -> set[str]:
    """Return the ids that accuse a service, or leave a doubt."""
    wrong = (Outcome.FAILED, Outcome.INCONCLUSIVE)
    return {each.id for each in results.values() if each.outcome in wrong}


@pytest.mark.thorough
def test_a_whole_run_of_the_honest_service_accuses_nobody_and_judges_all_but_the_cache() -> None:
    results = judged(World(seed=1))
    assert odd(results) == set()
    skipped = {each.id for each in results.values() if each.outcome is Outcome.SKIPPED}
    assert skipped == {
        "spec/3/discarded-after-24h", "spec/8/cache-lifetime", "spec/8/cache-sweep",
        "spec/4.1/cache",
    }  # fmt: skip


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_results_beside_each_other() -> None:
    def once() -> list[tuple[str, str, str | None, str]]:
        results = judged(World(seed=1), "3/", "5/window", "1/")
        return [(it.id, it.outcome, it.actual, it.reason) for it in results.values()]

    assert once() == once()
