"""`python -m x402sim conformance`: one run of the suite, from options to exit code."""

import asyncio
import itertools
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from x402sim.clock import Clock, stopwatch
from x402sim.printable import printable
from x402sim.protocol.refusals import Refusal
from x402sim.report import conformance as report
from x402sim.suggest import unknown
from x402sim.suite import printing, redact
from x402sim.suite import target as targets
from x402sim.suite.check import Check
from x402sim.suite.demands import FILE
from x402sim.suite.engine import all_checks, folder, matching, run
from x402sim.suite.in_full import lacking, not_in_full
from x402sim.suite.preflight import examine
from x402sim.suite.remote import Access, NotReady, reach
from x402sim.suite.verdict import STOPPED, Outcome, Result

HELD, FOUND_SOMETHING, NO_VERDICT = 0, 1, 2
"""Exit codes: every MUST held; a MUST failed; wrong usage, unreachable or inconclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which checks to run, whether SHOULD counts, and which report files to write."""

    checks: list[Check]
    strict: bool = False
    json: Path | None = None
    junit: Path | None = None
    html: Path | None = None
    sarif: Path | None = None


def find_target(name: str) -> targets.Target:
    """Return a shipped target by name, or the one in a file.

    Raises `ValueError` for an unknown name, a malformed file, and a clause or an error text
    in it that no check has.
    """
    shipped = {file.stem: file for file in sorted((folder() / "targets").glob("*.toml"))}
    file = shipped.get(name, Path(name))
    if not file.is_file():
        raise ValueError(
            f"--target: {unknown('target', name, shipped)}, or the path of a TOML file"
        )
    target = targets.load(file)
    clauses = dict.fromkeys(check.clause for check in all_checks())
    for clause in target.not_kept:
        if clause not in clauses:
            raise ValueError(f"{file}: not_kept: {unknown('id', clause, _near(clauses, clause))}")
    texts = [refusal.text for refusal in Refusal]
    for text in target.statuses:
        if text not in texts:
            raise ValueError(f"{file}: statuses: {unknown('error text', text, texts)}")
    return target


def select(prefixes: Iterable[str]) -> list[Check]:
    """Return the checks whose ids start with any of these; all without any.

    Raises `ValueError` for a prefix that no id has.
    """
    checks, wanted = all_checks(), set()
    for prefix in prefixes:
        found = matching(checks, prefix)
        if not found:
            raise ValueError(
                f"--only: {unknown('id', prefix, _near((c.clause for c in checks), prefix))}"
            )
        wanted |= {check.id for check in found}
    return [check for check in checks if not wanted or check.id in wanted]


def skipped(checks: Iterable[Check], options: Iterable[str]) -> dict[str, str]:
    """Return the cases that --skip ID=REASON names, with the reason.

    Raises `ValueError` for a prefix that no id has, and for a missing reason.
    """
    checks = list(checks)
    left_out: dict[str, str] = {}
    for text in options:
        prefix, _, reason = (part.strip() for part in text.partition("="))
        if not reason:
            raise ValueError(f"--skip {prefix}: give a reason, as in --skip '{prefix}=REASON'")
        found = matching(checks, prefix)
        if not found:
            known = (check.clause for check in checks)
            raise ValueError(f"--skip: {unknown('id', prefix, _near(known, prefix))}")
        left_out |= {check.name: f"--skip: {reason}" for check in found}
    return left_out


def _near(clauses: Iterable[str], prefix: str) -> list[str]:
    """Return the clauses of the section that a prefix names; the sections, if there is none."""
    section = prefix.removeprefix("spec/").split("/")[0]
    ids = dict.fromkeys(clauses)
    return [each for each in ids if each.startswith(f"{section}/")] or sorted(
        {each.split("/")[0] for each in ids}
    )


