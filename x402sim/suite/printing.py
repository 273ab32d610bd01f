"""The suite's output in a terminal: the list of ids, the costs, the results.

Results quote answers of the target, so all text is printed escaped.
"""

import os
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from x402sim.spec.ground import Ground, GroundType
from x402sim.suite.case import Case, by_ground, by_id
from x402sim.suite.engine import Plan
from x402sim.suite.report import conformance as report, exchange
from x402sim.suite.report.causes import LOSSES, by_cause, cause, loss, repair
from x402sim.suite.report.results import NOT_JUDGED, Outcome, Result, Results
from x402sim.suite.subject import Subject
from x402sim.text.console import console as new_console
from x402sim.text.words import counted, printable

COLUMNS = 79
MANY = 4
"""The most ids named beside a cause, and the most cases of an id shown in full."""
MOST_LISTED, MOST_NAMED = 40, 80
"""The most ids listed a line each (observed, of one cause), and named in a list (not judged)."""
WIDTH = 66
"""The width of a quotation: with the indent, a line stays below 80 columns."""
MOST_AGAIN, MOST_ACTUAL, MOST_LINE = 400, 5 * COLUMNS, 3 * COLUMNS
"""The most characters printed of the command that repeats a request, of the actual behaviour, and
of a line of the exchange."""
FILES = "--report report.html, or .json"
_COLORS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.SKIPPED: "dim",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.OBSERVED: "cyan",
}


def show_list(subject: Subject[Any], cases: Sequence[Case]) -> None:
    """Print the ids with level and cost, the ground of each case, and the needs."""
    console = new_console(soft_wrap=True, highlight=False)
    for check_id, its in by_id(cases).items():
        needs = sorted({subject.needs.get(need, str(need)) for case in its for need in case.needs})
        cost = f", {costs}" if (costs := subject.costs(its)) else ""
        dialects = " ".join(["", *dict.fromkeys(case.dialect for case in its if case.dialect)])
        console.print(f"[bold]{check_id}[/]  {its[0].level}{dialects}{cost}")
        if text := subject.texts(check_id):
            for line in textwrap.wrap(text, COLUMNS - 2):
                console.print(f"  {escape(line)}", style="dim")
        for ground, its_cases in by_ground(its):
            _show_ground(console, ground)
            titles = [case.title + " (decisive)" * bool(case.decides) for case in its_cases]
            for title in dict.fromkeys(titles):
                _show(console, "  - ", title, "    ")
        if needs:
            _show(console, "  needs ", ", ".join(needs), "    ")
    kinds = Counter(str(case.ground.kind) for case in cases)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in GroundType)
    of = f"{counted(len(by_id(cases)), 'id')}, {counted(len(cases), 'case')}"
    console.print(f"\n{of}: {counts}")


def _show_ground(console: Console, ground: Ground) -> None:
    """Print the ground of a demand, each sentence from a new line."""
    label = str(ground.kind)
    for sentence in ground.lines:
        for line in textwrap.wrap(sentence, WIDTH):
            console.print(f"  {label:<9} {escape(line)}")
            label = ""


def announce(plan: Plan) -> None:
    """Print the plan of a run before further payments are signed: what is played and left out."""
    console = new_console(stderr=True, highlight=False)
    with unread(console):
        for line in plan.lines:
            console.print(_shown(line))


@contextmanager
def unread(console: Console) -> Iterator[None]:
    """Let a run write its reports though nobody reads its output any more (`| head`).

    Without this, `rich` ends the process.
    """
    try:
        yield
    except (BrokenPipeError, SystemExit):
        console.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, console.file.fileno())
        os.close(nowhere)


def _note(result: Result, strict: bool) -> str:
    """Return a note for a result that does not count for the exit code; else an empty text."""
    counts = report.counts_for_exit(result, strict)
    return "" if counts else f" ({report.why_uncounted(result)})"


