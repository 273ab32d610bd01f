"""Plots a result against a parameter: means with their intervals, and a theory to compare."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from pandas import DataFrame
from pandas.api.types import is_numeric_dtype

from x402sim.report.plots import figure
from x402sim.report.plots.figure import BLACK, GREY, LINES, MARKS, Labels, styled
from x402sim.text.words import as_given, unknown

_LEAST_TICK_IN = 0.45
_ALPHA = 0.18
_WIDE = 20  # the x axis is logarithmic above this ratio of the largest value to the smallest
_LEAST_FOR_BAND = 7
"""Least number of x values for a band: between fewer values, a band would suggest results."""
_BAR_PT, _APART_PT = 1.1, 2.6
"""Width of an error bar, and distance between the bars of two lines at one x value."""
_FEW_SEEDS = 10
"""With fewer seeds, the legend states their number, and whether all points share them."""
_THEORY = (0, (2.5, 1.2))
_FINE = 200  # points of the curve of a function
_STUB = 0.2  # half the length of a theory's line at an x value that is not a number
Theory = Callable[..., Any]
"""A function of x, or of x and of the line's value."""


@styled
def bands(
    table: DataFrame,
    x: str,
    y: str,
    *,
    by: str | None = None,
    theory: Theory | None = None,
    ax: Axes | None = None,
    labels: Labels | None = None,
) -> Axes:
    """Draw the mean of a result against a parameter, with a band or error bars around it.

    `table` comes from `x402sim.summarize` or `x402sim.experiments.steady`, `x` is a parameter, `y`
    a result, and `by` another parameter: a line for each value, at most five. The band is the
    confidence interval of the mean, and the legend says what it counts: seeds, rows, batches. With
    fewer than seven x values, or x values that are not numbers, error bars replace the band: a band
    would suggest results between the simulated values. The bars of several lines stand beside each
    other, 2.6 points apart.

    `theory` is a function: of x, `theory=lambda lost: lost / 2`, drawn as a black line; or of x and
    the value of `by`, a line for each value, such as `theory=lambda block_s, latency_s: 10 *
    latency_s + block_s / 2`. It is drawn as thin dashed lines without marks, in the colours of the
    lines; means are then marks without a line, unless the theory is one black line beside bands. It
    is also drawn between the points; of whole numbers, only at whole numbers.

    Points with the same few seeds have correlated errors: a whole curve may be too high. With fewer
    than ten, the legend states their number, "95 % interval of the same 4 seeds"; to tell curves
    apart, use `compare`, which takes differences within each seed.

    `labels` are words for names, of parameters, results, values, or both together:
    `{"block_s": "block interval", "k": "confirmations", "k 0": "no confirmation"}`, and "theory".
    The x axis is logarithmic if the largest value is above 20 times the smallest; for the y axis,
    call `axes.set(yscale="log")`. Raises `ValueError` for a column or a result that the table
    does not have, for more lines than can be told apart, and for several means at one place.
    """
    places = [x, *([by] if by else [])]
    for name in (*places, "result", "mean", "low", "high"):
        if name not in table.columns:
            hint = " (draw what x402sim.summarize returns)" if "mean" not in table.columns else ""
            raise ValueError(unknown("column", name, table.columns) + hint)
    results = table["result"].unique()
    if y not in results:
        raise ValueError(unknown("result", y, results))
    rows = table[table["result"] == y]
    groups = [(None, rows)] if by is None else list(rows.groupby(by, sort=False))
    if rows.duplicated(places).any():
        before = list(table.columns[: list(table.columns).index("result")])
        more = [name for name in before if name not in places and rows[name].nunique() > 1]
        raise ValueError(
            f"several means for one value of {' and '.join(places)}: the table varies in "
            f"{', '.join(more)}, too; give it as `by`, or choose rows of one value"
        )
    if len(groups) > len(LINES):
        raise ValueError(f"{by} has {len(groups)} values, of which {len(LINES)} can be told apart")
    ax = figure.prepare(ax)
    if rows.empty:
        return figure.empty_axes(ax, "no results")
    known, is_number = rows[x].unique(), is_numeric_dtype(rows[x])
    at = {value: float(value if is_number else rank) for rank, value in enumerate(known)}
    _x_axis(ax, at, is_number=is_number)
    has_band = is_number and len(at) >= _LEAST_FOR_BAND
    # A line would cover the theory of the same colour, and suggest results between few places.
    is_joined = is_number and (theory is None or (has_band and _is_one_line(theory, groups)))
    for number, (value, group) in enumerate(groups):
        xs = np.array([at[each] for each in group[x]])
        order = np.argsort(xs)
        label = "mean" if by is None else _named(by, value)
        aside_pt = 0.0 if has_band else (number - (len(groups) - 1) / 2) * _APART_PT
        line = _Line(ax, number, label, aside_pt, is_joined=is_joined)
        line.draw(xs[order], group.iloc[order], has_band=has_band)
    if theory is not None:
        _draw_theory(ax, theory, groups, x, at if not is_number else None)
    figure.label_axes(ax, titled(x), titled(y, table.attrs.get("units", {}).get(y, "")))
    shade, meaning = LINES[0][0] if len(groups) == 1 else GREY, _meaning(rows)
    bar = figure.mark_sample(meaning, "|", shade, shade, size=8)
    bar.set(linewidth=_BAR_PT, markeredgewidth=_BAR_PT)
    sample = figure.area_sample(meaning, shade, _ALPHA) if has_band else bar
    has_interval = bool(rows["low"].notna().any())  # one seed has no interval
    figure.legend(ax, [
        *([sample] if has_interval else []),
        *([figure.line_sample("theory", BLACK, _THEORY, 0.9)] if theory is not None else []),
    ])  # fmt: skip
    return ax


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of means: number, label, and the offset to the side in points."""

    ax: Axes
    number: int
    label: str
    aside_pt: float
    is_joined: bool

    def draw(self, xs: Any, rows: DataFrame, *, has_band: bool) -> None:
        ax, (colour, dashes), mark = self.ax, LINES[self.number], MARKS[self.number]
        low, mean, high = (rows[name].to_numpy() for name in ("low", "mean", "high"))
        if has_band:
            ax.fill_between(xs, low, high, color=colour, alpha=_ALPHA, lw=0)
        else:
            self._move(ax.vlines(xs, low, high, color=colour, lw=_BAR_PT, gid=f"bars {self.label}"))
        (line,) = ax.plot(
            xs, mean, color=colour, ls=dashes if self.is_joined else "", lw=1.4, marker=mark,
            ms=3.5, label=self.label,
        )  # fmt: skip
        self._move(line)

    def _move(self, artist: Artist) -> None:
        """Move an artist aside, after the axes have taken their limits from its place."""
        if self.aside_pt:
            aside = ScaledTranslation(self.aside_pt / 72, 0, self.ax.figure.dpi_scale_trans)
            artist.set_transform(self.ax.transData + aside)


def _draw_theory(
    ax: Axes, theory: Theory, groups: Sequence[Any], x: str, ranks: dict[Any, float] | None
) -> None:
    is_of_x, is_one = _is_of_x(theory), _is_one_line(theory, groups)
    every = np.concatenate([each[x].to_numpy() for _, each in groups])
    for number, (value, _) in enumerate(groups[:1] if is_of_x else groups):
        xs = list(dict.fromkeys(every)) if ranks is not None else _between(ax, every)
        ys = [_number(theory(each) if is_of_x else theory(each, value), each) for each in xs]
        colour = BLACK if is_one else LINES[number][0]
        look: dict[str, Any] = {"color": colour, "ls": _THEORY, "lw": 0.9, "zorder": 2.5}
        if ranks is None:
            ax.plot(xs, ys, gid=f"theory {value}", **look)
            continue
        for place, y in zip((ranks[each] for each in xs), ys, strict=True):
            ax.plot([place - _STUB, place + _STUB], [y, y], gid=f"theory {value}", **look)


def _number(said: Any, x: Any) -> float:
    """Return a theory's value at x; raises `ValueError` if it is not a number."""
    try:
        return float(said)
    except (TypeError, ValueError):
        raise ValueError(
            f"theory: at {x} it gives {as_given(said)}, and a number is needed"
        ) from None


