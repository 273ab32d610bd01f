"""Checks that wait run beside the others; what fails beside others is repeated alone; one restart serves all."""

import asyncio
import sys
from typing import Any

import httpx
import pytest

from tests.mutants.changes import setting
from tests.suite.cases import case
from x402sim import TESTNET, World
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.protocol.crypto import Address
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service import engine, expect
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.control_api import SETTLE
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge
from x402sim.suite.service.probe import WORK_S, Probe
from x402sim.suite.service.setting import RestartFailed, Scheduler, restarting
from x402sim.suite.service.target import Indexer, Target
from x402sim.suite.verdict import CheckFailed, Skipped
from x402sim.world.faults import Fault

OURS = World(seed=1)


def acting(
    written: list[str], name: str, clause: str, *steps: float | str, **how: Any
) -> ServiceCase:
    """Return a case that writes its name; waits for so many seconds, or restarts; and writes each."""
    waits_s = [each for each in steps if not isinstance(each, str)]

    async def run(probe: Probe) -> None:
        written.append(name)
        for step in steps:
            begun_s = probe.clock.now()
            if isinstance(step, str):
                await probe.restart()
            else:
                await probe.wait(step)
                assert step <= probe.clock.now() - begun_s < step + 1
            written.append(f"{name}, {step}")

    return case(clause, run, **({"waits": lambda _: sum(waits_s)} if waits_s else {}), **how)


def diary(has_clock: bool, **options: Any) -> tuple[list[str], list[Result]]:
    """Run a check that waits before one that does not; return what was written, and the results."""
    written: list[str] = []
    checks = [acting(written, "it", "2.1/amount", 300), acting(written, "another", "2.1/asset")]
    return written, judge(OURS, checks=checks, has_clock=has_clock, **options)


def test_where_no_clock_turns_a_check_that_waits_runs_beside_the_others() -> None:
    written, results = diary(has_clock=False)
    assert written == ["it", "another", "it, 300"]
    assert [result.id for result in results] == ["spec/2.1/asset", "spec/2.1/amount"]
    assert {result.outcome for result in results} == {Outcome.PASSED}


def test_where_the_clock_turns_checks_run_one_after_the_other() -> None:
    written, _ = diary(has_clock=True)
    assert written == ["it", "it, 300", "another"]


def test_minutes_are_waited_for_only_on_demand() -> None:
    written, results = diary(has_clock=False, patient=False)
    assert written == ["another"]
    (skipped,) = [each for each in results if each.outcome is Outcome.SKIPPED]
    assert skipped.reason == "it waits for 300 s: give --patient"
    assert diary(has_clock=True, patient=False)[0] == diary(has_clock=True)[0]


def test_only_one_check_acts_at_a_time() -> None:
    acting: list[str] = []

    def waiter(clause: str) -> ServiceCase:
        async def waits(probe: Probe) -> None:
            for _ in range(3):
                assert not acting
                acting.append(clause)
                await probe.clock.sleep(0.7)
                acting.remove(clause)
                await probe.wait(1)

        return case(clause, waits, waits=lambda setting: 5)

    results = judge(OURS, checks=[waiter("2.1/amount"), waiter("2.1/asset")], has_clock=False)
    assert [each.reason for each in results] == ["", ""]


def test_one_check_acts_first_and_another_just_before_the_restart() -> None:
    written: list[str] = []

    async def second(probe: Probe) -> None:
        await probe.setting.scheduler.wait_for_the_first()
        written.append("second")
        await probe.wait(5)
        written.append("waited")

    second = case("2.1/amount", second, waits=lambda _: 5)

    async def first(probe: Probe) -> None:
        async with probe.setting.scheduler.first():
            await probe.wait(1)
            written.append("first")

    first = case("2.1/asset", first, waits=lambda _: 5)

    async def last(probe: Probe) -> None:
        await probe.setting.scheduler.wait_for_the_restart()
        written.append("prepared")
        await probe.restart()

    last = case("2.1/network", last, needs="restart")

    results = judge(OURS, checks=[second, last, first], has_clock=False)
    assert [each.reason for each in results] == ["", "", ""]
    assert written == ["first", "second", "waited", "prepared"]


