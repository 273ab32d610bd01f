"""The checks of sections 5 to 9: they pass our own service, and detect defects."""

import functools
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from x402sim import TESTNET
from x402sim.http import web
from x402sim.protocol.refusals import Refusal
from x402sim.service import app, gate
from x402sim.service.entitlements import Entitlements
from x402sim.service.settings import Settings
from x402sim.service.store.payment_records import PaymentRecords
from x402sim.service.store.session_budgets import SessionBudget, SessionBudgets
from x402sim.service.upstream import cronos
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.decisions import Decisions, alternatives
from x402sim.suite.check import Check
from x402sim.suite.engine import all_checks, folder, run
from x402sim.suite.local import judge
from x402sim.suite.setting import Setting
from x402sim.suite.target import Target
from x402sim.suite.verdict import Outcome, Result
from x402sim.world.assembly import process
from x402sim.world.assembly.recipe import Recipe
from x402sim.world.loop import run_virtual
from x402sim.world.stages.in_process import InProcess
from x402sim.world.stages.stage import Plan
from x402sim.world.transport.latency import constant

SECTIONS = "56789"


@functools.cache
def checks(*prefixes: str) -> list[Check]:
    """Return the checks of these sections, or those whose ids have one of these prefixes."""
    ours = [check for check in all_checks() if check.section[0] in SECTIONS]
    return [c for c in ours if not prefixes or c.id.startswith(prefixes)]


def found_in(expected: set[str], **recipe: Any) -> set[str]:
    """Return the failed ids, without their document, in the sections of the expected ones.

    Of the kit's own demands only those that are expected: they may see the same defect.
    """
    document = ("spec/", "kit/")
    sections = tuple(each + name.split("/")[0] for name in expected for each in document)
    results = judge(Recipe(network=TESTNET, seed=1, **recipe), checks=checks(*sections))
    failed = [each.id.split("/", 1) for each in results if each.outcome is Outcome.FAILED]
    return {clause for where, clause in failed if where == "spec" or clause in expected}


def odd(results: list[Result]) -> list[Result]:
    return [r for r in results if r.outcome not in (Outcome.PASSED, Outcome.OBSERVED)]


# --- our own service passes --------------------------------------------------------------


def test_every_clause_has_a_check_or_a_reason() -> None:
    reasons = tomllib.loads((folder() / "not_checkable.toml").read_text("utf-8"))
    have = {check.id.split("/", 1)[1] for check in checks()}
    ours = {clause.id for clause in CLAUSES if clause.section in SECTIONS}
    assert ours <= have | {clause for clause in reasons if clause[0] in SECTIONS}


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
    names = ("service", "facilitator", "explorer", "rpc")
    results = judge(
        Recipe(network=TESTNET, seed=2, decisions=decisions),
        checks=checks(),
        latency=dict.fromkeys(names, constant(latency_s)),
    )
    assert odd(results) == []


BASELINES_BASE = 2 * (10_000 + 20_000)
"""What the baselines cost, before and after the checks that depend on them."""


def judged_from_outside(own_money: bool) -> list[Result]:
    """Judge our service without its world: by its URL alone, or with a payer's own money.

    The budget is just what the checks declare, and each case is a result.
    """
    cases = [replace(each, id=f"{each.id} {n}") for n, each in enumerate(checks())]
    price, token = 10_000, 1_000_000
    declared = sum(price * each.pays + round(float(each.deposits) * token) for each in checks())

    async def main() -> list[Result]:
        async with InProcess().open(Plan(recipe=Recipe(network=TESTNET, seed=1))) as stage:
            assert stage.parts is not None
            setting = Setting(
                target=Target(),
                http=stage.client("suite"),
                clock=stage.clock,
                rng=stage.rng,
                payer=stage.parts.accounts[0] if own_money else None,
                budget_base=declared + BASELINES_BASE,
            )
            return [each async for each in run(setting, cases)]

    return run_virtual(main)


