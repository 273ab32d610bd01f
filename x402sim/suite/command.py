"""`python -m x402sim conformance`: one judgement of a subject, from options to exit code.

A baseline is an earlier JSON report of the same subject, or a TOML file of ids with reasons;
findings of the baseline do not count again. An id of the TOML file that holds fails the run.
"""

import asyncio
import os
import re
import signal
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.markup import escape

from x402sim.clock import Clock, stopwatch
from x402sim.report import conformance as report
from x402sim.report.causes import cause
from x402sim.report.conformance import About, unready, written
from x402sim.report.results import (
    INTERRUPTED as WAS_INTERRUPTED,
    CaseResult,
    Outcome,
    Result,
    by_dialect,
)
from x402sim.suite import printing, published
from x402sim.suite.case import in_order, unfinished
from x402sim.suite.engine import Judging
from x402sim.suite.subject import Chosen, Subject, Tell
from x402sim.suite.verdict import NotReady
from x402sim.text.console import console as new_console
from x402sim.text.words import counted, printable, unknown

WANTED = "a JSON report (--json-file) of an earlier run, or a TOML file of ids with reasons"
AS_TOML = 'a line of it: "facilitator/fields/network" = "repaired in the next release"'
_OPEN = (Outcome.FAILED, Outcome.INCONCLUSIVE)


class _Case(msgspec.Struct, frozen=True):
    """A case in a baseline."""

    title: str
    outcome: Outcome
    dialect: str = ""


class _Found(msgspec.Struct, frozen=True):
    """An id in a baseline."""

    id: str
    outcome: Outcome
    cases: tuple[_Case, ...]


class Baseline(msgspec.Struct, frozen=True):
    """A baseline: the kind of subject, and the results."""

    results: tuple[_Found, ...]
    subject: str = "service"


@dataclass(frozen=True, slots=True)
class Reasons:
    """Known failures: a reason for each id, or for "ID [DIALECT]"."""

    by_id: Mapping[str, str]

    def of(self, result: Result) -> dict[str, str]:
        """Return the entries about the judged dialects of a result, by dialect."""
        entries = {dialect: f"{result.id} [{dialect}]" for dialect in by_dialect(result)}
        named = {name: it if it in self.by_id else result.id for name, it in entries.items()}
        return {name: it for name, it in named.items() if it in self.by_id}


def load(file: Path, subject: str, ids: Collection[str] = ()) -> Baseline | Reasons:
    """Return a baseline; raises `ValueError` for another kind of file, or another subject's.

    `ids` are all ids of the subject: a TOML file of reasons may name no other.
    """
    if file.suffix == ".toml":
        return _reasons(file, ids)
    try:
        found = msgspec.json.decode(file.read_bytes(), type=Baseline)
    except OSError as error:
        raise ValueError(f"--baseline {file}: {error.strerror}; it is {WANTED}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"--baseline {file}: {error}; it is {WANTED}") from error
    if found.subject != subject:
        raise ValueError(f"--baseline {file}: it is about a {found.subject}, not a {subject}")
    return found


def _reasons(file: Path, ids: Collection[str]) -> Reasons:
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"--baseline {file}: {error.strerror}; it is {WANTED}") from error
    except ValueError as error:
        raise ValueError(f"--baseline {file}: {error}; {AS_TOML}") from error
    for name, reason in found.items():
        if not isinstance(reason, str) or not reason:
            raise ValueError(f"--baseline {file}: {name} has no reason; {AS_TOML}")
        if (check_id := re.sub(r" \[[\w-]+\]$", "", name)) not in ids:
            raise ValueError(
                f"--baseline {file}: {unknown('id', check_id, ids, possible='--list')}"
            )
    return Reasons(found)


def known(results: Sequence[Result], baseline: Baseline | Reasons) -> list[Result]:
    """Return results; the findings that the baseline has, too, are marked as known."""
    if isinstance(baseline, Reasons):
        return [_with_reason(each, baseline) for each in results]
    before = {each.id: each for each in baseline.results}
    return [
        msgspec.structs.replace(each, is_known=_is_known(each, before.get(each.id)))
        for each in results
    ]


def _with_reason(result: Result, reasons: Reasons) -> Result:
    entries = reasons.of(result)
    failed = [name for name, it in by_dialect(result).items() if it.outcome is Outcome.FAILED]
    if not failed or not {*failed} <= {*entries}:
        return result
    why = "; ".join(dict.fromkeys(reasons.by_id[entries[name]] for name in failed))
    return msgspec.structs.replace(result, is_known=True, known_because=why)


