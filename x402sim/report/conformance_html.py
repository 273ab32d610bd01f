"""What the conformance suite found, as one self-contained page for people."""

import json
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any

from x402sim.report.conformance import OUTCOMES, Results, summary
from x402sim.spec.clauses import CLAUSES

MARKS = {"passed": "✓", "failed": "✗", "skipped": "·", "inconclusive": "?", "observed": "○"}
_MEANINGS = {
    "passed": "the target keeps the clause, as far as the check can see",
    "failed": "the target breaks the clause",
    "skipped": "something the check needs was not there",
    "inconclusive": "the check could not get to the point; this is not a pass",
    "observed": "the specification is silent; this is what the target does",
}
_URGENT, _LEVELS = ("failed", "inconclusive"), ("MUST", "SHOULD", "MAY")
_TEXTS = {f"spec/{clause.id}": clause.text for clause in CLAUSES}


def page(target: str, started: str, results: Results) -> str:
    """Return the page; failures and what was inconclusive come first, then every section."""
    style = files("x402sim.report").joinpath("conformance.css").read_text(encoding="utf-8")
    urgent = sorted((r for r in results if r["outcome"] in _URGENT), key=_urgency)
    parts = [
        f"<h1>Conformance of {escape(target)}</h1>",
        f'<p class="soft">{escape(started)} · {len(results)} ids</p>',
        f'<p class="verdict">{_verdict(results)}</p>',
        _counts(results),
    ]
    if urgent:
        parts += ["<h2>What needs attention</h2>", *map(_detail, urgent)]
    for section, found in groupby(results, key=lambda result: str(result["section"])):
        parts += [f"<h2>Section {escape(section)}</h2>", _table(list(found))]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Conformance of {escape(target)}</title>\n<style>\n{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _urgency(result: dict[str, Any]) -> tuple[int, int]:
    """Return what comes first in a list of what needs attention: failed MUSTs."""
    return _URGENT.index(result["outcome"]), _LEVELS.index(result["level"])


def _verdict(results: Results) -> str:
    musts = summary([result for result in results if result["level"] == "MUST"])
    if musts["failed"]:
        return f'<span class="failed">{musts["failed"]} of the MUST clauses are broken.</span>'
    if musts["inconclusive"]:
        left = musts["inconclusive"]
        return f'<span class="inconclusive">No verdict: {left} checks were inconclusive.</span>'
    if not musts["passed"]:
        return '<span class="inconclusive">No verdict: nothing could be checked.</span>'
    said = f"Every MUST that was checked held ({musts['passed']}); {musts['skipped']} were skipped."
    return f'<span class="passed">{said}</span>'


def _counts(results: Results) -> str:
    counts = summary(results)
    items = [
        f'<li title="{_MEANINGS[outcome]}"><b>{counts[outcome]}</b>'
        f'<span class="{outcome}">{MARKS[outcome]} {outcome}</span></li>'
        for outcome in OUTCOMES
    ]
    return f'<ul class="counts">{"".join(items)}</ul>'


def _table(results: list[dict[str, Any]]) -> str:
    rows = [
        f'<tr><td class="{r["outcome"]}">{MARKS[r["outcome"]]} {r["outcome"]}</td>'
        f"<td><code>{escape(r['id'])}</code></td>"
        f"<td>{escape(_TEXTS.get(r['id'], r['title']))}{_note(r)}</td></tr>"
        for r in results
    ]
    return f"<table>{''.join(rows)}</table>"


def _note(result: dict[str, Any]) -> str:
    said = result["reason"] or (result["actual"] if result["outcome"] == "observed" else "")
    return f'<br><span class="soft">{escape(str(said))}</span>' if said else ""


def _detail(result: dict[str, Any]) -> str:
    facts = {
        "clause": _TEXTS.get(result["id"]),
        "check": result["title"],
        "expected": result["expected"],
        "actual": result["actual"],
        "reason": result["reason"],
    }
    listed = "".join(
        f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in facts.items() if value
    )
    exchange = "\n".join(map(_unfolded, str(result["exchange"]).splitlines()))
    exchange = f"<pre>{escape(exchange)}</pre>" if exchange else ""
    return (
        f'<section><h3><span class="{result["outcome"]}">{MARKS[result["outcome"]]} '
        f"{result['outcome']}</span> <code>{escape(result['id'])}</code> {result['level']}</h3>"
        f"<dl>{listed}</dl>{exchange}<p class='soft'>Again: <code>{escape(result['rerun'])}</code>"
        "</p></section>"
    )


def _unfolded(line: str) -> str:
    """Return a line of an exchange; one of JSON with a field a line, as it is read."""
    if not line.startswith(("{", "[")):
        return line
    try:
        return json.dumps(json.loads(line), indent=2, ensure_ascii=False)
    except ValueError:  # it was cut short, or is no JSON after all
        return line