def test_something_is_waited_for_no_longer_than_it_takes() -> None:
    took: list[float] = []

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

    waits = case("2.1/amount", waits, waits=lambda setting: 10)

    for has_clock in (True, False):
        (result,) = judge(OURS, checks=[waits], has_clock=has_clock)
        assert result.reason == ""
    assert [round(seconds) for seconds in took] == [4, 4 + 10 + WORK_S, 4, 14]


# --- the restart ---------------------------------------------------------------------


def restarting_both(log: list[str]) -> list[ServiceCase]:
    clauses = {"a": "2.1/amount", "b": "2.1/asset"}
    return [acting(log, name, it, "restart", needs="restart") for name, it in clauses.items()]


def test_one_restart_serves_all_when_the_others_are_over() -> None:
    log: list[str] = []
    never_ready = case("2.1/network", ends=Skipped("nothing to see"), needs="restart")
    checks = [*restarting_both(log), never_ready, acting(log, "it", "2.1/pay-to", 20)]
    worlds: list[Any] = []
    results = judge(OURS, checks=checks, has_clock=False, mutate=worlds.append)
    assert log == ["a", "b", "it", "it, 20", "a, restart", "b, restart"]
    assert worlds[0].process.crashes == 1
    assert [each.outcome for each in results].count(Outcome.PASSED) == 3


def test_where_the_clock_turns_each_check_restarts_the_target_itself() -> None:
    log: list[str] = []
    worlds: list[Any] = []
    judge(OURS, checks=restarting_both(log), mutate=worlds.append)
    assert log == ["a", "a, restart", "b", "b, restart"]
    assert worlds[0].process.crashes == 2


def test_a_case_that_ends_before_the_restart_holds_up_no_other() -> None:
    log: list[str] = []
    never_ready = case("2.1/network", ends=Skipped("nothing to see"), needs="restart")
    checks = [never_ready, acting(log, "it", "2.1/amount", "restart", needs="restart")]
    judge(OURS, checks=checks, has_clock=False)
    assert log == ["it", "it, restart"]


def test_a_restart_of_a_case_with_faults_alone_takes_place() -> None:
    log: list[str] = []

    async def restarts(probe: Probe) -> None:
        await probe.restart()
        log.append("looked")

    alone = case("2.1/amount", restarts, needs="world, restart", disturbs=True)
    assert judge(OURS, checks=[alone], has_clock=False)[0].reason == ""
    assert log == ["looked"]


def test_what_prepares_for_the_restart_has_prepared_before_a_fault_strikes_all() -> None:
    log: list[str] = []

    async def prepares(probe: Probe) -> None:
        await probe.wait(20)
        log.append("prepared")
        await probe.restart()

    async def breaks(probe: Probe) -> None:
        log.append("a fault")

    checks = [
        case("2.1/asset", breaks, needs="world", disturbs=True),
        case("2.1/amount", prepares, needs="restart"),
    ]
    judge(OURS, checks=checks, has_clock=False)
    assert log == ["prepared", "a fault"]


def test_a_case_can_wait_for_all_that_do_not_wait() -> None:
    log: list[str] = []

    async def waits(probe: Probe) -> None:
        await probe.setting.scheduler.wait_for_the_rest()
        log.append("the rest is over")

    async def acts(probe: Probe) -> None:
        log.append("another acts")

    checks = [case("2.1/amount", waits, waits=lambda _: 5), case("2.1/asset", acts)]
    judge(OURS, checks=checks, has_clock=False)
    assert log == ["another acts", "the rest is over"]


def test_what_is_waited_for_is_told_with_the_longest_wait() -> None:
    told: list[str] = []

    async def waits(probe: Probe) -> None:
        probe.setting.tell = told.append
        await probe.wait(5)

    def waiter(clause: str, seconds: int, **more: Any) -> ServiceCase:
        return case(clause, waits, waits=lambda _: seconds, **more)

    is_over = case("2.1/pay-to", waits=lambda _: 9)
    trouble = {"needs": "world", "disturbs": True}
    checks = [waiter("2.1/amount", 5), waiter("2.1/asset", 7), is_over, case("2.1/network"),
              waiter("2.1/scheme", 50, **trouble)]  # fmt: skip
    judge(OURS, checks=checks, has_clock=False)
    assert told[0] == "waiting for spec/2.1/amount, spec/2.1/asset, for up to 7 s"
    told.clear()

    async def for_long(probe: Probe) -> None:
        await waits(probe)
        await probe.wait(45)

    last = case("2.1/scheme", for_long, waits=lambda _: 50, **trouble)
    judge(OURS, checks=[waiter("2.1/amount", 5), last], has_clock=False)
    assert told[-1] == "waiting for spec/2.1/scheme, for up to 50 s"


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
        ("true", False, "did not answer within 1 s after `true`: nobody answers"),
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


