"""The engine's rule of repetition: the result of a case that was played twice, and of a doubted one."""

import pytest

from x402sim.report.results import CaseResult, Outcome
from x402sim.spec.ground import ours
from x402sim.suite.case import Case
from x402sim.suite.engine import doubted, of_two, result, skipped, unclear
from x402sim.suite.verdict import Skipped, Violation

CASE = Case(id="kit/1/a", level="MUST", ground=ours(because="a test"), title="a", played_as="a")
RESULTS = {
    "passed": result(CASE, None),
    "failed": result(CASE, Violation(expected="2", actual="1")),
    "inconclusive": unclear(CASE, "no answer"),
    "skipped": skipped(CASE, Skipped("nothing there")),
}


def of(first: str, second: str) -> CaseResult:
    return of_two(RESULTS[first], RESULTS[second], "kit/1/b")


@pytest.mark.parametrize("second", RESULTS)
def test_what_was_played_twice_has_failed_only_if_it_fails_twice(second: str) -> None:
    assert of("passed", second).outcome is Outcome.PASSED
    assert of("inconclusive", second).outcome == second
    assert of("failed", second).outcome == ("failed" if second == "failed" else "inconclusive")


def test_a_failure_that_was_not_seen_again_says_what_was_seen() -> None:
    begins = "it failed beside kit/1/b (expected 2, got 1); played again alone, "
    assert of("failed", "passed").reason == f"{begins}it holds"
    assert of("failed", "skipped").reason == f"{begins}it was not judged: nothing there"


def test_what_holds_without_its_control_proves_nothing() -> None:
    found = doubted(CASE, RESULTS["passed"], "its control failed")
    assert (found.outcome, found.reason) == (Outcome.INCONCLUSIVE, "its control failed")
    assert doubted(CASE, RESULTS["passed"], "") is RESULTS["passed"]
    assert doubted(CASE, RESULTS["failed"], "its control failed") is RESULTS["failed"]
