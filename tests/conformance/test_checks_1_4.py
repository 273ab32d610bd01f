"""The checks of sections 1 to 4: they pass our own service, and detect defects."""

import functools
import itertools
import random
import sys
import tomllib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from x402sim import TESTNET
from x402sim.protocol.refusals import Finding, Refusal
from x402sim.service import app, background, gate, grant, indexer, payments, sessions
from x402sim.service.issue import Issuer
from x402sim.service.store.payment_records import PaymentRecords
from x402sim.service.store.session_budgets import SessionBudgets
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.decisions import Decisions, alternatives
from x402sim.suite.check import Check
from x402sim.suite.engine import all_checks, folder, matching
from x402sim.suite.local import judge
from x402sim.suite.target import RecordEndpoint, SessionsEndpoint, Target
from x402sim.suite.verdict import Outcome, Result
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.transport.latency import constant

OWN = Target(
    record=RecordEndpoint(path="/api/payments/{paymentId}"),
    sessions=SessionsEndpoint(view="/api/sessions/{sessionId}"),
)
SECTIONS = tuple(f"{document}/{n}" for document in ("spec", "kit", "silent") for n in (1, 2, 3, 4))


@functools.cache
def checks(*prefixes: str) -> list[Check]:
    every = all_checks()
    return [check for prefix in prefixes for check in matching(every, prefix)]


def outcomes(*prefixes: str, **recipe: Any) -> dict[str, Result]:
    results = judge(
        Recipe(network=TESTNET, seed=1, **recipe),
        target=OWN,
        checks=checks(*(prefixes or SECTIONS)),
    )
    return {result.id: result for result in results}


def failed(*prefixes: str, **recipe: Any) -> set[str]:
    found = outcomes(*prefixes, **recipe)
    return {check_id for check_id, each in found.items() if each.outcome is Outcome.FAILED}


def told(result: Result) -> str:
    return f"{result.id} {result.outcome}: {result.reason} {result.expected} {result.actual}"


def test_every_clause_has_a_check_or_a_reason() -> None:
    reasons = tomllib.loads((folder() / "not_checkable.toml").read_text("utf-8"))
    have = {check.id.split("/", 1)[1] for check in all_checks()}
    ours = {clause.id for clause in CLAUSES if clause.section[0] in "1234"}
    assert ours <= have | set(reasons)
    assert not have & set(reasons)


@pytest.mark.parametrize(
    ("decisions", "latency_s"),
    [
        pytest.param(None, 0, id="as it is"),
        pytest.param(alternatives(), 0.1, id="all switched, 200 ms"),
        pytest.param(alternatives(), 0, id="all switched", marks=pytest.mark.thorough),
        pytest.param(None, 0.1, id="200 ms", marks=pytest.mark.thorough),
    ],
)
def test_our_own_service_passes(decisions: Decisions | None, latency_s: float) -> None:
    results = judge(
        Recipe(network=TESTNET, seed=2, decisions=decisions),
        target=OWN,
        checks=checks(*SECTIONS),
        latency={"service": constant(latency_s)},
    )
    odd = [told(r) for r in results if r.outcome not in (Outcome.PASSED, Outcome.OBSERVED)]
    assert odd == []


def test_without_a_target_file_only_unreadable_records_are_skipped() -> None:
    results = judge(Recipe(network=TESTNET, seed=1), checks=checks(*SECTIONS))
    odd = {r.id: r.outcome for r in results if r.outcome not in (Outcome.PASSED, Outcome.OBSERVED)}
    assert odd == dict.fromkeys(
        ("spec/2.4/record", "spec/2.4/block-null", "spec/3/indexed-status"), Outcome.SKIPPED
    )


# --- one rule left out -----------------------------------------------------------------

ROWS = [("settlement", clause) for clause in ("scheme", "network", "pay-to", "asset", "amount")]


@pytest.mark.parametrize(("table", "field"), ROWS)
def test_a_field_that_is_not_compared(table: str, field: str) -> None:
    assert failed("spec/2", "spec/4.1", without=((table, f"2.1/{field}"),)) == {f"spec/2.1/{field}"}