IN_COMPANY = World(network=TESTNET, seed=1)


def judged(*checks: ServiceCase, has_clock: bool = False) -> dict[str, Result]:
    results = judge(IN_COMPANY, checks=[*checks], has_clock=has_clock)
    return {each.id.removeprefix("spec/"): each for each in results}


# --- whose faults there are ------------------------------------------------------------------


def test_faults_that_strike_all_come_when_others_have_waited_and_restarts_come_last() -> None:
    written: list[str] = []

    disturbs = {"needs": "world", "disturbs": True}
    judged(
        acting(written, "fault", "2.1/amount", **disturbs),
        acting(written, "refund in trouble", "2.1/asset", 40, **disturbs),
        acting(written, "refund", "2.1/network", 30, needs="world"),
        acting(written, "trace", "2.1/pay-to", "restart", needs="restart", disturbs=True),
        acting(written, "payment", "2.1/resource"),
        acting(written, "record", "2.1/scheme", "restart", needs="restart"),
    )
    assert written == [
        "record", "refund", "refund in trouble", "payment", "refund, 30", "fault",
        "refund in trouble, 40", "trace", "record, restart", "trace, restart",
    ]  # fmt: skip


def test_what_fails_beside_a_refund_in_trouble_only_is_judged_once_more_in_quiet() -> None:
    """So no verdict is changed by these."""

    async def waits(probe: Probe) -> None:
        await probe.wait(1)

    trouble = case("2.1/asset", waits, needs="world", disturbs=True, waits=lambda _: 1)
    for answers, outcome in (((2, 1), Outcome.PASSED), ((2, 3), Outcome.FAILED)):
        fails, left = moody("2.1/amount", *answers)
        assert (judged(fails, trouble)["2.1/amount"].outcome, left) == (outcome, [])
    seen = [2, 1]

    async def acts(probe: Probe) -> None:  # it ends while the other waits for the second time
        expect.equal("the answer", seen.pop(0), 1)

    fails, left = moody("2.1/amount", 2, 1)
    found = judged(case("2.1/amount", acts), fails, trouble)
    assert {each.outcome for each in found.values()} == {Outcome.PASSED}
    assert left == seen == []


@pytest.mark.parametrize("how", [{"needs": "world, restart"}, {"disturbs": True}])
def test_what_restarts_or_is_in_trouble_itself_is_not_judged_once_more_in_quiet(
    how: dict[str, Any],
) -> None:
    async def waits(probe: Probe) -> None:
        await probe.wait(9)

    trouble = case("2.1/asset", waits, needs="world", disturbs=True, waits=lambda _: 9)
    fails, left = moody("2.1/amount", 2, 1, **how)
    found = judged(fails, trouble)["2.1/amount"]
    assert (found.outcome, left) == (Outcome.INCONCLUSIVE, [])
    assert found.reason.startswith("it failed beside spec/2.1/asset ")


def test_what_fails_after_a_fault_that_strikes_all_is_repeated_alone_and_once() -> None:
    fails, left = moody("2.1/amount", 2, 3, disturbs=True, waits=None)
    assert judged(breaks, fails)["2.1/amount"].outcome is Outcome.FAILED
    assert left == []


def test_what_fails_beside_a_fault_of_its_own_id_is_repeated() -> None:
    fails, left = moody("2.1/asset", 2, 1, disturbs=True, waits=None)
    assert judged(breaks, fails)["2.1/asset"].outcome is Outcome.INCONCLUSIVE
    assert left == []


def test_where_the_clock_turns_the_first_failure_counts() -> None:
    fails, left = moody("2.1/amount", 2, 1)
    assert judged(breaks, fails, has_clock=True)["2.1/amount"].outcome is Outcome.FAILED
    assert left == [1]


