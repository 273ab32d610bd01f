"""A run for a notebook, and many runs as one page that needs nothing but itself."""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from struct import unpack
from typing import TYPE_CHECKING, Any

from x402sim.report import plots
from x402sim.report.figure import DPI, png
from x402sim.report.pictures import MATRIX, PICTURES, pictures
from x402sim.report.trace import failed_checks
from x402sim.spec.clauses import CLAUSES
from x402sim.version import VERSION

if TYPE_CHECKING:
    from x402sim.report.run import Run

_GLYPHS = {"passed": "✓", "failed": "✗", "skipped": "\N{EN DASH}"}
_TEXTS = {clause.id: clause.text for clause in CLAUSES}
_CSS_DPI = 120
_FRAGMENT_STYLE = """
.x402sim { max-width: 60rem; font-size: 0.9em; line-height: 1.45; }
.x402sim table { border-collapse: collapse; margin: 0.4em 0; }
.x402sim.x402sim :is(th, td) { text-align: left; vertical-align: top; padding: 0.15em 1em 0.15em 0 }
.x402sim.x402sim pre { font: 0.85em monospace; white-space: pre; overflow-x: auto; }
.x402sim img { max-width: 100%; height: auto; background: #ffffff; padding: 4px; }
.x402sim figure { margin: 0.6em 0; }
.x402sim code { overflow-wrap: break-word; }
.x402sim .failed { color: #c4432b; } .x402sim .passed { color: #22865a; }
.x402sim .quiet, .x402sim figcaption { opacity: 0.75; }
"""


def fragment(run: "Run") -> str:
    """Return a run for Jupyter's `_repr_html_`: outcome, checks, sequence diagram, hash."""
    drawn = "".join(_figure(*each) for each in pictures(run, ("sequence",)).items())
    return (
        f'<div class="x402sim"><style>{_FRAGMENT_STYLE}</style>'
        f"<p><strong>{_outcome(run)} {escape(run.title)}</strong> "
        f'<span class="quiet">{escape(_held(run))}</span></p>'
        f"{_reason(run)}{_checks(run)}{_failures(run)}{drawn}{_facts(run)}</div>"
    )


def page(
    runs: "Sequence[Run]",
    *,
    title: str = "x402sim report",
    stories: Mapping[str, str] | None = None,
    drawn: Mapping[str, Mapping[str, bytes]] | None = None,
) -> str:
    """Return one HTML page about many runs, with its styles and images inside.

    `stories` are the scenarios' stories by name. `drawn` are the plots of runs that have
    been drawn already (PNG by name of the plot), by the hash of the run's journal.
    """
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    sections = "".join(
        _section(run, name, (stories or {}).get(run.name, ""), (drawn or {}).get(run.sha256))
        for run, name in zip(runs, anchors(runs), strict=True)
    )
    matrix = _image(png(plots.outcomes(runs).figure), MATRIX) if runs else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n<p>{_summary(runs)}</p>\n{_overview(runs)}\n"
        f'<h2>Checks by scenario and clause</h2>\n<div class="scroll">{matrix}</div>\n'
        f"<h2>Scenarios</h2>\n{sections}"
        f'<p class="quiet">Made by x402sim {VERSION}. Times are virtual seconds.</p>\n'
        "</body>\n</html>\n"
    )


def anchors(runs: "Sequence[Run]") -> list[str]:
    """Return a name for each run that no other has, fit for a link and for a folder.

    It is the scenario's, with a number if there are several of it.
    """
    names = [re.sub(r"[^\w-]", "_", run.name) or "run" for run in runs]
    return [
        name if names.count(name) == 1 else f"{name}-{names[: n + 1].count(name)}"
        for n, name in enumerate(names)
    ]


def _summary(runs: "Sequence[Run]") -> str:
    counts = [
        f'<span class="outcome {outcome}">{glyph} {count} {outcome}</span>'
        for outcome, glyph in _GLYPHS.items()
        if (count := sum(run.outcome == outcome for run in runs))
    ]
    checks = sum(len(run.checked) for run in runs)
    held = sum(check.ok for run in runs for check in run.checked)
    return f"{', '.join(counts) or 'No scenarios'}; {held} of {checks} checks held."


