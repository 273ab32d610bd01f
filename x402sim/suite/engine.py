"""Runs checks against a target, one id after the other, and gives a result for each."""

import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import assert_never

import httpx
import msgspec

from x402sim.clock import stopwatch
from x402sim.suite import redact
from x402sim.suite.check import HOW_TO_PROVIDE, Baseline, Check
from x402sim.suite.expect import expect_served
from x402sim.suite.probe import Probe
from x402sim.suite.setting import RunState, Setting
from x402sim.suite.verdict import CheckFailed, Inconclusive, Outcome, Result, Skipped

_WORST = (
    Outcome.FAILED,
    Outcome.INCONCLUSIVE,
    Outcome.PASSED,
    Outcome.OBSERVED,
    Outcome.SKIPPED,
)
"""The order of outcomes: the first one among an id's cases is the id's outcome."""


def folder() -> Path:
    """Return the folder of the checks: in the checkout, or in the installed package."""
    package = Path(__file__).parents[1]
    places = (package / "conformance", package.parent / "conformance")
    return next(place for place in places if (place / "targets").is_dir())


def all_checks() -> list[Check]:
    """Return every check, in the order of the sections."""
    found = [
        value
        for file in sorted(folder().glob("test_section_*.py"))
        for value in vars(_module(file)).values()
        if isinstance(value, Check)
    ]
    return sorted(found, key=lambda check: (check.section, check.id))


def _module(file: Path) -> ModuleType:
    name = f"x402sim_conformance_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def matching(checks: Iterable[Check], prefix: str) -> list[Check]:
    """Return the checks whose id starts with `prefix`; "spec/" in front may be left out."""
    return [c for c in checks if c.id.startswith(prefix) or c.id.startswith(f"spec/{prefix}")]


async def run(
    setting: Setting,
    checks: list[Check],
    on_begin: Callable[[str], None] = lambda check_id: None,
    state: RunState | None = None,
) -> AsyncIterator[Result]:
    """Run checks and yield the result of each id as soon as it is certain.

    `on_begin` is called with each id before its checks run; `state` is what a preflight has found
    out. Results that depend on a
    baseline come last: the baselines are repeated first, because a target that has begun
    to refuse everything would pass every check that expects a refusal.
    """
    state = state or RunState()
    waiting: list[tuple[Result, set[Baseline]]] = []
    for check_id, cases in groupby(checks, key=lambda check: check.id):
        on_begin(check_id)
        result, baselines = await _judge(setting, state, list(cases))
        if baselines and result.outcome is Outcome.PASSED:
            waiting.append((result, baselines))
        else:
            yield result
    repeated: dict[Baseline, str | None] = {}
    for result, baselines in waiting:
        for baseline in sorted(baselines - set(repeated)):
            repeated[baseline] = await try_baseline(Probe(setting, state), baseline)
        broken = [f"{name}: {repeated[name]}" for name in sorted(baselines) if repeated[name]]
        yield _doubt(result, broken) if broken else result


def _doubt(result: Result, broken: list[str]) -> Result:
    reason = f"the baseline was refused when repeated at the end of the run ({'; '.join(broken)})"
    return msgspec.structs.replace(result, outcome=Outcome.INCONCLUSIVE, reason=reason)


async def _judge(
    setting: Setting, state: RunState, cases: list[Check]
) -> tuple[Result, set[Baseline]]:
    """Run all cases of one id; return its result and the baselines it depends on."""
    elapsed = stopwatch()
    results = [await run_case(setting, state, case) for case in cases]
    worst = min(results, key=lambda result: _WORST.index(result.outcome))
    baselines = {
        case.baseline
        for case, result in zip(cases, results, strict=True)
        if case.baseline and result.outcome is Outcome.PASSED
    }
    return msgspec.structs.replace(worst, seconds=round(elapsed(), 3)), baselines


async def run_case(setting: Setting, state: RunState, case: Check) -> Result:
    """Run one case, after its baseline; the result shows no secret."""
    probe = Probe(setting, state)
    outcome, reason, expected, actual = Outcome.PASSED, "", "", ""
    try:
        _require_needs(setting, case)
        if case.baseline:
            await _require_baseline(setting, state, case.baseline)
        await case.run(probe)
        if probe.observed:
            outcome, actual = Outcome.OBSERVED, "; ".join(probe.observed)
    except CheckFailed as failed:
        outcome = Outcome.FAILED
        prefix = f"{failed.what}: " if failed.what else ""
        expected, actual = prefix + str(failed.expected), str(failed.actual)
    except Inconclusive as unclear:
        outcome, reason = Outcome.INCONCLUSIVE, str(unclear)
    except Skipped as skipped:
        outcome, reason = Outcome.SKIPPED, str(skipped)
    except Exception as bug:  # noqa: BLE001 - a bug of one check must not end the run
        outcome, reason = Outcome.INCONCLUSIVE, f"the check itself has a bug: {bug!r}"
    finally:
        left = await _clear_faults(setting) if probe.world.has_meddled else ""
        if left:
            outcome, reason = Outcome.INCONCLUSIVE, left
    return Result(
        id=case.id,
        level=case.level,
        section=case.section,
        outcome=outcome,
        title=case.title,
        expected=redact.redacted(expected, setting.payer) or None,
        actual=redact.redacted(actual, setting.payer) or None,
        reason=redact.redacted(reason, setting.payer),
        rerun=f"{setting.rerun} --requirement {case.id}".strip(),
        exchange=probe.last.show() if probe.last and outcome is Outcome.FAILED else "",
    )


def _require_needs(setting: Setting, case: Check) -> None:
    missing = [need for need in case.needs if setting.missing(need)]
    if missing:
        raise Skipped(f"it needs {'; '.join(HOW_TO_PROVIDE[need] for need in missing)}")
    left_out = setting.left_out.get(case.name)
    if left_out is not None:
        raise Skipped(left_out)
    reason = setting.target.not_kept.get(case.clause)
    if reason is not None:
        raise Skipped(f"the target file says that this clause is not kept: {reason}")


async def _require_baseline(setting: Setting, state: RunState, baseline: Baseline) -> None:
    if baseline not in state.baselines:
        state.baselines[baseline] = await try_baseline(Probe(setting, state), baseline)
    problem = state.baselines[baseline]
    if problem:
        raise Inconclusive(f"the baseline ({baseline}) was not accepted: {problem}")


async def try_baseline(probe: Probe, baseline: Baseline) -> str | None:
    """Try a baseline; return why the target did not accept it, None if it did."""
    try:
        match baseline:
            case Baseline.UNPAID:
                await probe.challenge()
            case Baseline.PAYMENT:
                paid = await probe.buy()
                expect_served(await probe.ask(payment_id=paid.challenge.payment_id))
            case Baseline.SESSION:
                session = await probe.open_session(await probe.budget_for(2))
                expect_served(await probe.ask(session_id=session.session_id))
            case _:
                assert_never(baseline)
    except CheckFailed as failed:
        return f"expected {failed.expected}, got {failed.actual}"
    except (Inconclusive, Skipped) as problem:
        return str(problem)
    return None


async def _clear_faults(setting: Setting) -> str:
    """Remove the faults that a check has left; return what kept us from it."""
    if setting.control is None:
        return ""
    try:
        await setting.control.post("/faults/clear", json={})
    except httpx.TransportError as error:
        return f"the world's faults were not cleared, and may spoil other checks: {error!r}"
    return ""
