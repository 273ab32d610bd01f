"""Which checks held in which scenario? The outcome matrix of many runs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from x402sim.report.figure import (
    BLACK,
    GREY,
    LIGHT,
    VERMILLION,
    height_in,
    nothing,
    plain,
    plot,
    prepare,
    size,
    width_in,
)

if TYPE_CHECKING:
    from x402sim.report.run import Run

_CELL_IN = 0.21
LEAST_MM = 100, 25
"""Of a figure of its own, which otherwise grows with what is in it."""
_GLYPHS = {"passed": ("✓", "#b7e0d2", BLACK), "failed": ("✗", VERMILLION, "white")}


@plot
def outcomes(runs: "Sequence[Run]", ax: Axes | None = None) -> Axes:
    """Draw a matrix of scenarios and clauses: which checks held, which did not.

    A tick on green: all checks of that clause held; a white cross on red: one did not;
    a grey bar: the scenario was skipped. An empty cell is a clause it does not check. A
    cross before the name: the scenario failed, by a check or because its story broke.
    """
    clauses = sorted({check.clause for run in runs for check in run.checked}, key=_in_book)
    names = _run_names(runs)
    if ax is None:
        longest = max(map(len, names), default=0) * 0.075, max(map(len, clauses), default=0) * 0.075
        ax = prepare(
            None,
            width_mm=max(LEAST_MM[0], (longest[0] + len(clauses) * _CELL_IN + 0.4) * 25.4),
            height_mm=max(LEAST_MM[1], (longest[1] + len(names) * _CELL_IN + 0.5) * 25.4),
        )
    else:
        ax = prepare(ax)
    if not runs:
        return nothing(ax, "no runs")
    _draw_grid(ax, names, clauses)
    for y, run in enumerate(runs):
        _draw_run(ax, y, run, clauses)
    return ax


def _run_names(runs: "Sequence[Run]") -> list[str]:
    """Return the scenarios' names, with a cross if they failed, and the seed where one needs it."""
    names = [run.name for run in runs]
    return [
        plain(("✗ " if run.outcome == "failed" else "") + run.name)
        + (f" (seed {run.seed})" if names.count(run.name) > 1 else "")
        for run in runs
    ]


def _in_book(clause: str) -> tuple[int, float, str]:
    """Sort clauses as in the specification, and invariants after them."""
    section = clause.partition("/")[0]
    try:
        return 0, float(section), clause
    except ValueError:
        return 1, 0.0, clause


def _draw_grid(ax: Axes, names: list[str], clauses: list[str]) -> None:
    ax.set_xlim(-0.5, max(1, len(clauses)) - 0.5)
    ax.set_ylim(len(names) - 0.5, -0.5)
    letters = min(size(ax), 0.62 * 72 * min(
        height_in(ax) / max(1, len(names)), width_in(ax) / max(1, len(clauses))
    ))  # fmt: skip
    ax.xaxis.tick_top()
    ax.set_xticks(
        range(len(clauses)),
        [plain(c) for c in clauses],
        rotation=90,
        size=letters,
        parse_math=False,
    )
    ax.set_yticks(range(len(names)), names, size=letters, parse_math=False)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)
    ax.hlines(np.arange(len(names) + 1) - 0.5, -0.5, len(clauses) - 0.5, color=LIGHT, lw=0.5)
    for x, (one, other) in enumerate(pairwise(clauses)):
        is_new = one.partition("/")[0] != other.partition("/")[0]
        ax.axvline(x + 0.5, color=GREY if is_new else LIGHT, lw=0.5)


def _draw_run(ax: Axes, y: int, run: "Run", clauses: list[str]) -> None:
    letters = ax.get_yticklabels()[0].get_fontsize()
    if run.outcome == "skipped":
        ax.barh(
            y, len(clauses) or 1, left=-0.5, height=0.8, color=LIGHT, zorder=2.5,
            gid=f"skipped {run.name}",
        )  # fmt: skip
        text = plain(f"\N{EN DASH} skipped: {run.reason}")
        ax.text(-0.3, y, text, va="center", size=letters, color=BLACK)
    held: dict[str, bool] = {}
    for check in run.checked:
        held[check.clause] = held.get(check.clause, True) and check.ok
    for clause, ok in held.items():
        glyph, fill, ink = _GLYPHS["passed" if ok else "failed"]
        x = clauses.index(clause)
        ax.bar(x, 0.8, 0.8, y - 0.4, color=fill, gid=f"{'passed' if ok else 'failed'} {clause}")
        ax.text(x, y, glyph, ha="center", va="center_baseline", size=letters, color=ink)