@pytest.mark.parametrize(("own_money", "at_least"), [(False, 20), (True, 50)])
def test_without_a_world_the_other_checks_are_skipped(own_money: bool, at_least: int) -> None:
    results = judged_from_outside(own_money)
    assert {each.outcome for each in odd(results)} == {Outcome.SKIPPED}
    assert not [each for each in results if "budget" in each.reason]
    assert len(results) - len(odd(results)) >= at_least


# --- defects: every day, those of `tests/mutants` are detected; these fail nothing else --

Break = Callable[[pytest.MonkeyPatch], None]


def swapped(owner: Any, name: str, value: Any) -> Break:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def settings(**values: Any) -> Break:
    ours = Recipe.settings_of

    def theirs(recipe: Recipe, name: str) -> Settings:
        return replace(ours(recipe, name), **values)

    return swapped(Recipe, "settings_of", theirs)


def granted_if(condition: str) -> Break:
    """Records grant access under another condition."""

    def grants(self: PaymentRecords, payment_id: str, resource: str) -> bool:
        sql = f"SELECT 1 FROM payments WHERE {condition}"
        asked = {"id": payment_id, "resource": resource}
        return self._db.named(sql, asked) is not None

    return swapped(PaymentRecords, "grants", grants)


def spendable_if(holds: Callable[[SessionBudget, int], bool]) -> Break:
    """A session can be spent under another condition."""

    def can_pay(self: SessionBudgets, session_id: str, amount_base: int, now_ms: int) -> bool:
        session = self.get(session_id)
        return session is not None and holds(session, amount_base)

    return swapped(SessionBudgets, "can_pay", can_pay)


def in_floats(session: SessionBudget, amount_base: int) -> bool:
    return int(session.deposited / 1e6 / (amount_base / 1e6)) > session.released // amount_base


def told(text: str, instead: Refusal) -> Break:
    """The facilitator's error becomes another refusal."""
    return swapped(cronos, "_REFUSALS", {**cronos._REFUSALS, text: instead})


async def debited_first(service: Any, request: Request) -> Any:
    """The quote, for an endpoint whose payment is a middleware."""
    body = await web.read_body(request)
    try:
        granted = gate.find_pass(service, request.headers, app.QUOTE, 10_000)
        await gate.spend(service, granted, web.connection(request))
    except app.Unpaid as why:
        return app.payment_required(service, request, app.QUOTE, 10_000, why)
    order = web.parse(body, app.QuoteRequest)
    return web.answer({"quote": app.quotes.quote(service.settings, order)})


def stumbles(body: bytes, kind: type[Any]) -> Any:
    """Reading a message raises an unexpected exception."""
    return web.decode(json.dumps(json.loads(body)).encode(), kind)


def shows(status: int, text: str, reason: str | None = None, final: bool | None = None) -> Any:
    trace = f'Traceback (most recent call last):\n  File "app.py", line 7, in pay\n{reason}'
    return web.answer({"error": text, "reason": trace}, status)


def leniently(path: str) -> str:
    return path.lower().rstrip("/").replace("//", "/")


def routed(rewrite: Callable[[str], str]) -> Break:
    """Paths are rewritten before they are looked up."""

    def rewriting(right: Any) -> Any:
        async def middleware(scope: Any, receive: Any, send: Any) -> None:
            await right({**scope, "path": rewrite(scope["path"])}, receive, send)

        return middleware

    def lenient_app(service: Any) -> Any:
        lenient = app.service_app(service)
        lenient.add_middleware(rewriting)
        return lenient

    return swapped(process, "service_app", lenient_app)


