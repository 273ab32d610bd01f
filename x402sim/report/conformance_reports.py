"""The reports of a judgement as texts, by kind: json, junit, html, sarif, markdown, annotations."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from x402sim.report import conformance as report
from x402sim.report.results import Results
from x402sim.spec.folder import folder


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
            from x402sim.report.conformance_markdown import page as markdown

            return markdown(about.subject, target, results, strict=strict)
        case "annotations":
            from x402sim.report.conformance_annotations import page as annotations

            return annotations(results, _demands(about.subject), about.subject, strict=strict)
        case _:
            from x402sim.report.conformance_html import page as html

            return html(target, started, results, strict=strict, sections=about.sections)


def _demands(subject: str) -> str:
    """Return the text of the page of all demands of a subject."""
    root = folder(report.SERVICE).parents[1]
    return (root / report.demands_page(subject)).read_text(encoding="utf-8")
