"""`python -m x402sim conformance`: one run of the suite, from options to exit code."""

import asyncio
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from x402sim.clock import Clock
from x402sim.protocol.money import to_decimal
from x402sim.report import conformance as report
from x402sim.suite import target as targets
from x402sim.suite.engine import all_checks, folder, matching, run
from x402sim.suite.remote import Access, Unreachable, reach
from x402sim.suite.setting import Setting
from x402sim.suite.verdict import Check, Outcome, Result, clause_text

HELD, FOUND_SOMETHING, NO_VERDICT = 0, 1, 2
"""The exit codes: every MUST held; something failed; misuse, unreachable or inconclusive."""
_COLORS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.OBSERVED: "cyan",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a run shall do besides judging: which checks count, and which files to write."""

    checks: list[Check]
    strict: bool = False
    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    sarif: Path | None = None


def find_target(name: str) -> targets.Target:
    """Return a shipped target by name, or the one in a file; raises `ValueError`."""
    shipped = {file.stem: file for file in sorted((folder() / "targets").glob("*.toml"))}
    file = shipped.get(name, Path(name))
    if not file.is_file():
        raise ValueError(f"no target file {name!r}; shipped are: {', '.join(shipped)}")
    return targets.load(file)


def select(prefixes: Iterable[str]) -> list[Check]:
    """Return the checks whose ids start with any of these; all without any.

    Raises `ValueError` for a prefix that no id has.
    """
    checks, wanted = all_checks(), set()
    for prefix in prefixes:
        found = matching(checks, prefix)
        if not found:
            raise ValueError(f"no check's id starts with {prefix!r}; --list shows all")
        wanted |= {check.id for check in found}
    return [check for check in checks if not wanted or check.id in wanted]


def show_list(checks: list[Check]) -> None:
    """Print the ids, one a line, with level, needs and cost."""
    console = Console(soft_wrap=True, highlight=False)
    seen: dict[str, list[Check]] = {}
    for check in checks:
        seen.setdefault(check.id, []).append(check)
    for check_id, cases in seen.items():
        needs = sorted({need for case in cases for need in case.needs})
        pays = sum(case.pays for case in cases)
        cost = f", pays {pays}" if pays else ""
        console.print(f"[bold]{check_id}[/]  {cases[0].level}{cost}")
        if text := clause_text(check_id):
            console.print(f"  {escape(text)}", style="dim")
        for case in cases:
            console.print(f"  - {escape(case.title)}")
        if needs:
            console.print(f"  needs {', '.join(needs)}")
    console.print(f"\n{len(seen)} ids, {len(checks)} cases")


def judge(access: Access, wanted: Wanted, on_begin: Callable[[str], None]) -> list[Result]:
    """Run the checks in real time; raises `Unreachable`."""

    async def main() -> list[Result]:
        async with reach(access) as setting:
            _announce(setting, wanted.checks)
            return [result async for result in run(setting, wanted.checks, on_begin)]

    return asyncio.run(main())


def _announce(setting: Setting, checks: list[Check]) -> None:
    """Say what the payer's own money may be spent on, before it is."""
    if setting.payer is None or setting.control is not None:
        return
    runnable = [c for c in checks if not any(setting.missing(need) for need in c.needs)]
    payments = sum(check.pays for check in runnable) + sum(bool(c.pays) for c in runnable[:1]) * 2
    deposits = sum(float(check.deposits) for check in runnable)
    budget = to_decimal(setting.budget_base, 6)
    Console(stderr=True, highlight=False).print(
        f"It makes at most {payments} payments and {deposits:.2f} tokens of deposits from "
        f"{setting.payer.address}; the budget is {budget} tokens."
    )


def conclude(results: list[Result], strict: bool) -> int:
    """Return the exit code of these results."""
    counting = [r for r in results if r.level == "MUST" or (strict and r.level == "SHOULD")]
    if any(result.outcome is Outcome.FAILED for result in counting):
        return FOUND_SOMETHING
    is_clear = not any(result.outcome is Outcome.INCONCLUSIVE for result in counting)
    has_passed = any(result.outcome is Outcome.PASSED for result in counting)
    return HELD if is_clear and has_passed else NO_VERDICT


