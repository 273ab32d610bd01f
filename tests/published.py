"""What the pages of payers, facilitators and servers share: what is kept of published programs, and tables.

A page is made of the rows that are played, of the problems that people report with the ids that catch
them, and of verdicts on programs that others have published, which a file of JSON keeps.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.interop import programs
from x402sim.report.causes import cause
from x402sim.report.results import Outcome, Result, by_dialect
from x402sim.suite.case import Case
from x402sim.text.templates import markdown_table

ROOT = Path(__file__).parents[1]
SHOWN = 400
"""How many characters are kept of what was observed, or what a MUST's failure did."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of verdicts, by the name of the program that was judged."""

    file: Path

    def all(self) -> dict[str, Any]:
        """Return the verdicts that are kept."""
        found: dict[str, Any] = (
            json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
        )
        return found

    def keep(self, name: str, verdict: Mapping[str, Any], order: Iterable[str]) -> None:
        """Keep a verdict; the file names the programs in an order."""
        every = self.all() | {name: verdict}
        ordered = {each: every[each] for each in order if each in every}
        self.file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def pinned(program: str, package: str) -> str:
    """Return a package and its version, as the folder of a program of tests/interop pins it."""
    if program.endswith(".py"):
        lines = (programs.PYTHON / "requirements.txt").read_text().splitlines()
        return next(each for each in lines if each.startswith(f"{package}==")).replace("==", " ")
    folder = programs.FOLDER / Path(program).parts[0]
    lock = json.loads((folder / "package-lock.json").read_text())
    return f"{package} {lock['packages'][f'node_modules/{package}']['version']}"


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Return what is kept of a judgement: how many ids in each dialect, and all that was told."""
    every = [it for result in results for it in by_dialect(result).items()]

    def of(outcome: Outcome) -> list[tuple[dict[str, str], Result]]:
        return [
            ({"id": each.id, "dialect": dialect}, each)
            for dialect, each in every
            if each.outcome is outcome
        ]

    return {
        "counts": Counter(str(each.outcome) for _, each in every),
        "failed": [name | _failure(each) for name, each in of(Outcome.FAILED)],
        "observed": [
            name | {"told": cell(each.actual or "", SHOWN)} for name, each in of(Outcome.OBSERVED)
        ],
        "inconclusive": [name | {"reason": each.reason} for name, each in of(Outcome.INCONCLUSIVE)],
    }


def failed(verdict: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(each["id"], each["dialect"]) for each in verdict["failed"]}


def _failure(each: Result) -> dict[str, Any]:
    found: dict[str, Any] = {"level": each.level, "cause": cause(each)}
    if each.level == "MUST":
        found["actual"] = cell(each.actual or "", SHOWN)
    if each.loss is not None:
        found["lost"] = str(msgspec.structs.replace(each.loss, why=""))
    return found


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


def verdicts(what: str, kept: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of verdicts: a line for each program, with what it is `about`."""
    columns = ["passed", "MUST failed", "SHOULD failed", "observed", "inconclusive"]
    names = [what, "version", "dialects", *columns, "one of its transfers"]
    lines = []
    for it in kept:
        counts, musts = it["counts"], sum(each["level"] == "MUST" for each in it["failed"])
        numbers = [counts.get("passed", 0), musts, len(it["failed"]) - musts]
        numbers += [counts.get(each, 0) for each in ("observed", "inconclusive")]
        shown = f"`{it['transaction']}`"
        about = [it["about"], f"{it['version']}, {it['day']}", ", ".join(it["dialects"])]
        lines.append([*about, *map(str, numbers), shown])
    yield from markdown_table(names, lines).splitlines()


def cell(text: str, most: int = 260) -> str:
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
    published: Iterable[str],
) -> str:
    """Return a page as Markdown: its words, all plays, the problems of the field, what is published.

    Two blanks at the end of a line break it, and stay.
    """
    lines = [
        *about["introduction"].split("\n"),
        f"{len({case.id for case in cases})} ids in {len({case.played_as for case in cases})} plays.",
        *plays(sections, rows, cases, ways),
        *problems(about, cases),
        "",
        *about["published"].split("\n"),
        *published,
    ]
    return "\n".join(each if each.endswith("  ") else each.rstrip() for each in lines) + "\n"