@pytest.mark.parametrize("field", ["timeout", "resource"])
def test_a_field_that_is_not_compared_and_has_no_effect(field: str) -> None:
    assert failed("spec/2", "spec/4.1", without=(("settlement", f"2.1/{field}"),)) == set()


def test_requirements_that_never_end() -> None:
    found = failed("spec/2", "spec/4.1", without=(("freshness", "2.1/validity"),))
    assert found == {"spec/2.1/validity"}


def test_a_changed_description_is_observed() -> None:
    found = outcomes("silent/2.1", without=(("settlement", "2.1/description"),))
    result = found["silent/2.1/changed-description"]
    assert (result.outcome, result.actual) == (Outcome.OBSERVED, "settled")


# --- other defects ---------------------------------------------------------------------


def issue(**changes: Any) -> Callable[..., Any]:
    """Return an issuer with changed fields of the 402; a callable gets the right value."""
    right = Issuer.issue

    def wrong(self: Issuer, *args: Any, **kwargs: Any) -> Any:
        body = right(self, *args, **kwargs)
        new = {k: v(getattr(body, k)) if callable(v) else v for k, v in changes.items()}
        return msgspec.structs.replace(body, **new)

    return wrong


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"error": "payment required"}, {"spec/2.2/body", "spec/4.4/deposit-402"}),
        ({"message": "Payment of 0.01 is required"}, {"spec/2.2/body"}),
        ({"message": "Payment of 10000 base units"}, {"spec/2.2/body"}),
        ({"network": "testnet"}, {"spec/2.2/body"}),
    ],
)
def test_a_402_with_a_wrong_field(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], expected: set[str]
) -> None:
    monkeypatch.setattr(Issuer, "issue", issue(**changes))
    assert failed("spec/1", "spec/2", "spec/4.4") == expected


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: f"{10**15 + n}",
        lambda n: f"{1_800_000_000_000 + 211 * n}",
        lambda n: f"{1_800_000_000_000_000_000 + 987_654_321 * n}-{n}",
        lambda n: f"{random.Random(n).getrandbits(32):08x}",
    ],
    ids=["counter", "milliseconds", "nanoseconds and a counter", "32 random bits"],
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
    for seed in range(300):
        luck = random.Random(seed)
        short = [f"pay_{''.join(luck.choices(module.LETTERS, k=11))}" for _ in range(module.SAMPLE)]
        assert module._bits_that_vary(short) > module.GUESSABLE_BITS


@pytest.mark.parametrize(
    "changes", [{"timestamp": lambda ms: ms // 1000}, {"tx_hash": lambda tx: tx[:-2]},
                {"tx_hash": lambda tx: "0x" + "00" * 32}, {"success": 1}, {"payment_id": "pay_x"}],
)  # fmt: skip
def test_a_receipt_with_a_wrong_field(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    right = payments.receipt

    def wrong(*args: Any) -> Any:
        receipt = right(*args)
        new = {k: v(getattr(receipt, k)) if callable(v) else v for k, v in changes.items()}
        return msgspec.structs.replace(receipt, **new)

    monkeypatch.setattr(payments, "receipt", wrong)
    found = failed("spec/1", "spec/4")
    assert "spec/4.1/receipt" in found
    assert found <= {"spec/4.1/receipt", "spec/1/indexer"}  # which looks for the receipt's hash


def test_an_amount_parsed_as_a_float(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_base(text: str, *args: Any, **kwargs: Any) -> int:
        try:
            return int(float(text) * 10**6)
        except (OverflowError, ValueError) as error:
            raise ValueError("no amount") from error

    monkeypatch.setattr(sessions, "to_base", to_base)
    assert failed("spec/4.4") == {"spec/4.4/max-spend"}


async def _skip(*_: Any) -> None:
    return None


def test_a_missing_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payments, "verify", _skip)
    found = failed("spec/4.1")
    assert {"spec/4.1/verify-signature", "spec/4.1/order"} <= found
    assert found <= {"spec/4.1/verify-signature", "spec/4.1/order", "spec/4.1/build-verify"}


def test_a_lost_answer_that_counts_as_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(payment: Any) -> Finding:
        if not payment.in_background:
            grant.revoke(payment._service, payment._listed, 0)
            payment.finding = Finding.NEVER
        return Finding.NEVER

    monkeypatch.setattr(payments.Unresolved, "ask_chain", never)
    found = failed("spec/1", "spec/3", "kit/3", "spec/4.1")
    assert found == {"kit/3/pending-resolved"}


def test_an_unknown_outcome_that_is_never_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "reconcile", _skip)
    assert failed("spec/3", "kit/3") == {"kit/3/pending-resolved"}


def test_a_missing_refund(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionBudgets, "refunds_due", lambda self, *of: [])
    assert failed("spec/3", "kit/3") == {
        "spec/3/expiry-refund",
        "spec/3/refund-once",
    }


def test_a_refund_with_a_new_nonce_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**6))
    monkeypatch.setattr(sessions, "refund_nonce", lambda _: next(numbers).to_bytes(32))
    assert failed("spec/3", "kit/3") == {"spec/3/expiry-refund", "spec/3/refund-once"}