def _is_known(result: Result, before: _Found | None) -> bool:
    if before is None or result.outcome not in _OPEN or result.outcome is not before.outcome:
        return False
    known = [each for each in before.cases if each.outcome is result.outcome]
    now = [each for each in result.cases if each.outcome is result.outcome]
    if result.outcome is Outcome.INCONCLUSIVE:
        return {each.dialect for each in now} <= {each.dialect for each in known}
    return {_key(each) for each in now} <= {_key(each) for each in known}


def _key(case: CaseResult | _Case) -> tuple[str, str]:
    """Return the key of a case within an id: the dialect, or the title without a dialect."""
    return ("" if case.dialect else printable(case.title), case.dialect)


def mended(results: Sequence[Result], baseline: Baseline | Reasons) -> list[str]:
    """Return the ids that failed in the baseline, and hold now; of reasons, the entries."""
    holds = (Outcome.PASSED, Outcome.OBSERVED)
    if isinstance(baseline, Reasons):
        seen: dict[str, list[Outcome]] = {}
        for result in results:
            for dialect, entry in baseline.of(result).items():
                seen.setdefault(entry, []).append(by_dialect(result)[dialect].outcome)
        return [each for each, found in seen.items() if all(it in holds for it in found)]
    failed = {each.id for each in baseline.results if each.outcome is Outcome.FAILED}
    return [each.id for each in results if each.id in failed and each.outcome in holds]


HELD, FOUND_SOMETHING, NO_VERDICT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: every MUST held; a MUST failed; wrong usage, unreachable, invalid or inconclusive;
Ctrl-C."""
STDOUT = "-"
"""The name of a report file that means the standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The user's requests for any judgement, whatever the subject.

    `files` maps kinds of report to paths: json, junit, html, sarif, markdown, annotations; - for
    stdout. With `strict`, a failed SHOULD counts. Findings of the `baseline`, a JSON report, do not
    count; nor, if `accepts_published`, failures known of the closest published version.
    """

    files: Mapping[str, Path] = field(default_factory=dict)
    strict: bool = False
    baseline: Baseline | Reasons | None = None
    accepts_published: bool = False
    shows: bool = True
    """Whether the results are printed."""
    on_done: Callable[[About, Sequence[Result]], None] = lambda about, results: None
    """Gets the results of a run that was not interrupted."""


async def judged(
    subject: Subject[Any],
    options: Chosen,
    cases: Sequence[Any],
    on_begin: Callable[[str, int, int], None] = lambda check_id, place, ids: None,
    on_result: Callable[[Result], None] = lambda result: None,
    tell: Tell = lambda text: None,
    on_ready: Callable[[Judging[Any]], None] = lambda judging: None,
) -> tuple[list[Result], str]:
    """Judge a subject in real time; return results and a record of the run; raises `NotReady`.

    The results are in the order of the cases. `on_result` gets each result as soon as the result is
    certain. `on_begin` gets each id that begins, the number of certain ids and of planned ids, both
    without the ids that did not apply. `on_ready` gets the plan once the subject has been examined.
    """
    results: list[Result] = []
    async with subject.begin(options, cases, tell) as judging:
        on_ready(judging)
        ids = set(judging.plan.ids)

        def begin(check_id: str) -> None:
            if check_id in ids:
                done = [each for each in results if each.id in ids]
                skipped = sum(each.outcome is Outcome.SKIPPED for each in done)
                on_begin(check_id, len(done) - skipped, len(ids) - skipped)

        async for result in judging.run(begin):
            results.append(result)
            on_result(result)
        return in_order(results, cases), judging.done()


def judge(*given: Any, **named: Any) -> tuple[list[Result], str]:
    """Judge a subject on an event loop of its own; arguments and result are those of `judged`."""

    async def main() -> tuple[list[Result], str]:
        _ends_in_order()
        return await judged(*given, **named)

    return asyncio.run(main())


def _ends_in_order() -> None:
    """End this task at SIGTERM as at Ctrl-C, so that a started subject ends, too."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or another thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def conclude(results: list[Result], strict: bool) -> int:
    """Return the exit code of results."""
    codes = {Outcome.PASSED: HELD, Outcome.FAILED: FOUND_SOMETHING}
    return codes.get(report.verdict(results, strict)[0], NO_VERDICT)


def require_places(files: Mapping[str, Path]) -> None:
    """Raise `ValueError` unless every report can be written to its path."""
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


