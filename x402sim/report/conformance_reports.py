"""The reports of a judgement as texts, by kind: json, junit, html, sarif, markdown, annotations.

What a subject has answered is other people's text. In annotations, workflow commands of GitHub
Actions, it is escaped for a terminal first (`readable`), and then as the runner unescapes it, so
that it begins no command. In Markdown it stands in code, where nothing in it is markup, or mentions
anybody. The markup of the HTML page is in `templates/conformance.html.j2`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from x402sim.report import conformance as report
from x402sim.report.causes import LOSSES, by_cause, cause, loss, repair
from x402sim.report.results import CaseResult, Outcome, Result, Results
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.ground import TITLES, folder
from x402sim.text.templates import render
from x402sim.text.words import printable


@dataclass(frozen=True, slots=True)
class About:
    """What a report is about: the kind of subject, what it is called, when the run began."""

    subject: str
    target: str
    started: str
    sections: Mapping[str, str]
    """The title of each section."""


def written(kind: str, about: About, results: Results, *, strict: bool = False) -> str:
    """Return a report of one kind as text; with `strict`, SHOULD counts for the verdict."""
    target, started = about.target, about.started
    match kind:
        case "json":
            return (
                json.dumps(report.as_json(target, started, results, about.subject), indent=2) + "\n"
            )
        case "junit":
            return report.as_junit(target, started, results, strict=strict).decode()
        case "sarif":
            found = report.as_sarif(target, results, _demands(about.subject), about.subject)
            return json.dumps(found, indent=2) + "\n"
        case "markdown":
            return as_markdown(about.subject, target, results, strict=strict)
        case "annotations":
            return as_annotations(results, _demands(about.subject), about.subject, strict=strict)
        case _:
            return as_html(target, started, results, strict=strict, sections=about.sections)


def _demands(subject: str) -> str:
    """Return the text of the page of all demands of a subject."""
    root = folder(report.SERVICE).parents[1]
    return (root / report.demands_page(subject)).read_text(encoding="utf-8")


# --- annotations ------------------------------------------------------------------------


def as_annotations(results: Results, demands: str, subject: str, *, strict: bool = False) -> str:
    """Return the lines, empty if nothing failed; with `strict`, SHOULD counts for the verdict.

    What counts is an error, a SHOULD that failed a warning; what the baseline report has found,
    too, is left out. Each is at the place of its demand, as in SARIF (`demands` is that page).
    If nothing was judged, that is an error.
    """
    file, lines = report.demands_page(subject), report.headings(demands)
    outcome, why = report.verdict(results, strict)
    groups = by_cause(report.readable(results))
    in_order = [group[0] for group in groups] + [each for group in groups for each in group[1:]]
    shown = [_annotation(each, file, report.place(lines, each), strict) for each in in_order]
    if outcome is Outcome.INCONCLUSIVE and not any(each.startswith("::error") for each in shown):
        shown.append(unready(subject, why))
    return "".join(shown)


def unready(subject: str, why: str) -> str:
    """Return the line of a subject of which nothing could be judged, and why."""
    title = f"x402sim conformance {subject}: no verdict"
    return f"::error title={_escaped_property(title)}::{_message(printable(why))}\n"


def _annotation(result: Result, file: str, line: int, strict: bool) -> str:
    counts = report.counts_for_exit(result, strict)
    if not counts and (result.is_known or result.outcome is not Outcome.FAILED):
        return ""
    command = "error" if counts else "warning"
    title = f"{result.level} {report.headline(result)}: {result.id}"
    text = [f"like {result.like}: {cause(result)}" if result.like else cause(result)]
    if result.outcome is Outcome.FAILED:
        text.append(f"expected {result.expected}, got {result.actual}")
    text += [f"loss: {result.loss}"] if result.loss else []
    text += [f"to repair: {repair(result)}"] if repair(result) else []
    text += [f"run it again: {result.rerun}"] if result.rerun else []
    at = f"file={_escaped_property(file)},line={line},title={_escaped_property(title)}"
    said = _message("\n".join(text))
    return f"::{command} {at}::{said}\n"


def _message(text: str) -> str:
    """Escape what stands behind a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    """Escape the value of a command's property."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")


# --- Markdown ---------------------------------------------------------------------------

MOST_CAUSES, MOST_EXCHANGE = 20, 3000
"""How many causes are shown, and how many characters of an exchange: a comment has 65,536."""
MARKS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.INCONCLUSIVE: "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@-])")


def as_markdown(subject: str, target: str, results: Results, *, strict: bool = False) -> str:
    """Return the report; with `strict`, SHOULD counts for the verdict."""
    results = report.readable(results)
    outcome, why = report.verdict(results, strict)
    counts = report.summary(results)
    lines = [
        f"## {MARKS[outcome]} x402sim conformance: {subject} {_code(target)}",
        "",
        _plain(why),
        "",
    ]
    lines += [", ".join(f"{count} {name}" for name, count in counts.items() if count), ""]
    if losses := report.total_loss(results):
        lines += [f"**Lost, as counted on the ledger: {_plain(', '.join(losses))}**", ""]
    groups = by_cause(results)
    for first, *rest in groups[:MOST_CAUSES]:
        lines += _folded(first, rest, strict)
    if (left := len(groups) - MOST_CAUSES) > 0:
        lines += [f"And {left} more causes: see the other reports.", ""]
    return "\n".join(lines)


def _folded(first: Result, rest: Results, strict: bool) -> Iterator[str]:
    """Yield the lines of one cause: what it is, and folded, how it was seen."""
    lost = LOSSES.get(loss([first, *rest]), "")
    counts = report.counts_for_exit(first, strict)
    notes = [first.level, report.headline(first), lost, str(first.loss or "")]
    notes += [] if counts else [report.why_uncounted(first)]
    details = "; ".join(_plain(each) for each in notes if each)
    what = cause(first) if first.outcome is Outcome.FAILED else "not judged"
    yield f"- **{_plain(what)}** ({_code(first.id)}: {details})"
    if todo := repair(first):
        yield f"  To repair: {_plain(todo)}"
    if rest:
        yield f"  With it: {', '.join(_code(each.id) for each in rest)}"
    yield ""
    yield "  <details><summary>How it was seen</summary>"
    yield ""
    if first.outcome is Outcome.FAILED:
        for case, ground in report.shown(first):
            yield f"  {_plain(case.title)}"
            yield ""
            yield from (f"  > {_plain(line)}" for line in ground)
            yield ""
            yield f"  - expected {_code(str(case.expected))}"
            yield f"  - actual {_code(str(case.actual))}"
            if case.loss is not None:
                yield f"  - loss {_plain(str(case.loss))}"
            yield ""
            if case.exchange:
                lines = case.exchange.split("\n")
                short = [each for each in lines if not each.startswith(report.FULL)]
                yield from _block("\n".join(short))
    else:
        yield f"  {_code(first.reason)}"
        yield ""
    if first.rerun:
        yield "  Run it again:"
        yield ""
        yield from _block(first.rerun)
    yield "  </details>"
    yield ""


def _plain(text: str) -> str:
    """Return text of ours in one line, in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Return text of anybody as code, in one line."""
    line = " ".join(text.split()) or "nothing"
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def _block(text: str) -> Iterator[str]:
    """Yield the lines of a block of code, in a list's item."""
    shown = text if len(text) <= MOST_EXCHANGE else f"{text[:MOST_EXCHANGE]}…"
    fence = "`" * max(3, max(map(len, re.findall("`+", shown)), default=0) + 1)
    yield from (f"  {line}" for line in (fence, *shown.split("\n"), fence))
    yield ""


