"""`python -m x402sim conformance`: one judgement of a subject, from options to exit code."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from x402sim.clock import Clock, stopwatch
from x402sim.suite import printing, published, sdk
from x402sim.suite.baseline import Baseline, Reasons, known, mended
from x402sim.suite.case import in_order, unfinished
from x402sim.suite.engine import Judging
from x402sim.suite.report import conformance as report
from x402sim.suite.report.causes import cause
from x402sim.suite.report.conformance import About, unready, written
from x402sim.suite.report.results import INTERRUPTED as WAS_INTERRUPTED, Outcome, Result
from x402sim.suite.subject import Chosen, Subject, Tell
from x402sim.suite.verdict import NotReady
from x402sim.text.console import console as new_console
from x402sim.text.words import counted, printable

HELD, FOUND_SOMETHING, NO_VERDICT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: every MUST held; a MUST failed; wrong usage, unreachable, invalid or inconclusive;
Ctrl-C."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The user's requests for any judgement, whatever the subject.

    The suffix of a report's file is the form. With `as_json`, stdout gets the JSON report. With
    `strict`, a failed SHOULD counts. Findings of the `baseline`, a JSON report, do not count; nor,
    if `accepts_published`, failures known of the closest published version.
    """

    files: Sequence[Path] = ()
    as_json: bool = False
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
    """End this task at SIGTERM as at Ctrl-C: a started subject ends, too."""
    task = asyncio.current_task()
    assert task is not None
    with suppress(NotImplementedError, RuntimeError, ValueError):  # Windows, or another thread
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def conclude(results: list[Result], strict: bool) -> int:
    """Return the exit code of results."""
    codes = {Outcome.PASSED: HELD, Outcome.FAILED: FOUND_SOMETHING}
    return codes.get(report.verdict(results, strict)[0], NO_VERDICT)