def play(subject: Subject[Any], options: Chosen, cases: Sequence[Any], asked: Asked) -> int:
    """Judge a subject, show progress, print and write the results; return the exit code.

    Raises `OSError` for a report that cannot be written.
    """
    elapsed = stopwatch()
    started = datetime.fromtimestamp(Clock().now(), UTC).isoformat(timespec="seconds")
    console = new_console(stderr=True, highlight=False)
    found: list[Result] = []
    begun: list[Judging[Any]] = []
    is_whole, was_interrupted, sections = False, False, set[str]()
    battery = published.battery_of(subject.cases())[0]
    with console.status("connecting to the target") as status:

        def tell(text: str) -> None:
            with printing.unread(console):
                console.print(escape(printable(text)))

        def on_ready(judging: Judging[Any]) -> None:
            begun.append(judging)
            printing.announce(judging.plan)

        def broken_off(why: str) -> list[Result]:
            return unfinished(found, begun[0].cases if begun else cases, options.rerun, why)

        def on_begin(check_id: str, certain: int, ids: int) -> None:
            section = check_id.split("/")[1]
            if console.is_terminal:
                status.update(f"{certain} of {ids} certain  {check_id}")
            elif section not in sections:
                tell(f"{certain} of {ids} certain  section {section}")
            sections.add(section)

        def on_result(result: Result) -> None:
            found.append(result)
            if result.outcome is Outcome.FAILED:
                tell(f"failed {result.id} {result.level}: {cause(result)}")

        try:
            results, done = judge(subject, options, cases, on_begin, on_result, tell, on_ready)
            done, is_whole = f"{done} in {elapsed():.1f} s", True
        except NotReady as error:
            console.print(f"x402sim: {escape(printable(str(error)))}", soft_wrap=True)
            results = broken_off(str(error))
            if not found:
                about = About(
                    subject.name, options.shown, started, subject.sections, battery=battery
                )
                for kind, file in asked.files.items():
                    is_short = kind == "annotations"  # a line for each id would say the same
                    short = unready(subject.name, str(error)) if is_short else ""
                    _write(file, short or written(kind, about, results, strict=asked.strict))
                return NO_VERDICT
            done = f"not judged any further after {elapsed():.1f} s"
        except (KeyboardInterrupt, asyncio.CancelledError):
            was_interrupted = True
            results = broken_off(WAS_INTERRUPTED)
            done = (
                f"interrupted after {elapsed():.1f} s: {len(found)} of "
                f"{counted(len(results), 'id')} certain"
            )
    if asked.baseline is not None:
        results = known(results, asked.baseline)
    version = published.closest(results, subject.name)
    if version is not None:
        results = published.marked(results, version)
    if asked.accepts_published:
        results = [
            msgspec.structs.replace(each, is_known=each.is_known or bool(each.known_of))
            for each in results
        ]
    unspoken = begun[0].plan.unspoken if begun else {}
    about = About(subject.name, options.shown, started, subject.sections, unspoken, battery)
    if is_whole:
        asked.on_done(about, results)
    for kind, file in asked.files.items():
        _write(file, written(kind, about, results, strict=asked.strict))
    if asked.shows and STDOUT not in map(str, asked.files.values()):
        whole = " or ".join(str(file) for file in asked.files.values()) or printing.FILES
        printing.show_results(subject, results, asked.strict, whole=whole)
    in_part, lacks = begun[0].left_open(results) if begun else ([], [])
    for line in [*in_part, *lacks]:
        tell(line)
    held = mended(results, asked.baseline) if asked.baseline else []
    is_stale = bool(held) and isinstance(asked.baseline, Reasons)
    if held:
        so = ": take it out of the baseline" if is_stale else ""
        tell(f"failed in the baseline, and holds now: {', '.join(held)}{so}")
    if asked.accepts_published:
        if version is None:
            tell("--baseline known: no published version has these failures; all of them count")
        elif here := published.mended(results, version):
            tell(f"known of {version.name}, and holds here: {', '.join(here)}")
    tell(done)
    if was_interrupted:
        return INTERRUPTED
    code = conclude(results, asked.strict)
    if code == HELD and is_stale:
        return FOUND_SOMETHING
    return NO_VERDICT if code == HELD and lacks else code


def _write(file: Path, text: str) -> None:
    if str(file) == STDOUT:
        sys.stdout.write(text)
    else:
        file.write_text(text, encoding="utf-8")
