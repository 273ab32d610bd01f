"""A `Verdict`: the result of one judgement of any subject, for programs and notebooks."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from x402sim.protocol.money import to_decimal
from x402sim.report import need_extra
from x402sim.suite.report import conformance as report, exchange
from x402sim.suite.report.causes import LOSSES, by_cause, cause, loss, repair
from x402sim.suite.report.conformance import MOST_CAUSES, About, written
from x402sim.suite.report.results import Outcome, Result, by_dialect
from x402sim.text.templates import markdown_table, render

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of `Verdict.frame`; `of` takes a result, its dialect, and whether it counts."""

    name: str
    dtype: str
    meaning: str
    of: Callable[[Result, str, bool], object]


def _tokens(result: Result) -> float:
    lost = result.loss
    return float(to_decimal(lost.base, lost.decimals)) if lost else math.nan


_COLUMNS = (
    _Column("id", "str", '"document/section/slug"', lambda it, _, __: it.id),
    _Column("dialect", "str", "empty for a subject with only one", lambda _, dialect, __: dialect),
    _Column("section", "str", "the section", lambda it, _, __: it.section),
    _Column("level", "str", "MUST, SHOULD or MAY", lambda it, _, __: it.level),
    _Column("outcome", "str", ", ".join(Outcome), lambda it, _, __: str(it.outcome)),
    _Column("counts", "bool", "for the verdict", lambda _, __, counts: counts),
    _Column("title", "str", "the demand", lambda it, _, __: it.title),
    _Column("expected", "str", "of a failure", lambda it, _, __: it.expected or ""),
    _Column("actual", "str", "of a failure, or observed", lambda it, _, __: it.actual or ""),
    _Column("reason", "str", "of a skipped or inconclusive id", lambda it, _, __: it.reason),
    _Column("loss", "float64", "tokens; NaN without money", lambda it, _, __: _tokens(it)),
    _Column("token", "str", "of the loss", lambda it, _, __: it.loss.symbol if it.loss else ""),
    _Column("cause", "str", "of a failure: the probable cause",
            lambda it, _, __: cause(it) if it.outcome is Outcome.FAILED else ""),
    _Column("follows", "str", "the failed id that probably causes this", lambda it, _, __: it.like),
    _Column("seconds", "float64", "real seconds", lambda it, _, __: it.seconds),
    _Column("rerun", "str", "the command that repeats the id alone", lambda it, _, __: it.rerun),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one judgement: the result of each id, in the order of the sections.

    A failed MUST counts, and a failed SHOULD if `strict`. `done` describes the work of the suite,
    such as "412 starts"; `seconds` is its duration.
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
        """The verdict in a sentence: how many demands failed or held."""
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

    def _frame(self) -> "DataFrame":
        need_extra()
        import pandas as pd

        rows = [
            (each, dialect, report.counts_for_exit(each, self.strict))
            for result in report.readable(self.results)
            for dialect, each in by_dialect(result).items()
        ]
        made = pd.DataFrame({each.name: [each.of(*row) for row in rows] for each in _COLUMNS})
        return made.astype({each.name: each.dtype for each in _COLUMNS if each.dtype != "str"})

    frame = property(
        _frame,
        doc="One row for each id and dialect.\n\n"
        + markdown_table(
            ("column", "dtype", "meaning"),
            [(each.name, each.dtype, each.meaning) for each in _COLUMNS],
        )
        + "\nRaises `ModuleNotFoundError` without the extra `report`.",
    )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw a bar for each section: how many ids failed, passed, and so on, and the loss.

        Raises `ModuleNotFoundError` without the extra `report`.
        """
        from x402sim.suite.report.plot import judgement

        return judgement(self.results, self.about.sections, ax, strict=self.strict)

    def save(self, file: str | Path) -> Path:
        """Write the report, by the file's suffix: .html, .json, .xml (JUnit), .sarif, .md.

        Raises `OSError`, and `ValueError` for another suffix.
        """
        path = Path(file)
        text = written(path.suffix, self.about, self.results, strict=self.strict)
        path.write_text(text, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the verdict, the loss, and each probable cause, folded."""
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
            written=exchange.written,
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
