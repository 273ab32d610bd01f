"""Draws a judgement: a bar for each section, with the loss of its failures.

Only `Verdict.plot`, a report of judges, uses this file.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import shorten

from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory

from x402sim.report.plots import figure
from x402sim.report.plots.figure import BLACK, GREY, LIGHT, ORANGE, VERMILLION, styled
from x402sim.suite.report import conformance as report
from x402sim.suite.report.results import CaseResult, Outcome, Result

ROW_MM, REST_MM = 6.2, 20
"""Height of a section's bar, and of everything else."""
_ANY = CaseResult(title="", outcome=Outcome.SKIPPED)
"""Stands in for the cases of a result without cases."""
_OF_WIDTH = 0.6
"""About the share of the figure's width beside the titles of sections."""
_LEAST_SHARE = 0.035
"""A narrower part of a bar has no room for its number."""
_LOOKS = {
    "failed": (VERMILLION, "white", ""),
    "failed, does not count": (ORANGE, BLACK, ""),
    "inconclusive": ("#F0E442", BLACK, "///"),
    "passed": ("#b7e0d2", BLACK, ""),
    "observed": ("#cfe6f5", BLACK, ".."),
    "skipped": (LIGHT, GREY, ""),
}
"""Colour, ink and hatch of each kind of result, in the order of a bar."""


@styled
def judgement(
    results: Sequence[Result],
    sections: Mapping[str, str] | None = None,
    ax: Axes | None = None,
    *,
    strict: bool = False,
) -> Axes:
    """Draw a bar for each section of ids: how many failed, passed, and so on, failures first.

    `sections` are their titles. A failure that does not count for the verdict, such as a SHOULD
    unless `strict`, has its own colour. The text at the end of a bar gives the number of failed
    ids, and their loss if money was counted. An id is left out if none of its cases applies.
    """
    results = [each for each in results if any(case.applies for case in each.cases or [_ANY])]
    names = list(dict.fromkeys(result.section for result in results))
    ax = figure.prepare(ax, height_mm=REST_MM + ROW_MM * max(1, len(names)))
    if not names:
        return figure.empty_axes(ax, "nothing was judged")
    most, size = max(Counter(result.section for result in results).values()), figure.font_size(ax)
    seen, ends = set(), [""]
    for y, name in enumerate(names):
        mine = [result for result in results if result.section == name]
        kinds = Counter(_kind(result, strict) for result in mine)
        left = 0
        for kind in filter(kinds.get, _LOOKS):
            fill, ink, hatch = _LOOKS[kind]
            seen.add(kind)
            ax.barh(
                y, kinds[kind], 0.74, left, color=fill, hatch=hatch, ec="white", lw=0.6,
                gid=f"{kind} {name}",
            )  # fmt: skip
            if kinds[kind] >= _LEAST_SHARE * most:
                middle = left + kinds[kind] / 2
                ax.text(middle, y, str(kinds[kind]), ha="center", va="center", size=size, color=ink)
            left += kinds[kind]
        if failed := sum(each.outcome is Outcome.FAILED for each in mine):
            ends.append(", ".join([f"{failed} failed", *report.total_loss(mine)]))
            ax.annotate(
                figure.plain(ends[-1]), (left, y), xytext=(4, 0), va="center",
                textcoords="offset points", color=VERMILLION, size=size, annotation_clip=False,
            )  # fmt: skip
    titles = [_title(each, (sections or {}).get(each, "")) for each in names]
    ax.set_yticks(range(len(names)), [figure.plain(each) for each in titles], size=size)
    ax.tick_params(axis="y", length=0)
    ax.set_ylim(len(names) - 0.4, -0.6)
    share = max(map(len, ends)) * 0.62 * size / 72 / (_OF_WIDTH * figure.width_in(ax))
    ax.set_xlim(0, most / (1 - min(0.5, share)) * 1.01)
    ax.set_xticks([x for x in ax.get_xticks() if 0 <= x <= most])
    ax.spines["bottom"].set_bounds(0, most)
    figure.label_axes(ax, "ids", "")
    samples = [
        figure.mark_sample(kind, "s", _LOOKS[kind][0], GREY, 5) for kind in _LOOKS if kind in seen
    ]
    place = blended_transform_factory(ax.figure.transFigure, ax.transAxes)
    figure.legend(ax, samples, bbox_transform=place)
    return ax


def _title(section: str, title: str) -> str:
    said = f"{section} {title}" if section[:1].isdigit() else f"{section}: {title}"
    return shorten(said, 48, placeholder="…")


def _kind(result: Result, strict: bool) -> str:
    if result.outcome is Outcome.FAILED and not report.counts_for_exit(result, strict):
        return "failed, does not count"
    return str(result.outcome)
