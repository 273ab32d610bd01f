"""The conformance report as annotations: workflow commands of GitHub Actions, one line a failure.

A step shows ten errors and ten warnings at most, so the first id of each probable cause comes
before what follows from it. What a subject has answered stands in the lines: it is escaped for a
terminal first (`readable`), and then as the runner unescapes it, so that it begins no command.
"""

from x402sim.report import conformance as report
from x402sim.report.causes import by_cause, cause, repair
from x402sim.report.results import Outcome, Result, Results
from x402sim.text.printable import printable


def page(results: Results, demands: str, subject: str, *, strict: bool = False) -> str:
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
    return f"::error title={_property(title)}::{_message(printable(why))}\n"


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
    at = f"file={_property(file)},line={line},title={_property(title)}"
    said = _message("\n".join(text))
    return f"::{command} {at}::{said}\n"


def _message(text: str) -> str:
    """Escape what stands behind a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape the value of a command's property."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