@pytest.mark.parametrize(
    ("others", "trouble_ends", "times"),
    [
        ("", None, 0),
        ("trouble", None, 1),
        ("restart", None, 1),
        ("trouble restart", None, 1),
        ("trouble restart", Skipped("no refund"), 2),
    ],
)
def test_after_faults_the_service_recovers_before_refunds_or_a_restart_are_waited_for(
    others: str, trouble_ends: Exception | None, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recoveries: list[int] = []

    async def recovers(setting: Any) -> None:
        recoveries.append(1)
        setting.scheduler.overlaps.recovered()

    async def waits(probe: Probe) -> None:
        await probe.wait(1)

    monkeypatch.setattr(engine, "recover", recovers)
    cases = {
        "trouble": case("2.1/network", waits, needs="world", disturbs=True, waits=lambda _: 1,
                        ends=trouble_ends),
        "restart": case("2.1/scheme", needs="restart"),
    }  # fmt: skip
    judged(breaks, *(cases[each] for each in others.split()))
    assert len(recoveries) == times


def test_a_case_that_disturbs_says_so() -> None:
    async def breaks(probe: Probe) -> None:
        await probe.world.fault(SETTLE(does="refuse"))

    async def stops_the_chain(probe: Probe) -> None:
        await probe.world.post("mining", {"automine": False})

    async def lies(probe: Probe) -> None:
        await probe.world.fault(Fault(victim="explorer", does="refuse"))

    for run, outcome in (
        (breaks, "inconclusive"),
        (stops_the_chain, "inconclusive"),
        (lies, "passed"),
    ):
        (result,) = judged(case("2.1/amount", run, needs="world")).values()
        assert result.outcome == outcome
        assert ("says so: disturbs=True" in result.reason) is (outcome != "passed")


# --- what fails beside others -------------------------------------------------------------------


def moody(clause: str, *answers: int, **how: Any) -> tuple[ServiceCase, list[int]]:
    """Return a case that sees these answers, one a run, where it wants 1; and those it has not seen."""
    left = [*answers]

    async def looks(probe: Probe) -> None:
        await probe.wait(1)
        expect.equal("the answer", left.pop(0), 1)

    return case(clause, looks, **{"waits": lambda _: 1, "needs": "world", **how}), left


def test_a_revert_is_of_the_payer_though_another_transaction_is_mined_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a refund of a session that a check beside it waits for."""
    force_revert, another = LedgerChain.force_revert, Address(b"\x77" * 20)
    minted: list[int] = []

    async def and_another(chain: LedgerChain, calls: int, account: Address | None = None) -> None:
        await force_revert(chain, calls, account)
        if calls:
            await chain.fund(another, 1)
            minted.append(await chain.balance(another))

    monkeypatch.setattr(LedgerChain, "force_revert", and_another)
    names = ("what_was_not_settled_grants_nothing", "without_money_no_record_is_settled")
    reverting = [each for each in all_checks() if each.name.endswith(names)]
    results = judged(*reverting).values()
    assert {each.outcome: each.reason for each in results} == {Outcome.PASSED: ""}
    assert minted == [1, 2]


def test_what_fails_beside_others_and_holds_alone_is_inconclusive_and_says_with_whom() -> None:
    fails, left = moody("2.1/amount", 2, 1)
    result = judged(fails, case("2.1/asset"))["2.1/amount"]
    assert (result.outcome, left) == (Outcome.INCONCLUSIVE, [])
    assert result.reason == (
        "it failed beside spec/2.1/asset (expected the answer: 1, got 2); played again alone, it holds"
    )


@pytest.mark.parametrize(("others", "ends"), [(6, "2.1/scheme ("), (7, "2.1/scheme, … (")])
def test_of_the_neighbours_of_a_failure_six_are_named(others: int, ends: str) -> None:
    clauses = "2.1/asset 2.1/network 2.1/pay-to 2.1/resource 2.1/timeout 2.1/scheme 2.1/validity"
    fails, _ = moody("2.1/amount", 2, 1)
    result = judged(fails, *map(case, clauses.split()[:others]))["2.1/amount"]
    assert f", spec/{ends}expected" in result.reason


def test_the_service_recovers_before_a_failure_is_judged_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recoveries, said = list[int](), list[str]()

    async def recovers(setting: Any) -> None:
        recoveries.append(1)
        setting.scheduler.overlaps.recovered()

    async def waits(probe: Probe) -> None:
        probe.setting.tell = said.append
        await probe.wait(1)

    monkeypatch.setattr(engine, "recover", recovers)
    trouble = case("2.1/asset", waits, needs="world", disturbs=True, waits=lambda _: 1)
    judged(moody("2.1/amount", 2, 1)[0], trouble)
    assert "judging spec/2.1/amount once more, which failed beside refunds in trouble" in said
    assert len(recoveries) == 2, "before the refund is waited for, and before the case"


def test_the_service_recovers_before_each_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    recoveries, said = list[int](), list[str]()

    async def recovers(setting: Any) -> None:
        setting.tell = said.append
        recoveries.append(1)

    monkeypatch.setattr(engine, "recover", recovers)
    fails, _ = moody("2.1/amount", 2, 1)
    judged(fails, case("2.1/asset"))
    assert len(recoveries) == 1
    assert said == ["repeating spec/2.1/amount alone, which has failed beside others"]


def test_what_fails_alone_too_has_failed() -> None:
    fails, left = moody("2.1/amount", 2, 3)
    result = judged(fails, case("2.1/asset"))["2.1/amount"]
    assert (result.outcome, result.actual, left) == (Outcome.FAILED, "3", [])


def test_an_id_that_was_alone_is_not_repeated() -> None:
    fails, left = moody("2.1/amount", 2, 1)
    assert judged(fails, case("2.1/amount"))["2.1/amount"].outcome is Outcome.FAILED
    assert left == [1]


def test_one_failure_alone_is_enough_for_an_id() -> None:
    first, left_of_first = moody("2.1/amount", 2, 2)
    second, left_of_second = moody("2.1/amount", 2, 2)
    assert judged(first, second, case("2.1/asset"))["2.1/amount"].outcome is Outcome.FAILED
    assert sorted([left_of_first, left_of_second]) == [[], [2]]


def test_a_failure_after_the_restart_is_repeated_with_a_restart_of_its_own() -> None:
    runs: list[int] = []
    worlds: list[Any] = []

    async def restarts(probe: Probe) -> None:
        await probe.restart()
        runs.append(worlds[0].process.crashes)
        expect.equal("the answer", len(runs), 2)

    fails = case("2.1/amount", restarts, needs="world, restart")
    (result,) = [
        each
        for each in judge(IN_COMPANY, checks=[fails, breaks], has_clock=False, mutate=worlds.append)
        if each.id == fails.id
    ]
    assert result.reason.startswith("it failed beside spec/2.1/asset (")
    assert runs == [1, 2]


# --- the recovery ----------------------------------------------------------------------------


async def break_something(probe: Probe) -> None:
    await probe.world.fault(SETTLE(does="refuse"))
    paid_for.append(await probe.world.queries())


paid_for: list[list[tuple[str, float]]] = []
breaks = case("2.1/asset", break_something, needs="world", disturbs=True)


def recovers(interval_s: int) -> tuple[set[str], list[str]]:
    """Break something, and let another count on the indexer; return what was asked for between,
    and what was told. The target file promises a run every 2 s."""
    told: list[str] = []

    async def pays(probe: Probe) -> None:
        probe.setting.tell = told.append
        await probe.buy()
        await probe.wait(interval_s + 10)

    async def counts(probe: Probe) -> None:
        await probe.restart()
        paid_for.append(await probe.world.queries())

    paid_for.clear()
    checks = [
        case("2.1/amount", pays, needs="funds, world", waits=lambda _: interval_s),
        breaks,
        case("2.1/network", counts, needs="world, restart"),
    ]
    recipe = setting(indexer_interval_s=interval_s)(IN_COMPANY)
    target = Target(indexer=Indexer(interval_s=2))
    results = judge(recipe, target=target, checks=checks, has_clock=False)
    assert [each.reason for each in results] == ["", "", ""]
    before, after = ({tx_hash for tx_hash, _ in asked} for asked in paid_for)
    return after - before, told


def test_after_a_fault_the_indexer_is_seen_to_run_before_another_counts_on_it() -> None:
    asked, told = recovers(2)
    assert len(asked) == 1, "the payment that the recovery has made"
    assert not any("not seen" in each for each in told)


def test_a_service_that_does_not_recover_is_told() -> None:
    asked, told = recovers(300)
    assert not asked
    assert sum("was not seen to do again" in each for each in told) == 1
