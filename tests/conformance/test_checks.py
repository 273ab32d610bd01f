"""The checks pass our own service, however it is judged, and detect what no mutant of the jury does.

A defect that `tests/mutants` has is not here again.
"""

import itertools
import random
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from x402sim import TESTNET
from x402sim.protocol.refusals import Finding
from x402sim.report.results import Outcome, Result
from x402sim.service import grant, payments, reconcile
from x402sim.service.issue import Issuer
from x402sim.service.store.payment_records import PaymentRecords
from x402sim.service.store.session_budgets import SessionBudget, SessionBudgets
from x402sim.spec.clauses import CLAUSES
from x402sim.suite.check import Check
from x402sim.suite.control_api import ControlApi
from x402sim.suite.engine import all_checks, folder, matching, run
from x402sim.suite.local import judge
from x402sim.suite.setting import Options, Setting
from x402sim.suite.target import load
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.loop import run_virtual
from x402sim.world.stages.in_process import InProcess

OURS = Recipe(network=TESTNET, seed=2)
OWN = load(folder() / "targets" / "x402sim.toml")


def checks(*prefixes: str) -> list[Check]:
    every = all_checks()
    return [check for prefix in prefixes for check in matching(every, prefix)]


def failed(*prefixes: str, **recipe: Any) -> set[str]:
    results = judge(replace(OURS, **recipe), target=OWN, checks=checks(*prefixes))
    return {each.id for each in results if each.outcome is Outcome.FAILED}


def odd(results: list[Result]) -> dict[str, tuple[Outcome, str]]:
    """Return what neither passed nor was observed, and why."""
    return {
        each.id: (each.outcome, f"{each.reason} {each.expected} {each.actual}")
        for each in results
        if each.outcome not in (Outcome.PASSED, Outcome.OBSERVED)
    }


def test_every_clause_has_a_check_or_a_reason() -> None:
    reasons = tomllib.loads((folder() / "not_checkable.toml").read_text("utf-8"))
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
    assert [fault for fault in faults if not fault.get("contains")] == []


def test_without_a_target_file_only_unreadable_records_are_skipped() -> None:
    ids = ("spec/2.4/record", "spec/2.4/block-null", "spec/3/indexed-status")
    found = odd(judge(OURS, checks=checks("spec/2.4", "spec/3/indexed", "spec/2.2")))
    assert {each: outcome for each, (outcome, _) in found.items()} == dict.fromkeys(
        ids, Outcome.SKIPPED
    )


BASELINES_BASE = 2 * (10_000 + 20_000)
"""What the baselines cost, before and after the checks that depend on them."""


def test_without_a_world_the_other_checks_are_skipped() -> None:
    """With a payer's own money, the budget is what the checks declare."""
    ours = [check for check in all_checks() if check.section[0] in "56789"]
    cases = [replace(each, id=f"{each.id} {n}") for n, each in enumerate(ours)]
    declared = sum(10_000 * each.pays + round(float(each.deposits) * 1_000_000) for each in ours)

    async def main() -> list[Result]:
        async with InProcess().open(OURS) as stage:
            assert stage.parts is not None
            payer, budget_base = stage.parts.accounts[0], declared + BASELINES_BASE
            setting = Setting(
                options=Options(payer=payer, budget_base=budget_base),
                http=stage.client("suite"), clock=stage.clock, rng=stage.rng,
            )  # fmt: skip
            return [each async for each in run(setting, cases)]

    results = run_virtual(main)
    found = odd(results)
    assert {outcome for outcome, _ in found.values()} == {Outcome.SKIPPED}
    assert not [why for _, why in found.values() if "budget" in why]
    assert len(results) - len(found) >= 50


def test_the_same_seed_gives_the_same_results() -> None:
    def verdicts() -> Any:
        every = judge(OURS, target=OWN, checks=checks("spec/2.1", "silent/2"))
        without_seconds = msgspec.to_builtins(every)
        for each in (*without_seconds, *(case for it in without_seconds for case in it["cases"])):
            del each["seconds"]
        return without_seconds

    assert verdicts() == verdicts()


# --- defects that no mutant has ----------------------------------------------------------


