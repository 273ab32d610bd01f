"""The checks pass our own service, however it is judged; the defects they see are in `tests/mutants`."""

import random
import tomllib
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.mutants.changes import all_of, overriding, setting
from x402sim import World
from x402sim.spec.clauses import CLAUSES
from x402sim.story.stages import in_process
from x402sim.suite.case import matching
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service.case import IDS_BEGIN, ServiceCase
from x402sim.suite.service.control_api import ControlApi
from x402sim.suite.service.engine import all_checks, folder, run
from x402sim.suite.service.local import judge
from x402sim.suite.service.options import Options
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import Indexer, load
from x402sim.world.loop import run_virtual

OURS = World(seed=2)
OWN = load(folder("service") / "targets" / "x402sim.toml")


def checks(*prefixes: str) -> list[ServiceCase]:
    every = all_checks()
    return [check for prefix in prefixes for check in matching(every, prefix, IDS_BEGIN)]


def odd(results: list[Result]) -> dict[str, tuple[Outcome, str]]:
    """Return what neither passed nor was observed, and why."""
    return {
        each.id: (each.outcome, f"{each.reason} {each.expected} {each.actual}")
        for each in results
        if each.outcome not in (Outcome.PASSED, Outcome.OBSERVED)
    }


def test_every_clause_has_a_check_or_a_reason() -> None:
    reasons = tomllib.loads((folder("service") / "not_checkable.toml").read_text("utf-8"))
    have = {check.id.split("/", 1)[1] for check in all_checks()}
    assert {clause.id for clause in CLAUSES} <= have | set(reasons)
    assert not have & set(reasons)


# --- our own service passes --------------------------------------------------------------


def test_our_own_service_passes_and_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a check's faults strike its own payments only: a refund may be on its way meanwhile.

    With other decisions, and slow, it is among the honest services of `tests/mutants`.
    """
    post, faults = ControlApi.post, []

    async def noted(self: ControlApi, path: str, body: Any = None) -> Any:
        if path == "faults" and body["victim"] == "facilitator":
            faults.append(body)
        return await post(self, path, body)

    monkeypatch.setattr(ControlApi, "post", noted)
    assert odd(judge(OURS, target=OWN)) == {}
    assert len(faults) > 50
    of_all = [fault for fault in faults if not fault.get("contains")]
    assert {fault["path"] for fault in of_all} == {"/supported"}  # no payment goes there


def test_without_a_target_file_only_unreadable_records_are_skipped() -> None:
    ids = ("spec/2.4/record", "spec/2.4/block-null", "spec/3/indexed-status")
    found = odd(judge(OURS, checks=checks("spec/2.4", "spec/3/indexed", "spec/2.2")))
    assert {each: outcome for each, (outcome, _) in found.items()} == dict.fromkeys(
        ids, Outcome.SKIPPED
    )


CONTROLS_BASE = 2 * (10_000 + 20_000)
"""What the controls cost, before and after the checks that depend on them."""


@pytest.mark.thorough
def test_without_a_world_the_other_checks_are_skipped() -> None:
    """With a payer's own money, the budget is what the checks declare."""
    ours = [check for check in all_checks() if check.section[0] in "56789"]
    cases = [replace(each, id=f"{each.id} {n}") for n, each in enumerate(ours)]
    declared = sum(10_000 * each.pays + round(float(each.deposits) * 1_000_000) for each in ours)

    async def main() -> list[Result]:
        async with in_process(OURS) as stage:
            assert stage.parts is not None
            payer, budget_base = stage.parts.accounts.funded[0], declared + CONTROLS_BASE
            setting = Setting(
                options=Options(payer=payer, budget_base=budget_base),
                http=stage.client("suite"), clock=stage.clock, rng=stage.rng,
            )  # fmt: skip
            return [each async for each in run(setting, cases)]

    results = run_virtual(main)
    found = odd(results)
    assert {outcome for outcome, _ in found.values()} == {Outcome.SKIPPED}
    assert not [why for _, why in found.values() if "budget" in why]
    assert len(results) - len(found) >= 45


def test_the_same_seed_gives_the_same_results() -> None:
    def verdicts() -> Any:
        every = judge(OURS, target=OWN, checks=checks("spec/2.1", "silent/2"))
        without_seconds = msgspec.to_builtins(every)
        for each in (*without_seconds, *(case for it in without_seconds for case in it["cases"])):
            del each["seconds"]
        return without_seconds

    assert verdicts() == verdicts()


# --- what is seen beside defects ----------------------------------------------------------


def test_a_changed_description_is_observed() -> None:
    without = (("settlement", "2.1/description"),)
    (found,) = judge(replace(OURS, without=without), checks=checks("silent/2.1/changed"))
    assert (found.outcome, found.actual) == (Outcome.OBSERVED, "settled")


def test_random_ids_pass() -> None:
    case: Any = next(c for c in checks("kit/2.2/payment-id") if "comes twice" in c.title)
    its = case.run.__globals__
    for seed in range(100):
        luck = random.Random(seed)
        short = [f"pay_{''.join(luck.choices(its['LETTERS'], k=11))}" for _ in range(its["SAMPLE"])]
        assert its["_bits_that_vary"](short) > its["GUESSABLE_BITS"]


def test_queries_that_are_far_apart_may_be_of_one_run_of_the_indexer() -> None:
    """A run that takes long, on a busy machine or with a slow explorer, is still one."""

    async def slowly(it: Any, tx_hash: str) -> Any:
        await it.service.clock.sleep(1.2)
        return await it.inner.transaction(tx_hash)

    often = all_of(setting(indexer_interval_s=8), overriding("explorer", transaction=slowly))
    target = msgspec.structs.replace(OWN, indexer=Indexer(interval_s=8))
    assert odd(judge(often(OURS), target=target, checks=checks("8/indexer-interval"))) == {}
