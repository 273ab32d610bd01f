"""Checks that wait run beside the others, one acts at a time, and one restart serves all."""

import asyncio
import sys
from typing import Any

import httpx
import pytest

from tests.suite.cases import case
from x402sim import World
from x402sim.report.results import Outcome, Result
from x402sim.suite.service.check import Check, check
from x402sim.suite.service.local import judge
from x402sim.suite.service.probe import WORK_S, Probe
from x402sim.suite.service.scheduler import RestartFailed, Scheduler, restarting
from x402sim.suite.verdict import CheckFailed, Skipped

OURS = World(seed=1)
MINUTES_S = 300


def diary(has_clock: bool, **options: Any) -> tuple[list[str], list[Result]]:
    """Run a check that waits before two that do not; return what was written, and the results."""
    written: list[str] = []

    @check(
        "2.1/amount",
        title="It waits.",
        waits=lambda setting: MINUTES_S,
    )
    async def waits(probe: Probe) -> None:
        begun_s = probe.clock.now()
        written.append("it begins")
        await probe.wait(MINUTES_S)
        took_s = probe.clock.now() - begun_s
        assert MINUTES_S <= took_s < MINUTES_S + 1
        written.append("it goes on")

    @check(
        "2.1/asset",
        title="It acts, and takes its time.",
    )
    async def acts(probe: Probe) -> None:
        written.append("another begins")
        await probe.clock.sleep(0.5)
        written.append("another ends")

    results = judge(OURS, checks=[waits, acts], has_clock=has_clock, **options)
    return written, results


def test_where_no_clock_turns_a_check_that_waits_runs_beside_the_others() -> None:
    written, results = diary(has_clock=False)
    assert written == ["it begins", "another begins", "another ends", "it goes on"]
    assert [result.id for result in results] == ["spec/2.1/asset", "spec/2.1/amount"]
    assert {result.outcome for result in results} == {Outcome.PASSED}


def test_where_the_clock_turns_checks_run_one_after_the_other() -> None:
    written, _ = diary(has_clock=True)
    assert written == ["it begins", "it goes on", "another begins", "another ends"]


def test_minutes_are_waited_for_only_on_demand() -> None:
    written, results = diary(has_clock=False, patient=False)
    assert written == ["another begins", "another ends"]
    (skipped,) = [each for each in results if each.outcome is Outcome.SKIPPED]
    assert skipped.reason == "it waits for 300 s: give --patient"
    assert diary(has_clock=True, patient=False)[0] == diary(has_clock=True)[0]


def test_only_one_check_acts_at_a_time() -> None:
    acting: list[str] = []

    def waiter(clause: str) -> Check:
        @check(
            clause,
            title="It waits, and acts alone in between.",
            waits=lambda setting: 5,
        )
        async def waits(probe: Probe) -> None:
            for _ in range(3):
                assert not acting
                acting.append(clause)
                await probe.clock.sleep(0.7)
                acting.remove(clause)
                await probe.wait(1)

        return waits

    results = judge(OURS, checks=[waiter("2.1/amount"), waiter("2.1/asset")], has_clock=False)
    assert [each.reason for each in results] == ["", ""]


def test_one_check_acts_first_and_another_just_before_the_restart() -> None:
    written: list[str] = []

    @check(
        "2.1/amount",
        title="It lets another one act first.",
        waits=lambda _: 5,
    )
    async def second(probe: Probe) -> None:
        await probe.setting.scheduler.wait_for_the_first()
        written.append("second")
        await probe.wait(5)
        written.append("waited")

    @check(
        "2.1/asset",
        title="It acts first.",
        waits=lambda _: 5,
    )
    async def first(probe: Probe) -> None:
        async with probe.setting.scheduler.first():
            await probe.wait(1)
            written.append("first")

    @check(
        "2.1/network",
        title="It prepares when all that wait are over.",
        needs="restart",
    )
    async def last(probe: Probe) -> None:
        await probe.setting.scheduler.wait_for_the_restart()
        written.append("prepared")
        await probe.restart()

    results = judge(OURS, checks=[second, last, first], has_clock=False)
    assert [each.reason for each in results] == ["", "", ""]
    assert written == ["first", "second", "waited", "prepared"]


def test_something_is_waited_for_no_longer_than_it_takes() -> None:
    took: list[float] = []

    @check(
        "2.1/amount",
        title="It waits until four seconds are over, and for what never comes.",
        waits=lambda setting: 10,
    )
    async def waits(probe: Probe) -> None:
        begun_s = probe.clock.now()

        async def four_seconds_later() -> bool:
            return probe.clock.now() >= begun_s + 4

        async def never() -> bool:
            return False

        assert await probe.eventually(four_seconds_later, 10)
        took.append(probe.clock.now() - begun_s)
        assert not await probe.eventually(never, 10)
        took.append(probe.clock.now() - begun_s)

    for has_clock in (True, False):
        (result,) = judge(OURS, checks=[waits], has_clock=has_clock)
        assert result.reason == ""
    assert [round(seconds) for seconds in took] == [4, 4 + 10 + WORK_S, 4, 14]


