"""The conformance report as one self-contained HTML page.

The markup is in `templates/conformance.html.j2`; this module gathers what it shows. Works
without the extra `report`.
"""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from x402sim.report.causes import Results, by_cause, cause, failures
from x402sim.report.conformance import (
    OUTCOMES,
    RAW,
    grounds,
    headline,
    left_out,
    not_judged,
    readable,
    summary,
    told,
    verdict,
)
from x402sim.report.render import render
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.sentences import TITLES

MARKS = {"passed": "✓", "failed": "✗", "skipped": "·", "inconclusive": "?", "observed": "○"}
_MEANINGS = {
    "passed": "the target keeps the clause, as far as the check can tell",
    "failed": "the target breaks the clause",
    "skipped": "the target or the environment lacks something the check needs",
    "inconclusive": "the check was interrupted before it could decide; this is not a pass",
    "observed": "the specification does not say; this is what the target does",
}
_TEXTS = {f"spec/{clause.id}": clause.text for clause in CLAUSES}


def page(target: str, started: str, results: Results, *, strict: bool = False) -> str:
    """Return the page: first what failed or was inconclusive, then every section.

    `target` is the URL that was judged, `started` an ISO 8601 time.
    With `strict`, SHOULD counts for the verdict.
    """
    results = readable(results)
    counts = summary(results)
    sections = groupby(results, key=lambda result: str(result["section"]))
    return render(
        "conformance.html.j2",
        target=target,
        started=started,
        total=len(results),
        verdict=verdict(results, strict),
        counts=[(name, MARKS[name], counts[name], _MEANINGS[name]) for name in OUTCOMES],
        urgent=[
            (_detail(first), [_detail(each) for each in rest]) for first, *rest in by_cause(results)
        ],
        sections=[_section(section, list(found)) for section, found in sections],
    )


def _section(section: str, results: Results) -> tuple[str, str, list[tuple[str, str]], Any]:
    """Return the number and the title of a section, its outcomes counted, and its rows."""
    tally = [(name, f"{count} {name}") for name, count in summary(results).items() if count]
    return section, TITLES[section], tally, _rows(results)


def _rows(results: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "outcome": result["outcome"],
            "mark": MARKS[result["outcome"]],
            "headline": headline(result),
            "id": result["id"],
            "text": _TEXTS.get(result["id"], result["title"]),
            "ground": "\n\n".join(grounds(result)),
            "note": str(result["reason"] or _observed(result)),
            "left_out": _left_out(result),
        }
        for result in results
    ]


def _observed(result: dict[str, Any]) -> str:
    return str(result["actual"]) if result["outcome"] == "observed" else ""


def _left_out(result: dict[str, Any]) -> str:
    """Return which cases were not judged, and why."""
    return "\n".join(left_out(not_judged(result)))


def _detail(result: dict[str, Any]) -> dict[str, Any]:
    """Return all that the page shows of a result that needs attention."""
    return {
        "outcome": result["outcome"],
        "mark": MARKS[result["outcome"]],
        "headline": headline(result),
        "id": result["id"],
        "level": result["level"],
        "cause": cause(result),
        "clause": _TEXTS.get(result["id"]),
        "cases": [_case(case) for case in failures(result)],
        "left_out": _left_out(result),
        "rerun": result["rerun"],
    }


def _case(case: dict[str, Any]) -> dict[str, Any]:
    every = str(case["exchange"]).splitlines()
    lines = [line for line in every if not line.startswith(RAW)]
    facts = {
        "check": case["title"],
        "ground": "\n".join(told(case)),
        "expected": case["expected"],
        "actual": case["actual"],
        "reason": case["reason"],
    }
    return {
        "facts": {name: value for name, value in facts.items() if value},
        "exchange": "\n".join(map(_indented, lines)),
        "raw": "\n".join(line.removeprefix(RAW) for line in every if line.startswith(RAW)),
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