def require_place(option: str, file: Path) -> None:
    """Raise `ValueError` unless a file can be written to the path that an option names."""
    if file.is_dir():
        raise ValueError(f"{option} {file}: it is a folder; give the path of a file")
    if not file.parent.is_dir():
        raise ValueError(f"{option} {file}: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ValueError(f"{option} {file}: no permission to write it")


@dataclass(slots=True)
class _Progress:
    """Follows a run, and tells the user on stderr what happens."""

    console: Console
    status: Status
    certain: list[Result] = field(default_factory=list)
    """The results of the ids that are certain."""
    judging: Judging[Any] | None = None
    """The run, once the subject has been examined."""
    _sections: set[str] = field(default_factory=set)

    def tell(self, text: str) -> None:
        """Print a line."""
        with printing.unread(self.console):
            self.console.print(escape(printable(text)))

    def on_ready(self, judging: Judging[Any]) -> None:
        """Print the plan."""
        self.judging = judging
        printing.announce(judging.plan)

    def on_begin(self, check_id: str, certain: int, ids: int) -> None:
        """Show the id that begins; without a terminal, only the first id of a section."""
        section = check_id.split("/")[1]
        if self.console.is_terminal:
            self.status.update(f"{certain} of {ids} certain  {check_id}")
        elif section not in self._sections:
            self.tell(f"{certain} of {ids} certain  section {section}")
        self._sections.add(section)

    def on_result(self, result: Result) -> None:
        """Keep a result, and tell a failure at once."""
        self.certain.append(result)
        if result.outcome is Outcome.FAILED:
            self.tell(f"failed {result.id} {result.level}: {cause(result)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run that has ended: the results, and a line with the work and the seconds."""

    results: list[Result]
    end: str
    progress: _Progress
    broken_off: str | None = None
    """Why the run ended early; None for a whole run."""

    @property
    def unready(self) -> str | None:
        """Why nothing could be judged; None for a run with results, or one that the user ended."""
        was_interrupted = self.broken_off == WAS_INTERRUPTED
        return None if was_interrupted or self.progress.certain else self.broken_off


def judge_and_report(
    subject: Subject[Any], options: Chosen, cases: Sequence[Any], asked: ReportOptions
) -> int:
    """Judge a subject, show progress, print and write the results; return the exit code.

    Raises `OSError` for a report that cannot be written.
    """
    started = datetime.fromtimestamp(Clock().now(), UTC).isoformat(timespec="seconds")
    battery = published.battery_of(subject.cases())[0]
    about = About(subject.name, options.shown, started, subject.sections, battery=battery)
    run = _run(subject, options, cases)
    if run.unready is not None:
        _report(asked, about, run.results, unready(subject.name, run.unready))
        return NO_VERDICT
    of_package = [sdk.named(subject.name, each)[0] for each in getattr(options, "sdk", ())]
    own = "".join(each.name for each in of_package[:1])
    results, version = _marked(run.results, subject, asked, own)
    judging = run.progress.judging
    if judging is not None:
        about = replace(about, unspoken=judging.plan.unspoken)
    if run.broken_off is None:
        asked.on_done(about, results)
    _report(asked, about, results)
    if asked.shows and not asked.as_json:
        whole = " or ".join(map(str, asked.files)) or printing.FILES
        printing.show_results(subject, results, asked.strict, whole=whole)
    notes, unmet = judging.left_open(results) if judging else ([], [])
    old_entries = mended(results, asked.baseline) if asked.baseline else []
    is_stale = bool(old_entries) and isinstance(asked.baseline, Reasons)
    for line in (
        *notes,
        *unmet,
        *_about_baseline(old_entries, is_stale),
        *_about_published(results, version, asked),
        run.end,
    ):
        run.progress.tell(line)
    if run.broken_off == WAS_INTERRUPTED:
        return INTERRUPTED
    code = conclude(results, asked.strict)
    if code == HELD and is_stale:
        return FOUND_SOMETHING
    return NO_VERDICT if code == HELD and unmet else code


def _run(subject: Subject[Any], options: Chosen, cases: Sequence[Any]) -> _Run:
    """Judge a subject; a run that ends early has an inconclusive result for each missing id."""
    elapsed = stopwatch()
    console = new_console(stderr=True, highlight=False)
    with console.status("connecting to the target") as status:
        progress = _Progress(console, status)
        on_begin, on_result, tell = progress.on_begin, progress.on_result, progress.tell
        try:
            results, work = judge(
                subject, options, cases, on_begin, on_result, tell, progress.on_ready
            )
            return _Run(results=results, end=f"{work} in {elapsed():.1f} s", progress=progress)
        except NotReady as error:
            console.print(f"x402sim: {escape(printable(str(error)))}", soft_wrap=True)
            why, end = str(error), f"not judged any further after {elapsed():.1f} s"
        except (KeyboardInterrupt, asyncio.CancelledError):
            why, end = WAS_INTERRUPTED, f"interrupted after {elapsed():.1f} s"
    wanted = progress.judging.cases if progress.judging else cases
    results = unfinished(progress.certain, wanted, options.rerun, why)
    if why == WAS_INTERRUPTED:
        end += f": {len(progress.certain)} of {counted(len(results), 'id')} certain"
    return _Run(results=results, end=end, progress=progress, broken_off=why)


def _marked(
    results: list[Result], subject: Subject[Any], asked: ReportOptions, own: str
) -> tuple[list[Result], published.Version | None]:
    """Return the results with the marks of known failures, and the closest published version."""
    if asked.baseline is not None:
        results = known(results, asked.baseline)
    version = published.closest(results, subject.name, own)
    if version is not None:
        results = published.marked(results, version)
    if asked.accepts_published:
        results = [
            msgspec.structs.replace(each, is_known=each.is_known or bool(each.known_of))
            for each in results
        ]
    return results, version


def _about_baseline(old_entries: Sequence[str], is_stale: bool) -> Iterator[str]:
    """Yield a line for the failures of the baseline that hold now."""
    if old_entries:
        todo = ": take it out of the baseline" if is_stale else ""
        yield f"failed in the baseline, and holds now: {', '.join(old_entries)}{todo}"


def _about_published(
    results: Sequence[Result], version: published.Version | None, asked: ReportOptions
) -> Iterator[str]:
    """Yield a line about the published version whose failures do not count."""
    if not asked.accepts_published:
        return
    if version is None:
        yield "--baseline known: no published version has these failures; all of them count"
    elif mended_here := published.mended(results, version):
        yield f"known of {version.name}, and holds here: {', '.join(mended_here)}"


def _report(
    asked: ReportOptions, about: About, results: Sequence[Result], annotation: str = ""
) -> None:
    """Write the reports; `annotation` is for a file of annotations, in place of a line an id."""
    for file in asked.files:
        is_short = annotation and file.suffix == ".txt"
        text = annotation if is_short else written(file.suffix, about, results, strict=asked.strict)
        file.write_text(text, encoding="utf-8")
    if asked.as_json:
        sys.stdout.write(written(".json", about, results))