def _is_of_x(theory: Theory) -> bool:
    try:
        known = signature(theory).parameters.values()
    except ValueError:  # one of numpy's
        return True
    return sum(each.default is each.empty for each in known) < 2


def _is_one_line(theory: Theory, groups: Sequence[Any]) -> bool:
    return _is_of_x(theory) or len(groups) == 1


def _between(ax: Axes, known: Any) -> list[Any]:
    low, high = known.min(), known.max()
    space = np.geomspace if ax.get_xscale() == "log" else np.linspace
    if np.issubdtype(known.dtype, np.integer):
        fine = np.union1d(np.rint(space(low, high, _FINE)).astype(int), known)
    else:
        fine = np.union1d(space(low, high, _FINE), known)
    return list(fine.tolist())


def _meaning(rows: DataFrame) -> str:
    """Return the meaning of a band, for the legend: "95 % interval, by seed"."""
    confidence, unit = rows.attrs.get("confidence"), rows.attrs.get("unit")
    text = f"{100 * confidence:g} % interval" if confidence else "interval of the mean"
    if "seeds" in rows and unit == "seed":
        fewest, most = int(rows["seeds"].min()), int(rows["seeds"].max())
        if fewest < _FEW_SEEDS and most > 1:
            if fewest < most:  # points have failed, or the sweep has stopped by itself
                return f"{text} of {fewest} to {most} seeds"
            same = "the same " if rows.attrs.get("common seeds") and len(rows) > 1 else ""
            return f"{text} of {same}{most} seeds"
    return f"{text}, by {unit}" if unit else text