def _overview(runs: "Sequence[Run]") -> str:
    rows = "".join(
        f'<tr><td><a href="#{escape(name)}">{escape(name)}</a></td><td>{_outcome(run)}</td>'
        f'<td class="number">{sum(check.ok for check in run.checked)} of {len(run.checked)}</td>'
        f'<td class="number">{run.seed}</td><td class="wide">{escape(run.title)}</td>'
        f"<td><code>{run.sha256[:12]}</code></td></tr>\n"
        for run, name in zip(runs, anchors(runs), strict=True)
    )
    return (
        '<div class="scroll"><table><thead><tr><th scope="col">Scenario</th><th scope="col">'
        'Outcome</th><th scope="col" class="number">Checks</th><th scope="col" class="number">'
        'Seed</th><th scope="col">Title</th><th scope="col">Journal</th></tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _section(run: "Run", name: str, story: str, drawn: Mapping[str, bytes] | None) -> str:
    images = pictures(run) if drawn is None else drawn
    figures = "".join(_figure(each, image) for each, image in images.items())
    told = f"<p>{escape(story)}</p>" if story else ""
    is_open = " open" if run.outcome == "failed" else ""
    return (
        f'<details class="run"{is_open}><summary>{_outcome(run)} {escape(name)} '
        f'<span class="quiet">{escape(run.title)}</span></summary>\n'
        f'<div class="inside" id="{escape(name)}">{told}{_reason(run)}{_checks(run)}'
        f"{_failures(run)}{figures}{_facts(run)}</div></details>\n"
    )


def _outcome(run: "Run") -> str:
    outcome = escape(run.outcome)
    return f'<span class="outcome {outcome}">{_GLYPHS.get(run.outcome, "?")} {outcome}</span>'


def _held(run: "Run") -> str:
    held = sum(check.ok for check in run.checked)
    return f"{run.name}, seed {run.seed}: {held} of {len(run.checked)} checks held"


def _reason(run: "Run") -> str:
    return f'<p class="{escape(run.outcome)}">{escape(run.reason)}</p>' if run.reason else ""


def _checks(run: "Run") -> str:
    """Return a table of the checks: a row for each that failed, and one for each other clause."""
    failed = [check for check in run.checked if not check.ok]
    held = [check.clause for check in run.checked if check.ok]
    rows = [_check_row("failed", check.clause, check.expected, check.actual) for check in failed]
    rows += [_held_row(clause, held.count(clause)) for clause in dict.fromkeys(held)]
    if not rows:
        return ""
    columns = (
        ("", "Clause", "Demands", "Expected", "Actual")
        if failed
        else ("", "Clause", "Demands", "Checks")
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _check_row(outcome: str, clause: str, expected: Any, actual: Any) -> str:
    return (
        f"{_row_start(outcome, clause)}<td><code>{_shown(expected)}</code></td>"
        f"<td><code>{_shown(actual)}</code></td></tr>"
    )


def _held_row(clause: str, times: int) -> str:
    return f"{_row_start('passed', clause)}<td>{times}</td></tr>"


def _row_start(outcome: str, clause: str) -> str:
    return (
        f'<tr><td class="{outcome}">{_GLYPHS[outcome]}</td><td><code>{escape(clause)}</code></td>'
        f'<td class="wide">{escape(_TEXTS.get(clause, ""))}</td>'
    )


def _shown(value: Any) -> str:
    return escape(json.dumps(value, ensure_ascii=False))


def _failures(run: "Run") -> str:
    """Return what happened during each request that a failed check is about."""
    traces = dict.fromkeys(
        (check.exchange, tuple(trace)) for check, trace in failed_checks(run.journal) if trace
    )
    return "".join(
        f"<h3>What happened in exchange {number}</h3>\n<pre>{escape(chr(10).join(trace))}</pre>"
        for number, trace in traces
    )


def _facts(run: "Run") -> str:
    facts = {"Play it again": run.command, "Journal (SHA-256)": run.sha256}
    items = "".join(
        f"<dt>{name}</dt><dd><code>{escape(value)}</code></dd>" for name, value in facts.items()
    )
    return f"<dl>{items}</dl>"


def _figure(name: str, image: bytes) -> str:
    caption = next(each.caption for each in PICTURES if each.name == name)
    return f"<figure>{_image(image, caption)}<figcaption>{escape(caption)}</figcaption></figure>"


def _image(image: bytes, alternative: str) -> str:
    """Return an image inside the page, at the size it has on paper."""
    (width_px,) = unpack(">I", image[16:20])
    data, width = b64encode(image).decode(), round(width_px * _CSS_DPI / DPI)
    return f'<img width="{width}" alt="{escape(alternative)}" src="data:image/png;base64,{data}">'