def test_a_record_that_grants_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PaymentRecords, "grants", lambda self, payment_id, resource: False)
    found = failed("spec/1", "spec/3", "kit/3", "spec/4.1")
    assert found == {
        "spec/3/record-outlives-cache", "spec/4.1/store-settled",
    }  # fmt: skip


def test_an_indexer_that_revokes_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PaymentRecords,
        "set_block",
        lambda self, attempt, tx_hash, block_number, **_: self._db.execute(
            "UPDATE payments SET block_number = ?, status = 'failed', is_deep = 1 "
            "WHERE attempt = ?",
            block_number, attempt,
        ),
    )  # fmt: skip
    found = failed("spec/1", "spec/3", "kit/3", "spec/4.1")
    assert "spec/3/record-outlives-cache" in found
    assert found <= {
        "spec/3/record-outlives-cache", "spec/4.1/store-settled",
        "spec/3/expiry-refund", "spec/3/refund-once",
    }  # fmt: skip


def test_an_indexer_that_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "run", _skip)
    found = failed("spec/1", "spec/2.4", "spec/3")
    assert found == {"spec/1/indexer", "spec/2.4/block-null", "spec/3/indexed-status"}


def test_a_session_with_a_budget_above_its_deposit(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SessionBudgets.paid_by

    def generous(self: SessionBudgets, payment_id: str) -> Any:
        self._db.execute(
            "UPDATE sessions SET deposited = 50000000 WHERE payment_id = ?", payment_id
        )
        return right(self, payment_id)

    monkeypatch.setattr(SessionBudgets, "paid_by", generous)
    found = failed("spec/1", "spec/3/deposit", "spec/4.4")
    assert found == {"spec/3/deposit-makes-session"}


def test_access_before_the_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    right = payments.claim

    def eager(service: Any, attempt: Any, **more: Any) -> Any:
        entitlement = grant.Entitlement(attempt.payment_id, attempt.terms.resource, "", 10**14)
        service.entitlements.add(entitlement)
        return right(service, attempt, **more)

    monkeypatch.setattr(payments, "claim", eager)
    assert "spec/4.1/order" in failed("spec/4.1")


def test_another_text_for_a_bad_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    right = app.web.error

    def reworded(status: int, text: str, reason: str | None = None) -> Any:
        said = "Bad signature" if text == Refusal.INVALID_SIGNATURE.value else text
        return right(status, said, None if said != text else reason)

    monkeypatch.setattr(app.web, "error", reworded)
    assert failed("spec/4.1") == {"spec/4.1/verify-signature"}


def test_a_service_that_refuses_everything_passes_no_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "is_entitled", lambda *_: False)
    found = outcomes("spec/2.1", "spec/4.1")
    resting = {c.id for c in checks("spec/2.1", "spec/4.1") if c.baseline == "payment"}
    passed = {check_id for check_id, each in found.items() if each.outcome is Outcome.PASSED}
    assert not passed & resting


def test_the_same_seed_gives_the_same_results() -> None:
    def verdicts() -> list[Result]:
        every = outcomes("spec/2", "spec/4.4", "silent/2").values()
        return [
            msgspec.structs.replace(
                each,
                seconds=0,
                cases=tuple(msgspec.structs.replace(case, seconds=0) for case in each.cases),
            )
            for each in every
        ]

    assert verdicts() == verdicts()