def show_results(
    subject: Subject[Any],
    results: list[Result],
    strict: bool,
    *,
    whole: str = FILES,
) -> None:
    """Print the failures, their causes, observations, what was not judged, the verdict.

    A long line is printed without its middle; `whole` says where to find the full text.
    """
    console = new_console(soft_wrap=True, highlight=False)
    with unread(console):
        groups = by_cause(results)
        for group in groups:
            _show_cause(console, subject, group, strict, whole)
        if len(groups) > 1:
            console.print(f"{len(groups)} probable causes:")
        for place, (first, *rest) in enumerate(groups if len(groups) > 1 else (), start=1):
            _show(console, f"{place:>3}. ", cause(first), "     ")
            more = f"; with it {', '.join(each.id for each in rest[:MANY])}" if rest else ""
            more += f" and {len(rest) - MANY} more" if len(rest) > MANY else ""
            lost = f"; {LOSSES[lost]}" if (lost := loss([first, *rest])) else ""
            summary_line = f"{first.level} {first.outcome}{lost}{more}"
            _show(console, f"     [dim]{first.id}[/] ", summary_line, "       ")
        observed = [each for each in results if each.outcome is Outcome.OBSERVED]
        for result in observed[:MOST_LISTED]:
            _show(console, f"[cyan]observed[/] {result.id}: ", result.actual or "", "  ")
        _show_more(console, len(observed) - MOST_LISTED, "observed")
        _show_not_begun(console, results)
        told = report.tally(results, strict)
        line = ", ".join(f"[{_COLORS[outcome]}]{text}[/]" for outcome, text in told)
        console.print(f"\n{counted(len(results), 'id')}: {line}")
        if losses := report.total_loss(results):
            console.print(
                f"lost (transfers, or the price of unpaid goods): {_shown(', '.join(losses))}"
            )
        outcome, why = report.verdict(results, strict)
        console.print(f"[{_COLORS[outcome]}]{escape(why)}[/]")


def _show_cause(
    console: Console, subject: Subject[Any], group: list[Result], strict: bool, whole: str
) -> None:
    """Print the ids with one cause, failed or inconclusive: the first in full, then the others."""
    first, *rest = group
    if first.outcome is Outcome.FAILED:
        _show_failure(console, subject, first, strict, whole)
        if rest:
            console.print(f"[red bold]probably for the same cause[/], {len(rest)} more:")
            for each in rest[:MOST_LISTED]:
                what = each.title
                if each.outcome is Outcome.FAILED and cause(each) != cause(first):
                    what = cause(each)
                note = _note(each, strict)
                note = "" if note == _note(first, strict) else note
                line = f"{each.id} {each.level}, {each.outcome}{note}: {what}"
                _show(console, "  ", line, "    ")
            _show_more(console, len(rest) - MOST_LISTED, "for the same cause")
            console.print()
        return
    number = first.id if not rest else str(len(group))
    _show(console, f"[yellow]inconclusive[/] {number}: ", first.reason, "  ")
    if rest:
        _show(console, "  ", ", ".join(each.id for each in group), "  ")


def _show_failure(
    console: Console, subject: Subject[Any], result: Result, strict: bool, whole: str
) -> None:
    part, note = report.headline(result).removeprefix("failed"), escape(_note(result, strict))
    console.print(f"[red bold]failed[/]{part} [bold]{result.id}[/] {result.level}{note}")
    _show(console, "  cause     ", cause(result))
    if todo := repair(result):
        _show(console, "  to repair ", todo)
    if text := subject.texts(result.id):
        _show(console, "  clause    ", text)
    cases = report.shown(result)
    for case, ground in cases[:MANY]:
        _show(console, "  check     ", report.named(case))
        label = str(case.ground.kind) if case.ground else ""
        for sentence in ground[1:]:
            for line in textwrap.wrap(sentence, WIDTH):
                console.print(f"  {label:<9} {escape(line)}")
                label = ""
        _show(console, "  expected  ", str(case.expected))
        _show(console, "  actual    ", _cut(str(case.actual), MOST_ACTUAL))
        if case.loss is not None:
            _show(console, "  loss      ", str(case.loss))
        lines, is_cut = exchange.lines(case.exchanges, is_short=True)
        for line in lines:
            _show(console, "  [dim]|[/] ", _cut_line(line), "  [dim]|[/]   ")
        for command in exchange.commands(case.exchanges):  # one line to copy
            again = command if len(command) <= MOST_AGAIN else f"the command: {whole}"
            console.print(f"  {exchange.AGAIN}{_shown(again)}")
        is_long = max(map(len, lines), default=0) > MOST_LINE
        if is_cut or is_long or len(str(case.actual)) > MOST_ACTUAL:
            _show(console, "  […]       ", f"shortened here; the whole: {whole}")
    if more := "; ".join(report.named(case) for case, _ in cases[MANY:]):
        _show(console, "  as well   ", more)
    _show_not_judged(console, result)
    console.print(f"  run it again: {_shown(result.rerun)}\n")


