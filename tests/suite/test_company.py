"""Cases with faults own what they disturb; what fails in company is repeated alone."""

from typing import Any

import pytest

from tests.mutants.change import setting
from tests.suite.cases import case
from x402sim import TESTNET, World
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.protocol.crypto import Address
from x402sim.report.results import Outcome, Result
from x402sim.suite.service.check import Check
from x402sim.suite.service.control_api import SETTLE
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.expect import expect
from x402sim.suite.service.local import judge
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.target import Indexer, Target
from x402sim.suite.verdict import Skipped
from x402sim.world.transport.faults import Fault

OURS = World(network=TESTNET, seed=1)


def judged(*checks: Check, has_clock: bool = False) -> dict[str, Result]:
    results = judge(OURS, checks=[*checks], has_clock=has_clock)
    return {each.id.removeprefix("spec/"): each for each in results}


# --- whose faults there are ------------------------------------------------------------------


def test_faults_that_strike_all_come_when_others_have_waited_and_restarts_come_last() -> None:
    written: list[str] = []

    def acts(name: str, clause: str, **how: Any) -> Check:
        async def run(probe: Probe) -> None:
            written.append(name)
            if how.get("waits"):
                await probe.wait(how["waits"](probe.setting))
                written.append(f"{name} has waited")
            if "restart" in how.get("needs", ""):
                await probe.restart()

        run.__name__ = name.replace(" ", "_")
        return case(clause, run, **how)

    waits, longer = {"waits": lambda _: 30}, {"waits": lambda _: 40}
    judged(
        acts("a fault", "2.1/amount", needs="world", disturbs=True),
        acts("a refund in trouble", "2.1/asset", needs="world", disturbs=True, **longer),
        acts("a refund", "2.1/network", needs="world", **waits),
        acts("a trace for the restart", "2.1/pay-to", needs="restart", disturbs=True),
        acts("a payment", "2.1/resource"),
        acts("what outlives a restart", "2.1/scheme", needs="restart"),
    )
    assert written == [
        "what outlives a restart", "a refund", "a refund in trouble", "a payment",
        "a refund has waited", "a fault", "a refund in trouble has waited",
        "a trace for the restart",
    ]  # fmt: skip


def test_what_fails_beside_a_refund_in_trouble_only_is_judged_once_more_in_quiet() -> None:
    """So no verdict is changed by these."""

    async def waits(probe: Probe) -> None:
        await probe.wait(1)

    trouble = case("2.1/asset", waits, needs="world", disturbs=True, waits=lambda _: 1)
    for answers, outcome in (((2, 1), Outcome.PASSED), ((2, 3), Outcome.FAILED)):
        fails, left = moody("2.1/amount", *answers)
        assert (judged(fails, trouble)["2.1/amount"].outcome, left) == (outcome, [])


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


# --- what fails in company -------------------------------------------------------------------


def moody(clause: str, *answers: int, **how: Any) -> tuple[Check, list[int]]:
    """Return a case that sees these answers, one a run, where it wants 1; and those it has not seen."""
    left = [*answers]

    async def looks(probe: Probe) -> None:
        await probe.wait(1)
        expect("the answer", left.pop(0), 1)

    return case(clause, looks, waits=lambda _: 1, needs="world", **how), left


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
    reverting = [
        each for each in all_checks() if "transaction" in each.title and "revert" in each.title
    ]
    results = judged(*reverting).values()
    assert {each.outcome: each.reason for each in results} == {Outcome.PASSED: ""}
    assert minted == [1, 2]


def test_what_fails_in_company_and_holds_alone_is_inconclusive_and_says_with_whom() -> None:
    fails, left = moody("2.1/amount", 2, 1)
    result = judged(fails, case("2.1/asset"))["2.1/amount"]
    assert (result.outcome, left) == (Outcome.INCONCLUSIVE, [])
    assert result.reason == (
        "it failed beside spec/2.1/asset (expected the answer: 1, got 2); repeated alone, it holds"
    )


def test_what_fails_alone_too_has_failed() -> None:
    fails, left = moody("2.1/amount", 2, 3)
    result = judged(fails, case("2.1/asset"))["2.1/amount"]
    assert (result.outcome, result.actual, left) == (Outcome.FAILED, "3", [])


def test_an_id_that_was_alone_is_not_repeated() -> None:
    fails, left = moody("2.1/amount", 2, 1)
    assert judged(fails, case("2.1/amount"))["2.1/amount"].outcome is Outcome.FAILED
    assert left == [1]


def test_what_cannot_be_judged_alone_is_inconclusive() -> None:
    runs: list[int] = []

    async def looks(probe: Probe) -> None:
        await probe.wait(1)
        runs.append(1)
        if len(runs) > 1:
            raise Skipped("nothing there")
        expect("the answer", 2, 1)

    fails = case("2.1/amount", looks, waits=lambda _: 1, needs="world")
    result = judged(fails, case("2.1/asset"))["2.1/amount"]
    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.reason.endswith("; alone, it was not judged: nothing there")


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
        expect("the answer", len(runs), 2)

    fails = case("2.1/amount", restarts, needs="world, restart")
    (result,) = [
        each
        for each in judge(OURS, checks=[fails, breaks], has_clock=False, mutate=worlds.append)
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
    recipe = setting(indexer_interval_s=interval_s)(OURS)
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