def judge(
    access: Access, wanted: Wanted, on_begin: Callable[[str], None] = lambda check_id: None
) -> tuple[list[Result], int]:
    """Run the checks in real time; return results and number of requests; raises `NotReady`."""

    async def main() -> tuple[list[Result], int]:
        async with reach(access) as setting:
            ready = await examine(setting, wanted.checks, access.require)
            printing.announce(ready, access.note)
            results = [
                hidden(result, access.secrets)
                async for result in run(ready.setting, wanted.checks, on_begin, ready.state)
            ]
            return results, ready.state.pace.requests

    return asyncio.run(main())


def hidden(result: Result, secrets: tuple[str, ...]) -> Result:
    """Return a result with none of the user's secrets in any of its texts."""

    def clean(value: Any) -> Any:
        match value:
            case str():
                return redact.without(value, secrets)
            case list():
                return [clean(each) for each in value]
            case dict():
                return {name: clean(each) for name, each in value.items()}
            case _:
                return value

    return msgspec.convert(clean(msgspec.to_builtins(result)), Result) if secrets else result


def conclude(results: list[Result], strict: bool) -> int:
    """Return the exit code of these results."""
    counting = [result for result in results if printing.counts(result, strict)]
    if any(result.outcome is Outcome.FAILED for result in counting):
        return FOUND_SOMETHING
    has_stopped = any(result.reason.startswith(STOPPED) for result in results)
    if has_stopped or any(result.outcome is Outcome.INCONCLUSIVE for result in counting):
        return NO_VERDICT
    was_judged = any(result.outcome is not Outcome.SKIPPED for result in counting or results)
    return HELD if was_judged else NO_VERDICT


def write(access: Access, started: str, results: list[Result], wanted: Wanted) -> None:
    """Write the report files that are wanted; raises `OSError`."""
    plain: list[dict[str, Any]] = [msgspec.to_builtins(result) for result in results]
    if wanted.json is not None:
        text = json.dumps(report.as_json(access.base_url, started, plain), indent=2) + "\n"
        if str(wanted.json) == "-":
            sys.stdout.write(text)
        else:
            wanted.json.write_text(text, encoding="utf-8")
    if wanted.junit is not None:
        wanted.junit.write_bytes(report.as_junit(access.base_url, started, plain))
    if wanted.sarif is not None:
        demands = folder() / FILE
        sarif = json.dumps(
            report.as_sarif(access.base_url, plain, demands.read_text(encoding="utf-8")), indent=2
        )
        wanted.sarif.write_text(sarif + "\n", encoding="utf-8")
    if wanted.html is not None:
        from x402sim.report.conformance_html import page

        wanted.html.write_text(page(access.base_url, started, plain), encoding="utf-8")


def play(access: Access, wanted: Wanted) -> int:
    """Run the checks, show progress, print and write the results; return the exit code."""
    elapsed = stopwatch()
    started = datetime.fromtimestamp(Clock().now(), UTC).isoformat(timespec="seconds")
    console = Console(stderr=True, highlight=False)
    total, begun = len({check.id for check in wanted.checks}), itertools.count(1)
    with console.status("connecting to the target") as status:

        def on_begin(check_id: str) -> None:
            line = f"{next(begun)} of {total}  {check_id}"
            if console.is_terminal:
                status.update(line)
            else:
                console.print(line)

        try:
            results, requests = judge(access, wanted, on_begin)
        except NotReady as error:
            console.print(f"x402sim: {escape(printable(str(error)))}", soft_wrap=True)
            return NO_VERDICT
    if str(wanted.json) != "-":
        printing.show_results(results, wanted.strict)
    for line in not_in_full(results) if access.world_url else ():
        console.print(escape(printable(line)), soft_wrap=True)
    lacks = lacking(results, access.require)
    for line in lacks:
        console.print(escape(printable(line)), soft_wrap=True)
    console.print(f"{requests} requests in {elapsed():.1f} s")
    write(access, started, results, wanted)
    code = conclude(results, wanted.strict)
    if code == NO_VERDICT and all(result.outcome is Outcome.SKIPPED for result in results):
        console.print("nothing was judged: every id was skipped")
    return NO_VERDICT if code == HELD and lacks else code
