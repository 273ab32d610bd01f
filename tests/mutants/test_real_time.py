"""Defects are seen in a service of somebody else, too, whose clock nobody can advance.

The loop's time is virtual, but no check can move it: each one waits, beside the others.
"""

import msgspec
import pytest

from tests.mutants.honest import own_target
from tests.mutants.jury import CHECKS, quiet
from tests.mutants.rows import MUTANTS
from x402sim import TESTNET
from x402sim.report.results import Outcome, Result
from x402sim.suite.engine import matching
from x402sim.suite.local import judge
from x402sim.suite.target import Indexer, Target
from x402sim.world.assembly.recipe import Recipe

SEEN = {
    "requirements-live-for-ever": "2.1/validity",
    "requirements-end-early": "2.1/validity",
    "payments-are-forgotten": "5/stored-records",
    "served-after-expiry": "3/expiry-refund",
    "expires-at-once": "3/expiry-refund",
    "never-expires": "3/expiry-refund",
    "never-refunded": "3/expiry-refund",
    "whole-deposit-refunded": "3/expiry-refund",
    "refunded-to-the-merchant": "3/expiry-refund",
    "one-refund-for-each-payer": "3/expiry-refund",
    "refunded-twice": "3/refund-once",
    "refunded-again-after-a-lost-answer": "3/refund-once",
    "comes-back-to-life": "3/refund-once",
    "sessions-in-memory": "kit/5/session-survives-restart",
    "never-runs": "1/indexer",
    "runs-every-hour": "8/indexer-interval",
    "runs-all-the-time": "8/indexer-interval",
    "never-asks": "8/indexer-query",
    "oldest-first": "8/indexer-batch",
    "batch-of-a-thousand": "8/indexer-batch",
    "asks-for-all-again": "8/indexer-query",
    "one-failure-ends-the-run": "8/indexer-query",
    "unknown-is-block-zero": "8/indexer-query",
    "unknown-is-failed": "8/indexer-query",
    "next-block": "2.4/block-null",
    "reputation-stays": "6/reputation",
}
"""Defects that need time, and the check that sees them by waiting for it."""
EVERY_DAY = {"requirements-end-early", "never-refunded", "sessions-in-memory", "runs-every-hour"}


def target() -> Target:
    """Return our own target, which says how long its durations are."""
    own = own_target()
    sessions = msgspec.structs.replace(own.sessions, duration_unit_s=1, refund_within_s=300)
    return msgspec.structs.replace(own, sessions=sessions, indexer=Indexer(interval_s=300))


def judged(recipe: Recipe, *prefixes: str) -> dict[str, Result]:
    checks = [check for prefix in prefixes or ("",) for check in matching(CHECKS(), prefix)]
    with quiet():
        results = judge(recipe, target=target(), checks=checks, has_clock=False)
    return {result.id: result for result in results}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in EVERY_DAY else [pytest.mark.thorough])
        for name in SEEN
    ],
)
def test_a_defect_is_seen_without_a_clock_that_turns(name: str) -> None:
    clause = SEEN[name]
    check_id = clause if clause.startswith("kit/") else f"spec/{clause}"
    result = judged(MUTANTS[name].recipe(Recipe(network=TESTNET, seed=1)), check_id)[check_id]
    assert result.outcome is Outcome.FAILED, result.reason


def odd(results: dict[str, Result]) -> set[str]:
    """Return the ids that accuse a service, or leave a doubt."""
    wrong = (Outcome.FAILED, Outcome.INCONCLUSIVE)
    return {each.id for each in results.values() if each.outcome in wrong}


def test_the_honest_service_is_not_accused() -> None:
    assert odd(judged(Recipe(network=TESTNET, seed=1), *set(SEEN.values()))) == set()


@pytest.mark.thorough
def test_a_whole_run_of_the_honest_service_accuses_nobody_and_judges_all_but_the_cache() -> None:
    results = judged(Recipe(network=TESTNET, seed=1))
    assert odd(results) == set()
    skipped = {each.id for each in results.values() if each.outcome is Outcome.SKIPPED}
    assert skipped == {
        "spec/3/discarded-after-24h", "spec/8/cache-lifetime", "spec/8/cache-sweep",
        "spec/4.1/cache",
    }  # fmt: skip


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_results_beside_each_other() -> None:
    def once() -> list[tuple[str, str, str | None, str]]:
        results = judged(Recipe(network=TESTNET, seed=1), "3/", "5/window", "1/")
        return [(it.id, it.outcome, it.actual, it.reason) for it in results.values()]

    assert once() == once()
