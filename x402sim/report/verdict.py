"""A `Verdict`: the result of one judgement of any subject, for programs and notebooks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from x402sim.protocol.money import to_decimal
from x402sim.report import conformance as report, need_extra
from x402sim.report.causes import LOSSES, by_cause, cause, loss, repair
from x402sim.report.conformance import About, written
from x402sim.report.results import Outcome, Result, by_dialect
from x402sim.text.templates import render
from x402sim.text.words import unknown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

MOST_CAUSES = 20
"""Probable causes that a notebook shows."""
KINDS = {".html": "html", ".json": "json", ".xml": "junit", ".sarif": "sarif", ".md": "markdown"}
"""The kind of report, by the suffix of a file's name."""


_COLUMNS = (
    *(
        "id",
        "dialect",
        "section",
        "level",
        "outcome",
        "counts",
        "title",
        "expected",
        "actual",
        "reason",
    ),
    *("loss", "token", "cause", "follows", "seconds", "rerun"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one judgement: the result of each id, in the order of the sections.

    A failed MUST counts, and a failed SHOULD if `strict`. `done` says what the suite did, such as
    "412 starts"; `seconds` is how long that took.
    """

    about: About
    results: tuple[Result, ...]
    strict: bool = False
    done: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """Passed, failed, or inconclusive."""
        return report.verdict(self.results, self.strict)[0]

    @property
    def sentence(self) -> str:
        """The verdict in a sentence: how many clauses failed or held."""
        return report.verdict(self.results, self.strict)[1]

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """How many ids had each outcome."""
        return report.summary(self.results)

    @property
    def losses(self) -> list[str]:
        """What the failures cost by token, counted on a ledger: ["0.03 USDC"]."""
        return report.total_loss(self.results)

    @property
    def failures(self) -> list[Result]:
        """The ids that failed and count for the verdict."""
        return [
            each
            for each in self.results
            if each.outcome is Outcome.FAILED and report.counts_for_exit(each, self.strict)
        ]

    @property
    def frame(self) -> "DataFrame":
        """One row for each id and dialect.

        | column | dtype | meaning |
        | --- | --- | --- |
        | id | str | "document/section/slug" |
        | dialect | str | the dialect; empty for a subject with only one |
        | section | str | the section |
        | level | str | MUST, SHOULD or MAY |
        | outcome | str | passed, failed, skipped, inconclusive, observed |
        | counts | bool | whether it counts for the verdict |
        | title | str | what is demanded |
        | expected, actual | str | of a failure; of what was observed, `actual` |
        | reason | str | why it was skipped, or is inconclusive |
        | loss | float64 | tokens that the failure costs; NaN if no money was counted |
        | token | str | of which token |
        | cause | str | of a failure: what is probably wrong |
        | follows | str | the id that it probably follows from |
        | seconds | float64 | how long it took |
        | rerun | str | what repeats it alone |

        Raises `ModuleNotFoundError` without the extra `report`.
        """
        need_extra()
        import pandas as pd

        def tokens(result: Result) -> float | None:
            lost = result.loss
            return float(to_decimal(lost.base, lost.decimals)) if lost else None

        rows = [
            {
                "id": each.id,
                "dialect": dialect,
                "section": each.section,
                "level": each.level,
                "outcome": str(each.outcome),
                "counts": report.counts_for_exit(each, self.strict),
                "title": each.title,
                "expected": each.expected or "",
                "actual": each.actual or "",
                "reason": each.reason,
                "loss": tokens(each),
                "token": each.loss.symbol if each.loss else "",
                "cause": cause(each) if each.outcome is Outcome.FAILED else "",
                "follows": each.like,
                "seconds": each.seconds,
                "rerun": each.rerun,
            }
            for result in report.readable(self.results)
            for dialect, each in by_dialect(result).items()
        ]
        made = pd.DataFrame(rows, columns=_COLUMNS)
        return made.astype({"loss": "float64", "seconds": "float64", "counts": bool})

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a bar for each section: how many ids failed, passed, and so on, and the loss.

        Raises `ModuleNotFoundError` without the extra `report`.
        """
        from x402sim.report.plots.judgement import judgement

        return judgement(self.results, self.about.sections, ax, strict=self.strict)

    def save(self, file: str | Path) -> Path:
        """Write the report, by the file's suffix: .html, .json, .xml (JUnit), .sarif, .md.

        Raises `OSError`, and `ValueError` for another suffix.
        """
        path = Path(file)
        if path.suffix not in KINDS:
            raise ValueError(unknown("report", path.suffix, KINDS))
        text = written(KINDS[path.suffix], self.about, self.results, strict=self.strict)
        path.write_text(text, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the loss, and each probable cause, folded."""
        results = report.readable(self.results)
        groups = by_cause(results)
        return render(
            __package__,
            "verdict_fragment.html.j2",
            about=self.about,
            outcome=self.outcome,
            sentence=self.sentence,
            counts=[(count, name) for name, count in self.counts.items() if count],
            losses=self.losses,
            done=f"{self.done}, {self.seconds:.0f} s" if self.done else "",
            causes=[
                {
                    "first": first,
                    "what": cause(first),
                    "repair": repair(first),
                    "who": LOSSES.get(loss([first, *rest]), ""),
                    "counts": report.counts_for_exit(first, self.strict),
                    "rest": [each.id for each in rest],
                    "cases": [case for case, _ in report.shown(first)],
                }
                for first, *rest in groups[:MOST_CAUSES]
            ],
            more=max(0, len(groups) - MOST_CAUSES),
        )

    def __repr__(self) -> str:
        lost = f" Lost: {', '.join(self.losses)}." if self.losses else ""
        return f"Verdict({self.about.subject} {self.about.target}: {self.sentence}{lost})"
