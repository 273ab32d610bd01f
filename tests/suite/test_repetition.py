"""The engine's rule of repetition: the result of a case that was played twice, and of a doubted one."""

from dataclasses import replace

import pytest

from x402sim.spec.ground import ours
from x402sim.suite.case import Case
from x402sim.suite.engine import Played, doubted, of_two, result, skipped, unclear
from x402sim.suite.report.exchange import Exchange
from x402sim.suite.report.results import CaseResult, Loss, Outcome
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


def test_the_money_of_a_play_is_counted_once() -> None:
    gas = Loss(base=9, symbol="coins")
    losses = {"a": Loss(base=1), "b": Loss(base=2), "c": None, "d": Loss(base=2), "e": gas}
    found = {
        replace(CASE, id=f"kit/1/{name}"): Violation(actual="1", expected="2", loss=loss)
        for name, loss in losses.items()
    }
    played = Played(play=None, found=found, show=lambda: Exchange(about="it"))
    assert [each.loss for _, each in played.results] == [None, Loss(base=2), None, None, gas]