def _x_axis(ax: Axes, at: dict[Any, float], *, is_number: bool) -> None:
    """Label the values on the x axis if there is room; make it logarithmic for a wide range."""
    places = sorted(at.values())
    if is_number and places[0] > 0 and places[-1] / places[0] > _WIDE:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    room = max(2, int(figure.width_in(ax) / _LEAST_TICK_IN))
    if len(places) <= room:
        names = {place: _shown(value) for value, place in at.items()}
        ax.xaxis.set_major_locator(FixedLocator(places))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda place, _: names.get(place, "")))
    if not is_number:
        ax.set_xlim(-0.3, len(places) - 0.7)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else figure.plain(value)


def _named(name: str, value: Any) -> str:
    """Return a parameter's value for a legend: "latency 60 s"; a text needs no parameter."""
    whole = f"{name} {value}"
    if (text := figure.plain(whole)) != whole or isinstance(value, str):
        return text if text != whole else figure.plain(value)
    words, unit = _words(name)
    if isinstance(value, bool | np.bool_):
        return f"{words}: {'yes' if value else 'no'}"
    return " ".join(part for part in (words, _shown(value), unit) if part)


def titled(name: str, known: str = "") -> str:
    """Return a column's name for a label, "delay_s" as "delay (s)"; `known` is a known unit."""
    words, unit = _words(name)
    unit = known if known not in ("", words) else unit
    return f"{words} ({unit})" if unit and not words.endswith(")") else words


_UNITS = (("_per_s", "1/s"), ("_ms", "ms"), ("_s", "s"), ("_min", "min"), ("_h", "h"))


def _words(name: str) -> tuple[str, str]:
    """Return the words for a column, and the unit at the end of the name, if any."""
    suffix, unit = next((each for each in _UNITS if name.endswith(each[0])), ("", ""))
    text = figure.plain(name)
    return text if text != name else name.removesuffix(suffix).replace("_", " "), unit
