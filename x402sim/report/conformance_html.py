"""The conformance report as one self-contained HTML page.

The markup is in `templates/conformance.html.j2`; this module gives it the results, and what says
them in words. Works without the extra `report`.
"""

import json
from collections.abc import Mapping
from itertools import groupby

from x402sim.report import conformance as report
from x402sim.report.causes import LOSSES, by_cause, cause, loss, repair
from x402sim.report.results import CaseResult, Outcome, Result, Results
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.sentences import TITLES
from x402sim.text.templates import render

MARKS = {
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


def page(
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
        marks=MARKS,
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
