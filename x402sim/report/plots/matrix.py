"""Draws the matrix of scenarios and clauses, with the checks that held and failed."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from x402sim.report.plots import figure
from x402sim.report.plots.figure import BLACK, GREY, LIGHT, VERMILLION, Labels, styled
from x402sim.report.reading import Source, Summary, checks_of, journal_of

_CELL_IN = 0.21
LEAST_MM = 100, 25
"""Least width and height of a new figure, which grows with the content."""
_MOST_CELL_IN = 0.28
_NARROW_MM = 130
_GLYPHS = {
    "passed": ("✓", "#b7e0d2", BLACK, "every check held"),
    "failed": ("✗", VERMILLION, "white", "a check failed"),
    "skipped": ("\N{EN DASH}", LIGHT, BLACK, "skipped"),
}
"""By outcome: glyph, fill, colour of the glyph, and meaning."""


@styled
def outcomes(
    runs: Sequence[Source], ax: Axes | None = None, *, labels: Labels | None = None
) -> Axes:
    """Draw a matrix of scenarios and clauses, with the checks that held and failed.

    A tick on green: every check of that clause held. A white cross on vermilion: at least one
    failed. A grey bar: the scenario was skipped. An empty cell: the scenario does not check
    that clause. A cross before a name: the scenario failed, by a check or by an exception.
    `labels` are words for names of scenarios and clauses.
    """
    summaries = [Summary(journal_of(run)) for run in runs]
    clauses = clauses_of(summaries)
    names, heads = _named(summaries), [figure.plain(clause) for clause in clauses]
    if ax is None:
        wide, high = (max(map(len, texts), default=0) for texts in (names, heads))
        width_mm = max(LEAST_MM[0], (wide * 0.068 + len(heads) * _CELL_IN + 0.4) * 25.4)
        letter_in = 0.052 if width_mm < _NARROW_MM else 0.064
        height_mm = max(LEAST_MM[1], (high * letter_in + len(names) * _CELL_IN + 0.5) * 25.4)
        ax = figure.prepare(None, width_mm=width_mm, height_mm=height_mm)
    else:
        ax = figure.prepare(ax)
    if not summaries:
        return figure.empty_axes(ax, "no runs")
    _draw_grid(ax, names, clauses, heads)
    for y, summary in enumerate(summaries):
        _draw_run(ax, y, summary, clauses)
    drawn = {str(each.get_gid()).partition(" ")[0] for each in ax.patches}
    looks = [look for kind, look in _GLYPHS.items() if kind in drawn]
    samples = [
        figure.mark_sample(f"{glyph}  {what}", "s", fill, fill, 6) for glyph, fill, _, what in looks
    ]
    corner = (-0.5, len(names) - 0.4)
    figure.legend(ax, samples, loc="upper left", bbox_to_anchor=corner, bbox_transform=ax.transData)
    return ax


def clauses_of(summaries: Sequence[Summary]) -> list[str]:
    """Return every clause checked in these runs, in the specification's order."""
    found = {check.clause for summary in summaries for check in checks_of(summary.journal)}
    return sorted(found, key=_by_section)


def held_clauses(summary: Summary) -> dict[str, bool]:
    """Return whether all checks of each clause held."""
    held: dict[str, bool] = {}
    for check in checks_of(summary.journal):
        held[check.clause] = held.get(check.clause, True) and check.ok
    return held


def _named(summaries: Sequence[Summary]) -> list[str]:
    names = [summary.name for summary in summaries]
    return [
        ("✗ " if summary.outcome == "failed" else "")
        + figure.plain(summary.name)
        + (f" (seed {summary.seed})" if names.count(summary.name) > 1 else "")
        for summary in summaries
    ]


def _by_section(clause: str) -> tuple[int, float, str]:
    """Sort clauses as in the specification, invariants after them."""
    section = clause.partition("/")[0]
    try:
        return 0, float(section), clause
    except ValueError:
        return 1, 0.0, clause


def _draw_grid(ax: Axes, names: list[str], clauses: list[str], heads: list[str]) -> None:
    """Draw the grid of empty cells in the upper left corner; a cell has a maximal size."""
    columns = max(1.0, len(clauses), figure.width_in(ax) / _MOST_CELL_IN)
    rows = max(len(names), figure.height_in(ax) / _MOST_CELL_IN)
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(rows - 0.5, -0.5)
    cell_in = min(figure.height_in(ax) / rows, figure.width_in(ax) / columns)
    letters = min(figure.font_size(ax), 0.62 * 72 * cell_in)
    ax.xaxis.tick_top()
    ax.set_xticks(range(len(heads)), heads, rotation=90, size=letters, parse_math=False)
    ax.set_yticks(range(len(names)), names, size=letters, parse_math=False)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)
    ax.hlines(np.arange(len(names) + 1) - 0.5, -0.5, len(clauses) - 0.5, color=LIGHT, lw=0.5)
    for x, (one, other) in enumerate(pairwise(clauses)):
        is_new = one.partition("/")[0] != other.partition("/")[0]
        ax.vlines(x + 0.5, -0.5, len(names) - 0.5, color=GREY if is_new else LIGHT, lw=0.5)


def _draw_run(ax: Axes, y: int, summary: Summary, clauses: list[str]) -> None:
    letters = ax.get_yticklabels()[0].get_fontsize()
    if summary.outcome == "skipped":
        ax.barh(
            y, len(clauses) or 1, left=-0.5, height=0.8, color=LIGHT, zorder=2.5,
            gid=f"skipped {summary.name}",
        )  # fmt: skip
        text = figure.plain(f"\N{EN DASH} skipped: {summary.reason}")
        ax.text(-0.3, y, text, va="center", size=letters, color=BLACK)
    for clause, ok in held_clauses(summary).items():
        glyph, fill, ink, _ = _GLYPHS["passed" if ok else "failed"]
        x = clauses.index(clause)
        ax.bar(x, 0.8, 0.8, y - 0.4, color=fill, gid=f"{'passed' if ok else 'failed'} {clause}")
        ax.text(x, y, glyph, ha="center", va="center_baseline", size=letters, color=ink)