def tell(results: list[Result], wanted: Wanted) -> None:
    """Print what was found: the failures in full, the rest in numbers."""
    console = Console(soft_wrap=True, highlight=False)
    for result in results:
        if result.outcome is Outcome.FAILED:
            _tell_failure(console, result, wanted.strict)
    for outcome in (Outcome.INCONCLUSIVE, Outcome.OBSERVED):
        found = [result for result in results if result.outcome is outcome]
        for result in found:
            said = result.reason or result.actual or ""
            color = _COLORS[outcome]
            console.print(f"[{color}]{outcome}[/] {result.id}: {escape(said)}")
    reasons = Counter(r.reason for r in results if r.outcome is Outcome.SKIPPED)
    for reason, times in reasons.most_common():
        console.print(f"[dim]skipped {times}: {escape(reason)}[/]")
    counts = Counter(result.outcome for result in results)
    line = ", ".join(f"[{_COLORS[o]}]{counts[o]} {o}[/]" for o in Outcome if counts[o])
    console.print(f"\n{len(results)} ids: {line}")


def _tell_failure(console: Console, result: Result, strict: bool) -> None:
    counts = result.level == "MUST" or (strict and result.level == "SHOULD")
    note = "" if counts else " (does not count without --strict)"
    console.print(f"[red bold]failed[/] [bold]{result.id}[/] {result.level}{note}")
    if text := clause_text(result.id):
        console.print(f"  clause    {escape(text)}")
    console.print(f"  check     {escape(result.title)}")
    console.print(f"  expected  {escape(str(result.expected))}")
    console.print(f"  actual    {escape(str(result.actual))}")
    for line in result.exchange.splitlines():
        console.print(f"    [dim]{escape(line)}[/]")
    console.print(f"  again     {escape(result.rerun)}\n")


def write(access: Access, started: str, results: list[Result], wanted: Wanted) -> None:
    """Write the report files that are wanted; raises `OSError`."""
    plain: list[dict[str, Any]] = [msgspec.to_builtins(result) for result in results]
    if wanted.json is not None:
        told = report.as_json(access.base_url, started, plain)
        text = json.dumps(told, indent=2) + "\n"
        if str(wanted.json) == "-":
            sys.stdout.write(text)
        else:
            wanted.json.write_text(text, encoding="utf-8")
    if wanted.junit is not None:
        wanted.junit.write_bytes(report.as_junit(access.base_url, started, plain))
    if wanted.sarif is not None:
        sarif = json.dumps(report.as_sarif(access.base_url, plain), indent=2)
        wanted.sarif.write_text(sarif + "\n", encoding="utf-8")
    if wanted.html is not None:
        from x402sim.report.conformance_html import page

        wanted.html.write_text(page(access.base_url, started, plain), encoding="utf-8")


def play(access: Access, wanted: Wanted) -> int:
    """Judge, show progress, tell, write; return the exit code."""
    started = datetime.fromtimestamp(Clock().now(), UTC).isoformat(timespec="seconds")
    console = Console(stderr=True, highlight=False)
    total, begun = len({check.id for check in wanted.checks}), itertools.count(1)
    with console.status("reaching the target") as status:

        def on_begin(check_id: str) -> None:
            line = f"{next(begun)} of {total}  {check_id}"
            if console.is_terminal:
                status.update(line)
            else:
                console.print(line)

        try:
            results = judge(access, wanted, on_begin)
        except Unreachable as error:
            console.print(f"x402sim: {escape(str(error))}", soft_wrap=True)
            return NO_VERDICT
    if str(wanted.json) != "-":
        tell(results, wanted)
    write(access, started, results, wanted)
    return conclude(results, wanted.strict)