# --- the restart ---------------------------------------------------------------------


def prepared(clause: str, log: list[str]) -> Check:
    @check(
        clause,
        title="It prepares, restarts the target, and looks.",
        needs="restart",
    )
    async def prepares(probe: Probe) -> None:
        log.append("prepared")
        await probe.restart()
        log.append("looked")

    return prepares


def test_one_restart_serves_all_when_the_others_are_over() -> None:
    log: list[str] = []

    never_ready = case("2.1/network", ends=Skipped("nothing to see"), needs="restart")

    @check(
        "2.1/pay-to",
        title="It waits, and is over before the restart.",
        waits=lambda setting: 20,
    )
    async def waits(probe: Probe) -> None:
        await probe.wait(20)
        log.append("waited")

    checks = [prepared("2.1/amount", log), prepared("2.1/asset", log), never_ready, waits]
    worlds: list[Any] = []
    results = judge(OURS, checks=checks, has_clock=False, mutate=worlds.append)
    assert log == ["prepared", "prepared", "waited", "looked", "looked"]
    assert worlds[0].process.crashes == 1
    assert [each.outcome for each in results].count(Outcome.PASSED) == 3


def test_where_the_clock_turns_each_check_restarts_the_target_itself() -> None:
    log: list[str] = []
    worlds: list[Any] = []
    judge(OURS, checks=[prepared("2.1/amount", log), prepared("2.1/asset", log)],
          mutate=worlds.append)  # fmt: skip
    assert log == ["prepared", "looked"] * 2
    assert worlds[0].process.crashes == 2


def test_a_restart_that_fails_fails_for_all_and_is_tried_once() -> None:
    tries: list[int] = []

    async def restart() -> None:
        tries.append(1)
        raise RestartFailed("no such service")

    async def take_part(scheduler: Scheduler) -> None:
        async with scheduler.turn:
            with pytest.raises(RestartFailed, match="no such service"):
                await scheduler.restart(restart)

    async def main() -> None:
        scheduler = Scheduler()
        scheduler.share()
        await asyncio.gather(take_part(scheduler), take_part(scheduler), scheduler.when_ready(2))

    asyncio.run(main())
    assert tries == [1]


def restart_by(command: str, answers: bool = True) -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        if not answers:
            raise httpx.ConnectError("nobody is there", request=request)
        return httpx.Response(404)

    async def main() -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(serve), base_url="http://target")
        await restarting(command, http, 1.0)()

    asyncio.run(main())


def test_the_command_of_restart_is_run_and_an_answer_awaited(tmp_path: Any) -> None:
    file = tmp_path / "restarted"
    restart_by(f"{sys.executable} -c 'import pathlib; pathlib.Path(\"{file}\").touch()'")
    assert file.exists()


@pytest.mark.parametrize(
    ("command", "answers", "said"),
    [
        ("exit 3", True, "`exit 3` ended with exit code 3"),
        ("sleep 9", True, "did not end within 1 s; let it start the target in the background"),
        ("true", False, "did not answer within 1 s after `true`: ConnectError nobody is there"),
    ],
)  # fmt: skip
def test_a_restart_that_fails_says_why(command: str, answers: bool, said: str) -> None:
    with pytest.raises(RestartFailed, match=said):
        restart_by(command, answers)


# --- the cases of an id --------------------------------------------------------------


FAILS = CheckFailed("", "one", "two")
MUCH = case("2.1/amount", title="It needs much to fail.", ends=FAILS, needs="funds, world")
LONG = case("2.1/amount", title="It says much.", ends=CheckFailed("", "one", "two " * 40))
SHORT = case("2.1/amount", title="It says little.", ends=FAILS)
HOLDS = case("2.1/amount", title="It holds.")
SKIPPED = case("2.1/amount", ends=Skipped("no need"))


def test_all_failing_cases_are_shown_the_clearest_first() -> None:
    checks = [MUCH, LONG, HOLDS, SHORT]
    (result,) = judge(OURS, checks=checks)
    assert [each.title for each in result.cases] == [
        "It says little.", "It says much.", "It needs much to fail.", "It holds.",
    ]  # fmt: skip
    assert (result.title, result.actual) == ("It says little.", "two")
    assert result.in_part == ""


def test_an_id_says_how_many_of_its_cases_were_judged() -> None:
    (result,) = judge(OURS, checks=[HOLDS, SKIPPED, HOLDS])
    assert (result.outcome, result.in_part) == (Outcome.PASSED, "2 of 3 cases")
    assert judge(OURS, checks=[SKIPPED])[0].in_part == ""
