"""Plots of time: latency by part, the queues before parts, and the indexer's backlog."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from x402sim.events import PaymentFailed, PaymentIndexed, PaymentSettled, PaymentUndone
from x402sim.report import frames
from x402sim.report.columns import in_turn, tables
from x402sim.report.frames import queues
from x402sim.report.plots import figure
from x402sim.report.plots.figure import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    PURPLE,
    VERMILLION,
    Labels,
    styled,
)
from x402sim.report.reading import Source, journal_of, reading_of
from x402sim.report.trace import CHAIN, LANES

_MOST_ROWS = 12
_ENOUGH = 5  # least number of answers for quartiles
_COLOURS = {"service": BLUE, "facilitator": VERMILLION, "explorer": GREEN, CHAIN: PURPLE}


@styled
def latency(source: Source, ax: Axes | None = None, *, labels: Labels | None = None) -> Axes:
    """Draw the latency of each part, one row for each kind of request, in the part's colour.

    Ring: median; thick line: middle half; thin line: 5th to 95th percentile; faint ticks: single
    answers. Unanswered requests are counted in the row's text. Of more than twelve kinds of
    requests, the axis says how many are left out. `labels` are words for the names of parts and
    requests.
    """
    table = frames.latency(journal_of(source))
    every = _by_callee(table)
    groups = every[:_MOST_ROWS]
    ax = figure.prepare(ax, height_mm=14 + 8 * max(2, len(groups)))
    if not groups:
        return figure.empty_axes(ax, "no exchanges")
    slowest = float(table["latency_s"].max())
    scale, unit = (1, "s") if slowest >= 1 else (1000, "ms")
    more = f"; {len(every) - len(groups)} rarer kinds left out" if every[_MOST_ROWS:] else ""
    groups.sort(key=lambda each: [*_COLOURS, each[0]].index(each[0]))
    for y, (to, what, group) in enumerate(groups):
        name = f"{figure.plain(to)}: {figure.plain(what)}"
        _draw_row(ax, y, name, group, _colour(to), (scale, unit))
    _latency_axis(ax, table["latency_s"].to_numpy() * scale)
    # Between rows: else the marks of a row seem to belong to the text below.
    ends = ax.get_xlim()
    ax.hlines(np.arange(1, len(groups)) - 0.475, *ends, colors=LIGHT, lw=0.6, zorder=0)
    ax.set_xlim(ends)
    ax.set_ylim(len(groups) - 0.45, -0.65)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    figure.label_axes(ax, f"latency ({unit}){more}", "")
    has_spread = any(group["latency_s"].count() >= _ENOUGH for _, _, group in groups)
    parts = dict.fromkeys(to for to, *_ in groups)
    figure.legend(ax, [
        *(figure.mark_sample(to, "s", _colour(to), _colour(to)) for to in parts),
        figure.mark_sample("median", "o", "white"),
        figure.mark_sample("single answers", "|", GREY),
        *(
            figure.line_sample(name, GREY, "-", width)
            for name, width in (("middle half", 4), ("5th to 95th percentile", 1)) if has_spread
        ),
    ])  # fmt: skip
    return ax


def _colour(part: str) -> str:
    return _COLOURS.get(part, BLACK)


def _by_callee(table: Any) -> list[tuple[str, str, Any]]:
    """Return the exchanges grouped by callee and path, the largest group first."""
    what = table["path"].astype("str").map(_without_ids)
    groups = [
        (LANES.get(str(to), str(to)), str(path), group)
        for (to, path), group in table.groupby(["to", what], observed=True, sort=False)
    ]
    return sorted(groups, key=lambda each: -len(each[2]))


def _without_ids(path: str) -> str:
    """Return a path without the id at its end; of a URL's query, only the query."""
    path = path.rpartition("?")[2]
    head, _, tail = path.rpartition("/")
    return f"{head}/…" if tail.startswith(("pay_", "session_")) else path


def _draw_row(ax: Axes, y: int, name: str, group: Any, colour: str, scale: tuple[int, str]) -> None:
    took = group["latency_s"].dropna().to_numpy() * scale[0]
    facts = [f"n = {len(group)}"]
    if len(took) < len(group):
        facts.append(f"{len(group) - len(took)} unanswered")
    if len(took):
        facts.append(f"median {np.median(took):.3g} {scale[1]}")
        # a tick for each answer; quartiles only of enough answers
        ticks, at = np.unique(took), y + 0.25
        alpha = max(0.08, min(0.6, 30 / len(ticks)))
        ax.plot(
            ticks, np.full(len(ticks), at), "|", color=colour, ms=6, alpha=alpha, clip_on=False,
        )  # fmt: skip
        if len(took) >= _ENOUGH:
            low, first, third, high = np.percentile(took, [5, 25, 75, 95])
            ax.hlines(at, low, high, color=colour, lw=1)
            ax.hlines(at, first, third, color=colour, lw=4)
        ax.plot(np.median(took), at, "o", ms=4.5, mfc="white", mec=colour, mew=1.2, clip_on=False)
    for x, side, text, shade in (
        (0.0, "left", name, BLACK), (1.0, "right", ", ".join(facts), GREY)
    ):  # fmt: skip
        ax.text(
            x, y - 0.2, figure.plain(text), transform=ax.get_yaxis_transform(), ha=side,
            va="center", size=figure.font_size(ax) - 0.5, color=shade,
        )  # fmt: skip