def _show_not_begun(console: Console, results: list[Result]) -> None:
    """Print the ids with cases that were not judged, grouped by the most common reason.

    An id with a case that began and did not end is printed case by case.
    """
    lacks: dict[str, list[str]] = defaultdict(list)
    in_part: Counter[str] = Counter()
    for result in results:
        left = [case for case in result.cases if case.outcome in NOT_JUDGED]
        if result.outcome is Outcome.SKIPPED:
            judged = f" ({result.in_part} judged)" if result.in_part else ""
            lacks[result.reason].append(result.id + judged)
            in_part[result.reason] += bool(judged)
        elif result.outcome is not Outcome.PASSED:
            continue
        elif any(case.has_begun for case in left):
            console.print(f"[dim]{report.headline(result)} {result.id}[/]")
            _show_not_judged(console, result)
        elif left:
            reason, _ = Counter(case.reason for case in left).most_common(1)[0]
            part = sum(case.outcome is Outcome.PASSED for case in result.cases)
            lacks[reason].append(f"{result.id} (passed {part} of {len(result.cases)} cases)")
            in_part[reason] += 1
    for reason, ids in sorted(lacks.items(), key=lambda each: -len(each[1])):
        whole, part = len(ids) - in_part[reason], in_part[reason]
        counted = (str(whole) if whole else "", f"{part} in part" if part else "")
        counts = " and ".join(filter(None, counted))
        _show(console, f"[dim]not judged[/] {counts}: ", reason, "  ")
        _show(console, "  ", ", ".join(ids[:MOST_NAMED]), "  ")
        _show_more(console, len(ids) - MOST_NAMED, "not judged")


def _show_more(console: Console, more: int, what: str) -> None:
    """Print how many ids of a list were left out."""
    if more > 0:
        console.print(f"[dim]  and {more} more {what}: {FILES}[/]")


def _show_not_judged(console: Console, result: Result) -> None:
    """Print which cases of an id were not judged, and why."""
    for case in result.cases:
        if case.outcome in NOT_JUDGED:
            _show(
                console,
                "  not judged: ",
                f"{report.named(case).rstrip('.')}: {case.reason}",
                "    ",
            )


def _cut_line(text: str) -> str:
    """Return a line without its middle: of a request, mostly the end, which has the outcome."""
    return _cut(text, MOST_LINE, 0.75 if text.startswith(("  {", "  [")) else 0.2)


def _cut(text: str, most: int, head: float = 0.5) -> str:
    """Return at most `most` characters of a text, `head` of them (0 to 1) from its beginning."""
    if len(text) <= most:
        return text
    first = round(most * head)
    return f"{text[:first]} […] {text[first + 5 - most :]}"


def _show(console: Console, head: str, text: str, indent: str = " " * 12) -> None:
    """Print another party's text after a head of ours, in lines of less than 80 columns."""
    first, rest = Text.from_markup(head).cell_len, Text.from_markup(indent).cell_len
    lines = textwrap.wrap(
        printable(text),
        COLUMNS,
        initial_indent=" " * first,
        subsequent_indent=" " * rest,
        break_on_hyphens=False,
    )
    console.print(head + escape(lines[0][first:] if lines else ""))
    for line in lines[1:]:
        console.print(indent + escape(line[rest:]))


def _shown(text: str) -> str:
    """Return another party's text, escaped: no part is markup for `rich` or acts on a terminal."""
    return escape(printable(text))


def show_columns(found: Sequence[tuple[str, Results]]) -> None:
    """Print the ids that failed in a version, with a column for each; then the money lost."""
    table = Table(box=None, pad_edge=False)
    table.add_column("failed")
    for target, _ in found:
        table.add_column(target, justify="center")
    by_id = [{each.id: each for each in results} for _, results in found]
    failed = (each.id for _, results in found for each in results if each.outcome is Outcome.FAILED)
    for check_id in dict.fromkeys(failed):
        cells = [
            report.HTML_MARKS[its[check_id].outcome] if check_id in its else "" for its in by_id
        ]
        table.add_row(
            f"{next(its[check_id].level for its in by_id if check_id in its):6} {check_id}", *cells
        )
    table.add_row(
        "lost", *(", ".join(report.total_loss(results)) or "nothing" for _, results in found)
    )
    new_console(highlight=False).print(table)
