"""How does the matrix of mutants and checks look, as a table and as a picture?"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch, Rectangle

from tests.mutants.honest import HONEST
from tests.mutants.jury import Verdict
from tests.mutants.rows import MUTANTS
from x402sim.report.plots.figure import BLACK, BLUE, LIGHT, ORANGE, prepare, styled
from x402sim.suite.engine import folder
from x402sim.suite.verdict import Outcome

COLOURS = {
    Outcome.PASSED: "#FFFFFF",
    Outcome.OBSERVED: "#FFFFFF",
    Outcome.SKIPPED: LIGHT,
    Outcome.INCONCLUSIVE: BLUE,
    Outcome.FAILED: ORANGE,
}
_DRAWN = (Outcome.PASSED, Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.SKIPPED)
_CELL_MM = 3.6


FILE = folder() / "mutation_matrix.csv"
"""The matrix of all services, kept beside the checks."""


def write(file: Path, verdicts: Sequence[Verdict], checks: Sequence[str]) -> None:
    """Write a row for each service and a column for each check.

    The first columns are its name, its class of defect ("honest" if it has none), and the
    ids that must fail, with spaces between them. A cell is the outcome; it is empty for
    what is no news: passed, and observed. Rows of other services in the file stay.
    """
    new = {verdict.name: row(verdict, checks) for verdict in verdicts}
    header, *old = kept(file) if file.exists() else [[]]
    has_these_columns = header == [*FIRST, *checks]
    rows = {name: values for name, *values in old if has_these_columns}
    rows |= {name: values for name, *values in new.values()}
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*FIRST, *checks])
    table.writerows([name, *rows[name]] for name in (*MUTANTS, *HONEST) if name in rows)
    file.write_text(text.getvalue(), encoding="utf-8")


def row(verdict: Verdict, checks: Sequence[str]) -> list[str]:
    """Return the row of one service."""
    mutant = MUTANTS.get(verdict.name)
    wanted = sorted(mutant.check_ids) if mutant else []
    outcomes = [_outcome(verdict, check) for check in checks]
    news = ["" if each in NO_NEWS else str(each) for each in outcomes]
    return [verdict.name, mutant.kind if mutant else "honest", " ".join(wanted), *news]


def kept(file: Path = FILE) -> list[list[str]]:
    """Return the rows of a matrix, its header first; by default of the one that is kept."""
    return list(csv.reader(file.read_text(encoding="utf-8").splitlines()))


FIRST = ("service", "class", "must_fail")
NO_NEWS = (Outcome.PASSED, Outcome.OBSERVED)


@styled
def draw(verdicts: Sequence[Verdict], checks: Sequence[str], ax: Axes | None = None) -> Axes:
    """Draw a row for each mutant, a column for each check, and frame where it must fail."""
    rows, columns = len(verdicts), len(checks)
    ax = prepare(ax, height_mm=_CELL_MM * rows + 60, width_mm=_CELL_MM * columns + 90)
    numbers = {outcome: n for n, outcome in enumerate(COLOURS)}
    grid = [[numbers[_outcome(verdict, check)] for check in checks] for verdict in verdicts]
    colours = ListedColormap(list(COLOURS.values()))
    norm = BoundaryNorm([n - 0.5 for n in range(len(COLOURS) + 1)], len(COLOURS))
    ax.pcolormesh(grid, cmap=colours, norm=norm, edgecolors="#EEEEEE", linewidth=0.3)
    for y, verdict in enumerate(verdicts):
        for x, check in enumerate(checks):
            if check in MUTANTS[verdict.name].check_ids:
                ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=BLACK, linewidth=0.9))
    _name(ax, verdicts, checks)
    handles = [Patch(facecolor=COLOURS[o], edgecolor=BLACK, linewidth=0.3, label=o) for o in _DRAWN]
    handles.append(Patch(fill=False, edgecolor=BLACK, linewidth=0.9, label="must fail"))
    ax.figure.legend(
        handles=handles, loc="outside upper left", ncols=len(handles), frameon=False, fontsize=7
    )
    return ax


def _name(ax: Axes, verdicts: Sequence[Verdict], checks: Sequence[str]) -> None:
    """Write the names: mutants with their class at the left, checks above and below."""
    ax.set_xlim(0, len(checks))
    ax.set_ylim(len(verdicts), 0)
    ax.set_xticks([n + 0.5 for n in range(len(checks))], checks, rotation=90, size=6)
    names = [each.name for each in verdicts]
    ax.set_yticks([n + 0.5 for n in range(len(names))], names, size=6)
    ax.tick_params(length=0, labeltop=True)
    ax.set_xlabel("check", size=8)
    ax.set_ylabel("mutant, by class", size=8)
    kinds = [MUTANTS[name].kind for name in names]
    for first in (n for n in range(len(kinds)) if n == 0 or kinds[n] != kinds[n - 1]):
        ax.axhline(first, color=BLACK, linewidth=0.6)
        ax.text(len(checks) + 0.6, first + 0.2, kinds[first], va="top", size=7)


def _outcome(verdict: Verdict, check: str) -> Outcome:
    result = verdict.results.get(check)
    return result.outcome if result else Outcome.INCONCLUSIVE