def _latency_axis(ax: Axes, took: Any) -> None:
    """Use a logarithmic axis if the latencies span more than a factor of 20, and none is zero."""
    took = took[~np.isnan(took)]
    if len(took) and took.min() > 0 and took.max() / took.min() > 20:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_xlim(left=0, right=None if len(took) and took.max() > 0 else 1)


@styled
def queue(source: Source, ax: Axes | None = None, *, labels: Labels | None = None) -> Axes:
    """Draw how many requests wait or are being served at each part with `servers`, over time.

    `labels` rename parts.
    """
    journal = journal_of(source)
    table, last_s = queues(journal), reading_of(journal).length_s
    ax = figure.prepare(ax)
    table = table[table["outcome"] != "refused"]
    if table.empty:
        return figure.empty_axes(ax, "no part has servers")
    unit_s = figure.time_axis(ax, last_s, y="requests waiting or served")
    for number, (part, rows) in enumerate(table.groupby("part", observed=True)):
        colour, dashes = figure.LINES[number % len(figure.LINES)]
        mark = ("", *figure.MARKS)[number // len(figure.LINES)]  # 30 parts can be told apart
        ended_s, arrived_s = rows["ended_s"].dropna(), rows["arrived_s"]
        moves = pd.concat([pd.Series(1, arrived_s), pd.Series(-1, ended_s)])
        inside = moves.groupby(level=0).sum().cumsum()  # a value for each moment
        xs = np.array([0.0, *inside.index, last_s]) / unit_s
        ys, name = [0, *inside, inside.iloc[-1]], figure.plain(str(part))
        ax.step(
            xs, ys, where="post", color=colour, ls=dashes, lw=1.2, label=name, marker=mark,
            markevery=0.1, ms=3.5,
        )  # fmt: skip
    figure.legend(ax)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=2))
    ax.set_ylim(bottom=0)
    return ax


_MANY_RUNS = 100
_WHOLE, _PART = "indexer run: batch complete", "indexer run: batch incomplete"


@styled
def backlog(source: Source, ax: Axes | None = None, *, labels: Labels | None = None) -> Axes:
    """Draw how many settled payments have no block number yet, over time.

    Dot: a run of the indexer that found every record of its batch; ring: a run that did not.
    `labels` rename texts of the legend and the axes.
    """
    journal = journal_of(source)
    reading, runs, waiting = reading_of(journal), frames.backlog(journal), set[int]()
    points = [(0.0, 0)]

    def settled(at_ms: int, payment_id: int) -> None:
        waiting.add(payment_id)
        points.append((reading.since(at_ms), len(waiting)))

    def ended(at_ms: int, payment_id: int) -> None:
        waiting.discard(payment_id)
        points.append((reading.since(at_ms), len(waiting)))

    begun, *ends = tables(journal, PaymentSettled, PaymentIndexed, PaymentUndone, PaymentFailed)
    in_turn(begun.calls(settled, texts=False), *(e.calls(ended, texts=False) for e in ends))
    ax = figure.prepare(ax)
    if runs.empty and len(points) == 1:
        return figure.empty_axes(ax, "nothing to index")
    last_s = reading.length_s
    unit_s = figure.time_axis(ax, last_s, y="payments without a block number")
    xs, ys = zip(*points, (last_s, len(waiting)), strict=True)
    label = figure.plain("payments")
    ax.step(np.array(xs) / unit_s, ys, where="post", color=BLUE, lw=1.2, label=label)
    is_done = (runs["matched"] + runs["reverted"] == runs["asked"]).to_numpy(dtype="bool")
    at, left = runs["t_s"].to_numpy() / unit_s, runs["backlog"].to_numpy(dtype="float64")
    for these, face, name in (is_done, BLACK, _WHOLE), (~is_done, "white", _PART):
        if these.any():
            ax.plot(
                at[these], left[these], "o", mfc=face, mec=BLACK, clip_on=False, zorder=3,
                ms=3.5 if len(runs) < _MANY_RUNS else 1.5, label=figure.plain(name),
            )  # fmt: skip
    figure.legend(ax)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=2))
    ax.set_ylim(bottom=0)
    return ax
