"""`python -m x402sim conformance`: one run of the suite, from options to exit code."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.markup import escape

from x402sim.clock import Clock, stopwatch
from x402sim.protocol.refusals import Refusal
from x402sim.report import conformance as report
from x402sim.report.results import Outcome, Result
from x402sim.spec.folder import folder
from x402sim.suite import one_step, printing, target as targets
from x402sim.suite.check import DEMANDS, DOCUMENT, DOCUMENTS, Check
from x402sim.suite.engine import all_checks, matching, run
from x402sim.suite.plan import why_left
from x402sim.suite.preflight import examine
from x402sim.suite.remote import NotReady, reach
from x402sim.suite.setting import Options
from x402sim.suite.verdict import lacking, not_in_full
from x402sim.text.console import console as new_console
from x402sim.text.printable import printable
from x402sim.text.suggest import unknown

HELD, FOUND_SOMETHING, NO_VERDICT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: every MUST held; a MUST failed; wrong usage, unreachable or inconclusive; Ctrl-C."""
STDOUT = "-"
"""The name of a report file that means the standard output."""


def find_target(name: str) -> targets.Target:
    """Return a shipped target by name, or the one in a file.

    Raises `ValueError` for an unknown name, a malformed file, and a clause or an error text
    in it that no check has.
    """
    shipped = {file.stem: file for file in sorted((folder() / "targets").glob("*.toml"))}
    file = shipped.get(name, Path(name))
    if not file.is_file():
        if name.endswith(".toml") or "/" in name:
            raise ValueError(
                f"--target: there is no file {name!r}; `target init URL --out FILE` writes one"
            )
        raise ValueError(
            f"--target: {unknown('target', name, shipped)}, or the path of a TOML file"
        )
    target = one_step.completed(targets.load(file))
    kept = {name.removeprefix(f"{DOCUMENT}/"): why for name, why in target.not_kept.items()}
    target = msgspec.structs.replace(target, not_kept=kept)
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

    Several may stand in one text, separated by commas. Raises `ValueError` for a prefix that no
    id has.
    """
    checks, wanted = all_checks(), set()
    for prefix in (part.strip() for text in prefixes for part in text.split(",")):
        wanted |= {check.id for check in _named("--only", prefix, checks)}
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
        found = _named("--skip", prefix, checks)
        left_out |= {check.name: f"--skip: {reason}" for check in found}
    return left_out


def _named(option: str, prefix: str, checks: list[Check]) -> list[Check]:
    """Return the checks whose ids an option gives the beginning of; raises `ValueError`."""
    if found := matching(checks, prefix):
        return found
    near = _near((check.clause for check in checks), prefix)
    raise ValueError(f"{option}: {unknown('id', prefix, near)}")


def _near(clauses: Iterable[str], prefix: str) -> list[str]:
    """Return the clauses of the section that a prefix names; the beginnings, if there is none."""
    section = prefix.removeprefix(f"{DOCUMENT}/").split("/")[0]
    ids, documents = dict.fromkeys(clauses), dict.fromkeys(DOCUMENTS.values())
    sections = sorted({each.split("/")[0] for each in ids} - documents.keys())
    return [each for each in ids if each.startswith(f"{section}/")] or [*sections, *documents]


def judge(
    options: Options,
    checks: list[Check],
    on_begin: Callable[[str, int, int], None] = lambda check_id, place, ids: None,
    on_result: Callable[[Result], None] = lambda result: None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[list[Result], int]:
    """Run the checks in real time; return results and number of requests; raises `NotReady`.

    The results are in the order of the checks; `on_result` is called with each as soon as it is
    certain, `on_begin` with each id of which something can be judged, its place, and how many there
    are.
    """

    async def main() -> tuple[list[Result], int]:
        results = []
        async with reach(options, tell) as setting:
            printing.announce(options, await examine(setting, checks))
            runnable = [check for check in checks if not why_left(setting, check)]
            ids = list(dict.fromkeys(check.id for check in runnable))

            def begin(check_id: str) -> None:
                if check_id in ids:
                    on_begin(check_id, ids.index(check_id) + 1, len(ids))

            async for result in run(setting, checks, begin):
                results.append(result)
                on_result(result)
            return in_order(results, checks), setting.pace.requests

    return asyncio.run(main())


def in_order(results: Iterable[Result], checks: Iterable[Check]) -> list[Result]:
    """Return results in the order of the checks: what waits ends last, and belongs elsewhere."""
    places = {check_id: place for place, check_id in enumerate(dict.fromkeys(c.id for c in checks))}
    return sorted(results, key=lambda result: places[result.id])


def completed(results: list[Result], checks: list[Check], rerun: str) -> list[Result]:
    """Return the results of a run that was interrupted: the other ids are inconclusive."""
    judged = {result.id for result in results}
    missing = {check.id: check for check in checks if check.id not in judged}
    rest = [
        Result(
            id=check.id,
            level=check.level,
            section=check.section,
            outcome=Outcome.INCONCLUSIVE,
            title=check.title,
            reason="the run was interrupted before this was certain",
            rerun=f"{rerun} --only {check.id}".strip(),
            ground=check.ground,
        )
        for check in missing.values()
    ]
    return in_order([*results, *rest], checks)


def conclude(results: list[Result], strict: bool) -> int:
    """Return the exit code of these results."""
    codes = {Outcome.PASSED: HELD, Outcome.FAILED: FOUND_SOMETHING}
    return codes.get(report.verdict(results, strict)[0], NO_VERDICT)


def require_places(files: Mapping[str, Path]) -> None:
    """Raise `ValueError` unless every report can be written where it is wanted, by its kind."""
    if [str(file) for file in files.values()].count(STDOUT) > 1:
        raise ValueError("- means stdout, which takes one report only: give the others a FILE")
    for kind, file in files.items():
        if str(file) == STDOUT:
            continue
        if file.is_dir():
            raise ValueError(f"--{kind} {file}: it is a folder; give the path of a file")
        if not file.parent.is_dir():
            raise ValueError(f"--{kind} {file}: there is no folder {file.parent}")
        if not os.access(file if file.exists() else file.parent, os.W_OK):
            raise ValueError(f"--{kind} {file}: no permission to write it")


def _as(kind: str, url: str, started: str, results: list[Result], strict: bool) -> str:
    """Return a report of one kind as text."""
    match kind:
        case "json":
            return json.dumps(report.as_json(url, started, results), indent=2) + "\n"
        case "junit":
            return report.as_junit(url, started, results, strict=strict).decode()
        case "sarif":
            demands = (folder() / DEMANDS).read_text(encoding="utf-8")
            return json.dumps(report.as_sarif(url, results, demands), indent=2) + "\n"
        case _:
            from x402sim.report.conformance_html import page

            return page(url, started, results, strict=strict)


def play(
    options: Options, checks: list[Check], *, files: Mapping[str, Path], strict: bool, verbose: bool
) -> int:
    """Run the checks, show progress, print and write the results; return the exit code.

    `files` are where to write each kind of report: json, junit, html, sarif; - for stdout. If
    `strict`, SHOULD counts, and if `verbose`, the terminal names what does not apply, too. Raises
    `OSError` for a report that cannot be written.
    """
    elapsed = stopwatch()
    started = datetime.fromtimestamp(Clock().now(), UTC).isoformat(timespec="seconds")
    console = new_console(stderr=True, highlight=False)
    found: list[Result] = []
    interrupted, section = False, ""
    with console.status("connecting to the target") as status:

        def tell(text: str) -> None:
            with printing.unread(console):
                console.print(escape(printable(text)))

        def on_begin(check_id: str, place: int, ids: int) -> None:
            nonlocal section
            if console.is_terminal:
                status.update(f"{place} of {ids}  {check_id}")
            elif section != (section := check_id.split("/")[1]):
                tell(f"{place} of {ids}  section {section}")

        try:
            results, requests = judge(options, checks, on_begin, found.append, tell)
            done = f"{requests} requests in {elapsed():.1f} s"
        except NotReady as error:
            console.print(f"x402sim: {escape(printable(str(error)))}", soft_wrap=True)
            return NO_VERDICT
        except KeyboardInterrupt:
            interrupted = True
            results = completed(found, checks, options.rerun)
            done = (
                f"interrupted after {elapsed():.1f} s: {len(found)} of {len(results)} ids are "
                "certain"
            )
    for kind, file in files.items():
        text = _as(kind, options.base_url, started, results, strict)
        if str(file) == STDOUT:
            sys.stdout.write(text)
        else:
            file.write_text(text, encoding="utf-8")
    if STDOUT not in map(str, files.values()):
        printing.show_results(results, strict, verbose=verbose)
    lacks = lacking(results, options.require)
    for line in [*(not_in_full(results) if options.world_url else ()), *lacks]:
        tell(line)
    tell(done)
    if interrupted:
        return INTERRUPTED
    code = conclude(results, strict)
    return NO_VERDICT if code == HELD and lacks else code