def test_a_changed_description_is_observed() -> None:
    without = (("settlement", "2.1/description"),)
    (found,) = judge(replace(OURS, without=without), checks=checks("silent/2.1/changed"))
    assert (found.outcome, found.actual) == (Outcome.OBSERVED, "settled")


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: f"{1_800_000_000_000_000_000 + 987_654_321 * n}-{n}",
        lambda n: f"{random.Random(n).getrandbits(32):08x}",
    ],
    ids=["nanoseconds and a counter", "32 random bits"],
)
def test_ids_that_can_be_guessed(
    monkeypatch: pytest.MonkeyPatch, draw: Callable[[int], str]
) -> None:
    numbers = itertools.count()
    monkeypatch.setattr(Issuer, "_sealed", lambda self, terms, salt: f"pay_{draw(next(numbers))}")
    assert "kit/2.2/payment-id" in failed("kit/2.2")


def test_random_ids_pass() -> None:
    case = next(c for c in checks("kit/2.2/payment-id") if "comes twice" in c.title)
    module = sys.modules[case.run.__module__]
    for seed in range(100):
        luck = random.Random(seed)
        short = [f"pay_{''.join(luck.choices(module.LETTERS, k=11))}" for _ in range(module.SAMPLE)]
        assert module._bits_that_vary(short) > module.GUESSABLE_BITS


async def never(payment: Any) -> Finding:
    """A lost answer counts as a refusal."""
    if not payment.in_background:
        grant.revoke(payment._service, payment._listed, 0)
        payment.finding = Finding.NEVER
    return Finding.NEVER


def revoking(self: PaymentRecords, attempt: Any, tx_hash: str, block_number: int, **_: Any) -> None:
    """The indexer takes access away."""
    self._db.execute(
        "UPDATE payments SET block_number = ?, status = 'failed', is_deep = 1 WHERE attempt = ?",
        block_number, attempt,
    )  # fmt: skip


RIGHT_PAID_BY, RIGHT_CLAIM = SessionBudgets.paid_by, payments.claim
RIGHT_DEBIT = SessionBudgets.debit


def generous(self: SessionBudgets, payment_id: str) -> Any:
    """A session's budget is above its deposit."""
    self._db.execute("UPDATE sessions SET deposited = 50000000 WHERE payment_id = ?", payment_id)
    return RIGHT_PAID_BY(self, payment_id)


def eager(service: Any, attempt: Any, **more: Any) -> Any:
    """Access comes before the transfer."""
    entitlement = grant.Entitlement(attempt.payment_id, attempt.terms.resource, "", 10**14)
    service.entitlements.add(entitlement)
    return RIGHT_CLAIM(service, attempt, **more)


def alike(self: PaymentRecords, payment_id: str, resource: str) -> bool:
    """Records are compared with LIKE."""
    sql = "payment_id LIKE ? AND resource_url = ? AND status = 'settled'"
    return self._db.one(f"SELECT 1 FROM payments WHERE {sql}", payment_id, resource) is not None


def in_floats(
    self: SessionBudgets, session_id: str, amount_base: int, resource: str, now_ms: int
) -> int | None:
    """A budget is counted in floats."""
    found: SessionBudget | None = self.get(session_id)
    if found is None:
        return None
    if int(found.deposited / 1e6 / (amount_base / 1e6)) <= found.released // amount_base:
        return None
    return RIGHT_DEBIT(self, session_id, amount_base, resource, now_ms)


DEFECTS: dict[str, tuple[Any, str, Any, tuple[str, ...], set[str]]] = {
    "a lost answer is a refusal": (
        reconcile.Unresolved, "ask_chain", never, ("spec/3", "kit/3"), {"kit/3/pending-resolved"},
    ),
    "the indexer revokes access": (
        PaymentRecords, "set_block", revoking, ("spec/3/record-outlives-cache",),
        {"spec/3/record-outlives-cache"},
    ),
    "a session has more than its deposit": (
        SessionBudgets, "paid_by", generous, ("spec/3/deposit", "spec/4.4"),
        {"spec/3/deposit-makes-session"},
    ),
    "access before the transfer": (
        payments, "claim", eager, ("spec/4.1/order",), {"spec/4.1/order"},
    ),
    "records are compared with LIKE": (
        PaymentRecords, "grants", alike, ("spec/5",), {"spec/5/stored-records"},
    ),
    "a budget is counted in floats": (
        SessionBudgets, "debit", in_floats, ("spec/5",), {"spec/5/session-condition"},
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_detected_by_the_check_of_its_clause(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner, attribute, instead, prefixes, expected = DEFECTS[name]
    monkeypatch.setattr(owner, attribute, instead)
    assert failed(*prefixes) == expected
