"""Plots a result against a parameter: means with a band, one line for each other parameter."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from pandas import DataFrame
from pandas.api.types import is_numeric_dtype

from x402sim.report.plots import figure
from x402sim.report.plots.figure import GREY, LINES, MARKS, Labels, styled
from x402sim.text.suggest import unknown

_LEAST_TICK_IN = 0.45
_ALPHA = 0.18
_WIDE = 20
"""The x axis is logarithmic if the largest value is so many times the smallest one."""


@styled
def bands(
    table: DataFrame,
    x: str,
    y: str,
    *,
    by: str | None = None,
    band: tuple[str, str] = ("low", "high"),
    ax: Axes | None = None,
    labels: Labels | None = None,
) -> Axes:
    """Draw the mean of a result against a parameter, with a band around it.

    `table` is what `x402sim.summarize` returns, `x` a parameter, `y` one of its results, and `by`
    another parameter: one line for each of its values, at most five. The band is the confidence
    interval of the mean, and the legend says whether it counts seeds or rows; with
    `band=("q05", "q95")` it has nine tenths of the rows. `labels` are words for names,
    of parameters, results, values, or both together:
    `{"block_s": "block interval", "k": "confirmations", "k 0": "no confirmation"}`.

    The x axis is logarithmic where the largest value is above 20 times the smallest; the y axis
    never is: `axes.set(yscale="log")`. Raises `ValueError` for a column or a result that the table
    does not have, for more lines than can be told apart, and for several means at one place.
    """
    places = [x, *([by] if by else [])]
    for name in (*places, "result", "mean", *band):
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
    for (value, group), (colour, dashes), mark in zip(groups, LINES, MARKS, strict=False):
        xs = np.array([at[value] for value in group[x]])
        order = np.argsort(xs)
        sorted_group = group.iloc[order]
        low, mean, high = (sorted_group[name] for name in (band[0], "mean", band[1]))
        ax.fill_between(xs[order], low, high, color=colour, alpha=_ALPHA, lw=0)
        ax.plot(
            xs[order], mean, color=colour, ls=dashes, lw=1.4, marker=mark, ms=3.5,
            label="mean" if by is None else _named(by, value),
        )  # fmt: skip
    _x_axis(ax, at, is_number=is_number)
    figure.label_axes(ax, titled(x), titled(y))
    shade = LINES[0][0] if len(groups) == 1 else GREY
    figure.legend(ax, [figure.area_sample(_meaning(table, band), shade, _ALPHA)])
    return ax


def _meaning(table: DataFrame, band: tuple[str, str]) -> str:
    """Return what a band is, for the legend: "95 % interval, by seed", "q05 to q95"."""
    if band != ("low", "high"):
        return f"{figure.plain(band[0])} to {figure.plain(band[1])}"
    confidence, unit = table.attrs.get("confidence"), table.attrs.get("unit")
    text = f"{100 * confidence:g} % interval" if confidence else "interval of the mean"
    return f"{text}, by {unit}" if unit else text


def _x_axis(ax: Axes, at: dict[Any, float], *, is_number: bool) -> None:
    """Name the values on the x axis, as many as there is room for; use a log axis for wide ones."""
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


def titled(name: str) -> str:
    """Return a column's name for a label: "delay_s" is "delay (s)"."""
    words, unit = _words(name)
    return f"{words} ({unit})" if unit and not words.endswith(")") else words


_UNITS = (("_per_s", "1/s"), ("_ms", "ms"), ("_s", "s"), ("_min", "min"), ("_h", "h"))


def _words(name: str) -> tuple[str, str]:
    """Return the words for a column, and the unit that its name ends with, if it has one."""
    suffix, unit = next((each for each in _UNITS if name.endswith(each[0])), ("", ""))
    text = figure.plain(name)
    return text if text != name else name.removesuffix(suffix).replace("_", " "), unit
