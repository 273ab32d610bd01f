"""The conformance report in Markdown, short enough for a comment on a pull request.

The verdict, what was lost, the probable causes, each failure folded, with the command that repeats
it. What a subject has answered stands in code, where nothing in it is markup, or mentions anybody.
"""

import re
from collections.abc import Iterator

from x402sim.report import conformance as report
from x402sim.report.causes import LOSSES, by_cause, cause, loss, repair
from x402sim.report.results import Outcome, Result, Results

MOST_CAUSES, MOST_EXCHANGE = 20, 3000
"""How many causes are shown, and how many characters of an exchange: a comment has 65,536."""
MARKS = {Outcome.PASSED: "✅", Outcome.FAILED: "❌", Outcome.INCONCLUSIVE: "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~@-])")


def page(subject: str, target: str, results: Results, *, strict: bool = False) -> str:
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
        lines += _cause(first, rest, strict)
    if (left := len(groups) - MOST_CAUSES) > 0:
        lines += [f"And {left} more causes: see the other reports.", ""]
    return "\n".join(lines)


def _cause(first: Result, rest: Results, strict: bool) -> Iterator[str]:
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