DEFECTS: dict[str, tuple[Break, set[str]]] = {
    "the cache is asked for no resource": (
        swapped(Entitlements, "grants", lambda self, payment_id, *_: payment_id in self._cached),
        {"5/resource-binding"},
    ),
    "records are not compared by resource": (
        granted_if("payment_id = :id AND status = 'settled'"),
        {"5/resource-binding", "5/stored-records"},
    ),
    "records are not compared by status": (
        granted_if("payment_id = :id AND resource_url = :resource"),
        {"5/nonce-once", "5/stored-records", "5/window"},
    ),
    "records are compared with LIKE": (
        granted_if("payment_id LIKE :id AND resource_url = :resource AND status = 'settled'"),
        {"5/stored-records"},
    ),
    "a path matches everything below it": (
        routed(lambda path: app.QUOTE if path.startswith(app.QUOTE) else path),
        {"5/resource-binding", "5/exact-path"},
    ),
    "paths are matched leniently": (routed(leniently), {"5/resource-binding"}),
    "the last unit cannot be spent": (
        spendable_if(lambda session, amount_base: session.remaining > amount_base),
        {"5/session-condition"},
    ),
    "a budget is counted in floats": (spendable_if(in_floats), {"5/session-condition"}),
    "nothing is debited": (
        swapped(SessionBudgets, "debit", lambda *_: 0),
        {"5/session-debit"},
    ),
    "the debit comes first": (
        swapped(app, "perp_quote", debited_first),
        {"5/session-debit"},
    ),
    "an insufficient balance is reported as a bad signature": (
        told("ERC20: transfer amount exceeds balance", Refusal.INVALID_SIGNATURE),
        {"7/insufficient-balance"},
    ),
    "reading a message fails": (
        swapped(web, "parse", stumbles),
        {"7/malformed-body", "7/malformed-paid", "7/other-methods"},
    ),
    "an error shows a stack trace": (
        swapped(web, "error", shows),
        {"7/malformed-body", "7/malformed-paid", "7/malformed-header", "7/other-methods"},
    ),
    "another price": (settings(quote_price="0.02"), {"8/quote-price"}),
    "another timeout": (settings(max_timeout_s=600), {"8/timeout"}),
    "the indexer runs every minute": (settings(indexer_interval_s=60), {"8/indexer-interval"}),
    "the indexer has no batch limit": (settings(indexer_batch=1000), {"8/indexer-batch"}),
    "the cache keeps entries for an hour": (
        settings(entitlement_lifetime_s=3600),
        {"8/cache-lifetime"},
    ),
    "the cache is swept daily": (
        settings(entitlement_sweep_s=86_400),
        {"8/cache-sweep", "8/cache-lifetime"},
    ),
    "reputations never change": (
        swapped(PaymentRecords, "update_reputation", lambda *_: None),
        {"6/reputation"},
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_detected_by_the_check_of_its_clause(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    break_it, expected = DEFECTS[name]
    break_it(monkeypatch)
    assert found_in(expected) == expected


LEFT_OUT: dict[str, tuple[tuple[tuple[str, str], ...], set[str]]] = {
    "the amount sent back": (((("settlement", "2.1/amount")),), {"5/exact-amount"}),
    "the payee sent back": ((("settlement", "2.1/pay-to"),), {"5/exact-recipient"}),
    "the amount signed": ((("verification", "5/exact-amount"),), {"5/exact-amount"}),
    "the payee signed": ((("verification", "5/exact-recipient"),), {"5/exact-recipient"}),
    "the signature": (
        (("verification", "5/signature-proves"), ("transfer", "5/signature-proves")),
        {"5/signature-proves", "7/invalid-signature"},
    ),
    "the beginning of the window": ((("transfer", "5/window-opens"),), {"5/window"}),
    "the end of the window": (
        (("transfer", "5/window-closes"),),
        {"5/window", "7/authorization-expired"},
    ),
}
"""Without the token's nonce rule nothing is seen: the service asks the chain before it settles."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_missing_rule_is_detected_by_the_check_of_its_clause(name: str) -> None:
    rules, expected = LEFT_OUT[name]
    assert found_in(expected, without=rules) == expected
