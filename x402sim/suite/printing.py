"""The suite's output in a terminal: the list of ids, the costs, the results.

What a target answered is in the results: all of their text is printed escaped.
"""

import textwrap
from collections import Counter

from rich.console import Console
from rich.markup import escape

from x402sim.printable import printable
from x402sim.protocol.money import to_decimal
from x402sim.spec.ground import Ground, Kind
from x402sim.suite.check import Check, clause_text
from x402sim.suite.demands import by_ground, by_id
from x402sim.suite.preflight import Ready
from x402sim.suite.verdict import CaseResult, Outcome, Result

WIDTH = 66
"""The width of a quotation: with its indent, a line has less than 80 columns."""
_COLORS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.OBSERVED: "cyan",
}


def show_list(checks: list[Check]) -> None:
    """Print the ids with level and cost, the ground of each case, and the needs."""
    console = Console(soft_wrap=True, highlight=False)
    for check_id, cases in by_id(checks).items():
        needs = sorted({need for case in cases for need in case.needs})
        pays = sum(case.pays for case in cases)
        cost = f", pays {pays}" if pays else ""
        console.print(f"[bold]{check_id}[/]  {cases[0].level}{cost}")
        if text := clause_text(check_id):
            console.print(f"  {escape(text)}", style="dim")
        for ground, its_cases in by_ground(cases):
            _show_ground(console, ground)
            for case in its_cases:
                console.print(f"  - {escape(case.title)}")
        if needs:
            console.print(f"  needs {', '.join(needs)}")
    kinds = Counter(str(check.ground.kind) for check in checks)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in Kind)
    console.print(f"\n{len(by_id(checks))} ids, {len(checks)} cases: {told}")


def _show_ground(console: Console, ground: Ground | None) -> None:
    """Print what a demand is based on, each sentence in a line."""
    label = str(ground.kind) if ground else ""
    for told in ground.told if ground else ():
        for line in textwrap.wrap(told, WIDTH):
            console.print(f"  {label:<9} {escape(line)}")
            label = ""


def announce(ready: Ready, note: str = "") -> None:
    """Print the plan of a run, before anything else is signed: what it does, and leaves out."""
    console, plan = Console(stderr=True, highlight=False), ready.plan
    payer, budget = ready.setting.payer, to_decimal(ready.setting.budget_base, 6)
    for text in (note, *ready.notes):
        if text:
            console.print(f"note: {_shown(text)}")
    console.print(
        f"Plan: {plan.runnable_ids} of {plan.ids} ids, about {plan.requests} requests, about "
        f"{max(plan.seconds, 1):.0f} s"
    )
    if plan.signs_base and payer is not None:
        console.print(
            f"It signs for at most {to_decimal(plan.signs_base, 6)} tokens ({plan.payments} "
            f"payments, deposits of {to_decimal(plan.deposits_base, 6)}), from {payer.address}. "
            f"The budget is {budget} tokens."
        )
    if plan.left_out:
        ids = dict.fromkeys(name.rpartition(":")[0] for name in plan.left_out)
        console.print(
            f"Left out in part or in whole, because everything needs --budget "
            f"{to_decimal(plan.needs_base, 6)}: {', '.join(ids)}"
        )


def counts(result: Result, strict: bool) -> bool:
    """Tell whether a result counts for the exit code: MUST, and SHOULD if `strict`."""
    return result.level == "MUST" or (strict and result.level == "SHOULD")


def show_results(results: list[Result], strict: bool) -> None:
    """Print the failures in full, what was inconclusive or observed, and the numbers."""
    console = Console(soft_wrap=True, highlight=False)
    for result in results:
        if result.outcome is Outcome.FAILED:
            _show_failure(console, result, strict)
    for outcome in (Outcome.INCONCLUSIVE, Outcome.OBSERVED):
        for result in results:
            if result.outcome is outcome:
                text = result.reason or result.actual or ""
                console.print(f"[{_COLORS[outcome]}]{outcome}[/] {result.id}: {_shown(text)}")
    for result in results:
        if result.in_part and result.outcome is Outcome.PASSED:
            console.print(f"[dim]passed ({result.in_part}): {result.id}[/]")
    reasons = Counter(r.reason for r in results if r.outcome is Outcome.SKIPPED)
    for reason, times in reasons.most_common():
        console.print(f"[dim]skipped {times}: {_shown(reason)}[/]")
    numbers = Counter(result.outcome for result in results)
    line = ", ".join(f"[{_COLORS[o]}]{numbers[o]} {o}[/]" for o in Outcome if numbers[o])
    console.print(f"\n{len(results)} ids: {line}")


def _show_failure(console: Console, result: Result, strict: bool) -> None:
    note = "" if counts(result, strict) else " (does not count without --strict)"
    part = f" ({result.in_part})" if result.in_part else ""
    console.print(f"[red bold]failed[/]{part} [bold]{result.id}[/] {result.level}{note}")
    if text := clause_text(result.id):
        console.print(f"  clause    {escape(text)}")
    failures: list[Result | CaseResult] = []
    failures += [case for case in result.cases if case.outcome is Outcome.FAILED]
    for case in failures or [result]:
        console.print(f"  check     {_shown(case.title)}")
        _show_ground(console, case.ground)
        console.print(f"  expected  {_shown(str(case.expected))}")
        console.print(f"  actual    {_shown(str(case.actual))}")
        for line in case.exchange.split("\n") if case.exchange else ():
            console.print(f"  [dim]| {_shown(line)}[/]")
    console.print(f"  run it again: {_shown(result.rerun)}\n")


def _shown(text: str) -> str:
    """Return text of another party for `rich`: nothing in it is markup or acts on a terminal."""
    return escape(printable(text))
