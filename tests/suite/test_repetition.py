"""The engine's rule of repetition: the result of a case that was played twice, and of a doubted one."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from x402sim.spec.ground import ours
from x402sim.suite.case import Case
from x402sim.suite.engine import (
    Judging,
    Plan,
    Played,
    attempt,
    doubted,
    of_two,
    result,
    side_by_side,
    skipped,
    unclear,
)
from x402sim.suite.report import causes
from x402sim.suite.report.exchange import Exchange
from x402sim.suite.report.results import CaseResult, Evidence, Loss, Outcome, Result
from x402sim.suite.verdict import (
    CheckFailed,
    Inconclusive,
    Lacking,
    NotApplicable,
    NotReady,
    Skipped,
    Untold,
    Violation,
)

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


def test_a_control_that_holds_is_not_doubted_for_itself() -> None:
    control = replace(CASE, is_control=True)
    assert doubted(control, RESULTS["passed"], "its control failed") is RESULTS["passed"]


def test_the_seconds_of_both_plays_count() -> None:
    first, second = (
        Played(play=None, found={CASE: WRONG}, show=lambda: SHOWN, seconds=seconds).of(CASE)
        for seconds in (1.0004, 2.5)
    )
    assert of_two(first, second).seconds == 3.5
    held = Played(play=None, found={CASE: None}).of(CASE)
    assert of_two(first, held).seconds == first.seconds == 1.0


# --- the result of a case ---------------------------------------------------------------------

WRONG, SHOWN = Violation(expected="2", actual="1"), Exchange(about="it")
DEMAND = "settles-afterwards"


def test_a_violation_has_the_texts_of_its_demand_unless_it_has_its_own() -> None:
    found = result(CASE, Violation(demand=DEMAND, actual="refused"))
    assert (found.expected, found.reason) == (causes.expected(DEMAND), causes.why(DEMAND))
    assert found.expected
    assert found.evidence == Evidence(DEMAND, found.expected, "refused", CASE.id)
    assert result(CASE, Violation(actual="1")).expected == "", "it has no demand"
    own = Violation(demand=DEMAND, expected="2", actual="1", why="so", about="it")
    found = result(CASE, own)
    assert (found.expected, found.reason) == ("2", "so")
    assert found.evidence is not None
    assert found.evidence.about == "it"
    loss = Loss(base=1)
    found = result(CASE, replace(own, loss=loss))
    assert (found.reason, found.loss) == ("", loss), "the loss says why"


def test_what_was_judged_has_begun_and_what_was_skipped_says_how() -> None:
    assert [RESULTS[each].has_begun for each in RESULTS] == [True, True, True, False]
    for why, applies, lacks, is_untold in (
        (Skipped(""), True, False, False),
        (Lacking(""), True, True, False),
        (Untold(""), True, True, True),
        (NotApplicable(""), False, False, False),
    ):
        found = skipped(CASE, why)
        assert (found.applies, found.lacks, found.is_untold) == (applies, lacks, is_untold)


class Play:
    exchanges = (SHOWN, SHOWN)


def ended(raised: Exception | None = None, found: Any = None) -> Played[Case]:
    """Return the finished play of two cases: it raises, or both tests find `found`."""

    async def act() -> None:
        if raised:
            raise raised

    both = [CASE, replace(CASE, id="kit/1/b")]
    return asyncio.run(attempt(both, Play(), act, lambda case, _: found))


def test_a_play_tells_what_is_wrong_or_why_it_is_unclear_or_neither() -> None:
    failed, no_idea, absent = (
        ended(each)
        for each in (CheckFailed("", 2, 1), Inconclusive("no idea"), NotApplicable("none"))
    )
    assert (ended().wrong, ended().unclear) == (None, "")
    assert (ended(found="seen").wrong, ended(found=WRONG).wrong) == (None, WRONG)
    assert (failed.wrong, failed.unclear) == (Violation(expected="2", actual="1"), "")
    assert (no_idea.wrong, no_idea.unclear) == (None, "no idea")
    assert (absent.wrong, absent.unclear, absent.of(CASE).applies) == (None, "", False)
    assert absent.of(CASE).outcome is Outcome.SKIPPED
    assert no_idea.of(CASE).reason == "no idea"


def test_a_failure_shows_its_own_exchange_or_the_whole_play_and_the_log() -> None:
    assert ended(found=WRONG).of(CASE).exchanges == (SHOWN, SHOWN)
    assert ended(CheckFailed("", 2, 1, lambda: SHOWN)).of(CASE).exchanges == (SHOWN,)
    logged = replace(ended(found=WRONG), log="bye").of(CASE)
    assert [each.about for each in logged.exchanges] == ["it", "it", "bye"]
    assert ended().of(CASE).exchanges == ()


def test_a_subject_that_is_not_ready_is_no_bug_of_a_case() -> None:
    with pytest.raises(NotReady, match="gone"):
        ended(NotReady("gone"))


def test_a_loss_of_one_unit_is_counted() -> None:
    loss = Loss(base=1)
    assert ended(found=replace(WRONG, loss=loss)).of(CASE).loss == loss


# --- a run ------------------------------------------------------------------------------------


def test_an_error_of_one_work_cancels_the_others_and_is_raised_when_they_have_ended() -> None:
    ends: list[str] = []

    async def fails() -> list[int]:
        await asyncio.sleep(0)
        raise NotReady("gone")

    async def works() -> list[int]:
        try:
            return await asyncio.Event().wait() and []
        finally:
            await asyncio.sleep(0.01)
            ends.append("it has ended")

    async def main() -> None:
        with pytest.raises(NotReady, match="gone"):
            [each async for each in side_by_side([works(), fails()])]
        assert ends == ["it has ended"]

    asyncio.run(main())


def judging(cases: list[Case], planned: list[Case], *played: Case) -> list[Result]:
    class Judge:
        async def run(self, cases: Any, on_begin: Callable[[str], None]) -> Any:
            for each in played:
                yield each, RESULTS["failed"]

    its = Judging(
        judge=Judge(), cases=cases, rerun="judge", left_out=lambda case: RESULTS["skipped"],
        done=str, plan=Plan(cases=planned),
    )  # fmt: skip

    async def main() -> list[Result]:
        return [each async for each in its.run(lambda check_id: None)]

    return asyncio.run(main())


def test_an_id_that_is_left_out_is_told_first_and_a_control_that_nobody_chose_last() -> None:
    left, chosen, v1, v2 = (
        replace(CASE, id=f"kit/1/{each}") for each in ("left", "chosen", "control", "control")
    )
    found = judging([left, chosen], [chosen], v1, chosen, v2)
    assert [(each.id, each.outcome, len(each.cases)) for each in found] == [
        ("kit/1/left", Outcome.SKIPPED, 1),
        ("kit/1/chosen", Outcome.FAILED, 1),
        ("kit/1/control", Outcome.FAILED, 2),
    ]
    assert found[0].rerun == "judge --only kit/1/left"
    assert Plan().seconds == 0
