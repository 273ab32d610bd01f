"""What the pages of payers, facilitators and servers share, and the verdicts on published programs.

A page is made of the rows that are played, and of the problems that people report with the ids that
catch them. conformance/verdicts.json keeps the verdicts; `x402sim conformance site` shows them.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.interop import programs
from x402sim.judging import Verdict
from x402sim.report.results import Outcome, by_dialect
from x402sim.suite import published
from x402sim.suite.case import Case
from x402sim.suite.subject import subject
from x402sim.text.templates import markdown_table

ROOT = Path(__file__).parents[1]


def pinned(program: str, package: str) -> str:
    """Return a package and its version, as the folder of a program of tests/interop pins it."""
    if program.endswith(".py"):
        lines = (programs.PYTHON / "requirements.txt").read_text().splitlines()
        return next(each for each in lines if each.startswith(f"{package}==")).replace("==", " ")
    folder = programs.FOLDER / Path(program).parts[0]
    lock = json.loads((folder / "package-lock.json").read_text())
    return f"{package} {lock['packages'][f'node_modules/{package}']['version']}"


def keep(found: Verdict, implementation: str, version: str, repeat: str) -> None:
    """Keep the verdict on a program in conformance/verdicts.json."""
    cases = subject(found.about.subject).cases()
    record = published.record_of(found.about, found.results, cases, implementation, version, repeat)
    published.keep(published.shipped(), record, cases)


def kept(of: str) -> dict[str, published.Record]:
    """Return the records of a subject, by implementation and version."""
    return {each.name: each for each in published.read(published.shipped()).of(of)}


def failed(found: Verdict) -> set[tuple[str, str]]:
    """Return the ids of a verdict that failed, and their dialects."""
    return {
        (each.id, dialect)
        for result in found.results
        for dialect, each in by_dialect(result).items()
        if each.outcome is Outcome.FAILED
    }


# --- the page --------------------------------------------------------------------------------


def plays(
    sections: Mapping[str, str],
    rows: Iterable[Any],
    cases: Sequence[Case],
    ways: Iterable[str],
) -> Iterator[str]:
    """Yield a table for each section: a line for each row, and what looks at it in each way."""
    documents: dict[str, list[str]] = {}
    for case in cases:
        documents.setdefault(case.played_as, []).append(case.id.split("/")[0])
    names, every = [*ways], [*rows]
    for section, title in sections.items():
        yield from ("", f"## {section}: {title}", "")
        reasons, lines = dict[str, int](), list[list[str]]()
        for row in (each for each in every if each.section == section):
            cells = []
            for way in names:
                if why := row.absent.get(way):
                    cells.append(f"({reasons.setdefault(why, len(reasons) + 1)})")
                else:
                    cells.append(" ".join(dict.fromkeys(documents[f"{section}/{row.name}-{way}"])))
            demands = "<br>".join(each.title for each in row.demands)
            lines.append(
                [f"{row.slug} ({row.variant})" if row.variant else row.slug, *cells, demands]
            )
        yield from markdown_table(["row", *names, "demands"], lines).splitlines()
        if reasons:
            yield ""
            yield from (f"({number}) {why}" + "  " for why, number in reasons.items())


def problems(about: Mapping[str, Any], cases: Iterable[Case]) -> Iterator[str]:
    """Yield what people report, with the ids that catch it, and what no case is about.

    Raises `AssertionError` for an id that is no row's.
    """
    named = {case.id for case in cases}
    for pain in about["pains"]:
        for each in pain["ids"].replace(";", ",").split(","):
            name = each.strip().split(":")[0].split(" ")[0]
            assert "/" not in name or name in named, name
    pains = ([each["row"], each["what"], each["ids"]] for each in about["pains"])
    found = markdown_table(
        ["row", "what people report", "the ids that catch it"], pains
    ).splitlines()
    yield from ("", "## Problems of the field", "", *found)
    none = markdown_table(["what", "why"], ([each["what"], each["why"]] for each in about["none"]))
    yield from ("", "## What no case is about", "", *none.splitlines())


def cell(text: str, most: int = 260) -> str:
    """Return a text as a cell of a table, cut."""
    shown = " ".join(text.split()).replace("|", "\\|")
    return shown if len(shown) <= most else f"{shown[:most]}…"


def words(of: str) -> dict[str, Any]:
    """Return what a page says by itself: page.toml beside the program `of` that writes it."""
    return tomllib.loads(Path(of).with_name("page.toml").read_text("utf-8"))


def page(
    about: Mapping[str, Any],
    sections: Mapping[str, str],
    rows: Iterable[Any],
    cases: Sequence[Case],
    ways: Iterable[str],
) -> str:
    """Return a page as Markdown: its words, all plays, and the problems of the field.

    Two blanks at the end of a line break it, and stay.
    """
    lines = [
        *about["introduction"].split("\n"),
        f"{len({case.id for case in cases})} ids in {len({case.played_as for case in cases})} plays.",
        *plays(sections, rows, cases, ways),
        *problems(about, cases),
    ]
    return "\n".join(each if each.endswith("  ") else each.rstrip() for each in lines) + "\n"
