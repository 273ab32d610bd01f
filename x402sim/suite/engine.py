"""Runs checks against a target, one id after the other, and gives a verdict for each."""

import importlib.util
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import groupby
from pathlib import Path
from types import ModuleType

import msgspec

from x402sim.clock import stopwatch
from x402sim.suite import redact
from x402sim.suite.probe import Probe
from x402sim.suite.setting import Ledger, Setting
from x402sim.suite.verdict import (
    NEEDS,
    Check,
    Failed,
    Inconclusive,
    Outcome,
    Result,
    Skipped,
)

_WORST = (
    Outcome.FAILED,
    Outcome.INCONCLUSIVE,
    Outcome.PASSED,
    Outcome.OBSERVED,
    Outcome.SKIPPED,
)
"""Of several cases of one id, the first of these is the id's outcome."""


def folder() -> Path:
    """Return where the checks are: in the checkout, or in the installed package."""
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
    setting: Setting, checks: list[Check], on_begin: Callable[[str], None] = lambda check_id: None
) -> AsyncIterator[Result]:
    """Run checks and yield a result for each id, as soon as it is certain.

    `on_begin` is told each id as its turn comes. Results that rest on a control come
    last: the control is repeated first, so that a target that began to refuse everything
    meanwhile proves nothing.
    """
    ledger = Ledger()
    waiting: list[tuple[Result, set[str]]] = []
    for check_id, cases in groupby(checks, key=lambda check: check.id):
        on_begin(check_id)
        result, controls = await _judge(setting, ledger, check_id, list(cases))
        if controls and result.outcome is Outcome.PASSED:
            waiting.append((result, controls))
        else:
            yield result
    repeated: dict[str, str | None] = {}
    for result, controls in waiting:
        for control in sorted(controls - set(repeated)):
            repeated[control] = await try_control(Probe(setting, ledger), control)
        broken = [f"{name}: {repeated[name]}" for name in sorted(controls) if repeated[name]]
        yield _doubt(result, broken) if broken else result


def _doubt(result: Result, broken: list[str]) -> Result:
    reason = f"at the end of the run the control failed ({'; '.join(broken)})"
    return msgspec.structs.replace(result, outcome=Outcome.INCONCLUSIVE, reason=reason)


async def _judge(
    setting: Setting, ledger: Ledger, check_id: str, cases: list[Check]
) -> tuple[Result, set[str]]:
    """Run all cases of one id; return its result and the controls it rests on."""
    elapsed = stopwatch()
    results = [await run_case(setting, ledger, case) for case in cases]
    worst = min(results, key=lambda result: _WORST.index(result.outcome))
    controls = {
        case.control
        for case, result in zip(cases, results, strict=True)
        if case.control and result.outcome is Outcome.PASSED
    }
    return msgspec.structs.replace(worst, seconds=round(elapsed(), 3)), controls


async def run_case(setting: Setting, ledger: Ledger, case: Check) -> Result:
    """Run one case, after its control; nothing it says of the target shows a secret."""
    probe = Probe(setting, ledger)
    outcome, reason, expected, actual = Outcome.PASSED, "", "", ""
    try:
        _require_needs(setting, case)
        if case.control:
            await _require_control(setting, ledger, case.control)
        await case.run(probe)
        if probe.observed:
            outcome, actual = Outcome.OBSERVED, "; ".join(probe.observed)
    except Failed as failed:
        outcome = Outcome.FAILED
        prefix = f"{failed.what}: " if failed.what else ""
        expected, actual = prefix + str(failed.expected), str(failed.actual)
    except Inconclusive as unclear:
        outcome, reason = Outcome.INCONCLUSIVE, str(unclear)
    except Skipped as skipped:
        outcome, reason = Outcome.SKIPPED, str(skipped)
    except Exception as bug:  # noqa: BLE001 - a defect of the suite costs one verdict, not all
        outcome, reason = Outcome.INCONCLUSIVE, f"the check itself is broken: {bug!r}"
    finally:
        if probe.has_meddled:
            await _leave_usable(setting)
    return Result(
        id=case.id,
        level=case.level,
        section=case.section,
        outcome=outcome,
        title=case.title,
        expected=redact.told(expected, setting.payer) or None,
        actual=redact.told(actual, setting.payer) or None,
        reason=redact.told(reason, setting.payer),
        rerun=f"{setting.rerun} --requirement {case.id}".strip(),
        exchange=probe.last.show() if probe.last and outcome is Outcome.FAILED else "",
    )


def _require_needs(setting: Setting, case: Check) -> None:
    missing = [need for need in case.needs if setting.missing(need)]
    if missing:
        raise Skipped(f"it needs {', '.join(NEEDS[need] for need in missing)}")
    for clause, reason in setting.target.not_kept.items():
        if case.id.endswith(clause):
            raise Skipped(f"the target file says it is not kept: {reason}")


async def _require_control(setting: Setting, ledger: Ledger, control: str) -> None:
    if control not in ledger.controls:
        ledger.controls[control] = await try_control(Probe(setting, ledger), control)
    problem = ledger.controls[control]
    if problem:
        raise Inconclusive(f"the positive control ({control}) was not accepted: {problem}")


async def try_control(probe: Probe, control: str) -> str | None:
    """Do what a target must accept; return why it did not."""
    try:
        match control:
            case "unpaid":
                await probe.challenge()
            case "payment":
                paid = await probe.buy()
                probe.served(await probe.ask(payment_id=paid.challenge.payment_id))
            case "session":
                session = await probe.open_session("0.02")
                probe.served(await probe.ask(session_id=session.session_id))
            case _:
                raise ValueError(f"there is no control {control!r}")
    except Failed as failed:
        return f"expected {failed.expected}, got {failed.actual}"
    except (Inconclusive, Skipped) as problem:
        return str(problem)
    return None


async def _leave_usable(setting: Setting) -> None:
    """End whatever a check has let go wrong in the world."""
    if setting.control is not None:
        await setting.control.post("/faults/clear", json={})