# --- HTML -------------------------------------------------------------------------------

HTML_MARKS = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.SKIPPED: "·",
    Outcome.INCONCLUSIVE: "?",
    Outcome.OBSERVED: "○",
}
_MEANINGS = {
    Outcome.PASSED: "the target keeps the clause, as far as the check can tell",
    Outcome.FAILED: "the target breaks the clause",
    Outcome.SKIPPED: "the target or the environment lacks something the check needs",
    Outcome.INCONCLUSIVE: "the check was interrupted before it could decide; this is not a pass",
    Outcome.OBSERVED: "the specification does not say; this is what the target does",
}


def as_html(
    target: str,
    started: str,
    results: Results,
    *,
    strict: bool = False,
    sections: Mapping[str, str] = TITLES,
) -> str:
    """Return the page: first what failed or was inconclusive, then every section.

    `target` is what was judged, `started` an ISO 8601 time, `sections` the title of each section.
    With `strict`, SHOULD counts for the verdict.
    """
    results = report.readable(results)
    groups = groupby(results, key=lambda result: result.section)
    return render(
        __package__,
        "conformance.html.j2",
        target=target,
        started=started,
        total=len(results),
        verdict=report.verdict(results, strict),
        losses=report.total_loss(results),
        counts=report.summary(results),
        urgent=[
            (first, rest, LOSSES.get(loss([first, *rest]))) for first, *rest in by_cause(results)
        ],
        sections=[_section(name, sections.get(name, ""), list(found)) for name, found in groups],
        marks=HTML_MARKS,
        meanings=_MEANINGS,
        clauses={f"spec/{clause.id}": clause.text for clause in CLAUSES},
        cause=cause,
        repair=repair,
        cases=lambda result: [_case(case, ground) for case, ground in report.shown(result)],
        grounds=report.grounds,
        headline=report.headline,
        left_out=lambda result: report.left_out(report.not_judged(result)),
    )


def _section(
    section: str, title: str, results: Results
) -> tuple[str, str, list[tuple[Outcome, str]], Results]:
    """Return the number and the title of a section, its outcomes counted, and its results."""
    counts = report.summary(results).items()
    tally = [(outcome, f"{count} {outcome}") for outcome, count in counts if count]
    return section, title, tally, results


def _case(case: CaseResult | Result, ground: list[str]) -> dict[str, object]:
    every = case.exchange.splitlines()
    lines = [line for line in every if not line.startswith(report.RAW)]
    facts = {
        "check": case.title,
        "ground": "\n".join(ground),
        "expected": case.expected,
        "actual": case.actual,
        "loss": case.loss and str(case.loss),
        "reason": case.reason,
    }
    return {
        "facts": {name: value for name, value in facts.items() if value},
        "exchange": "\n".join(map(_indented, lines)),
        "raw": "\n".join(
            line.removeprefix(report.RAW) for line in every if line.startswith(report.RAW)
        ),
        "began": " ".join([*lines[:1], *(line for line in lines if line.startswith("-> "))]),
    }


def _indented(line: str) -> str:
    """Return a line of an exchange; a line of JSON is indented."""
    if not line.startswith(("{", "[")):
        return line
    try:
        return json.dumps(json.loads(line), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # truncated, nested too deeply, or not JSON
        return line
