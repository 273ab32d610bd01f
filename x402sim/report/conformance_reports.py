"""The reports of a judgement as texts, by their kind: json, junit, html, sarif, markdown."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from x402sim.report import conformance as report
from x402sim.report.results import Results
from x402sim.spec.folder import folder

DEMANDS = "demands.md"
"""The page of every demand of a subject, with the sentence that it comes from."""


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
            page = folder(about.subject) / DEMANDS
            demands = page.read_text(encoding="utf-8") if page.is_file() else ""
            return (
                json.dumps(report.as_sarif(target, results, demands, about.subject), indent=2)
                + "\n"
            )
        case "markdown":
            from x402sim.report.conformance_markdown import page as markdown

            return markdown(about.subject, target, results, strict=strict)
        case _:
            from x402sim.report.conformance_html import page as html

            return html(target, started, results, strict=strict, sections=about.sections)
