"""Plots of money: the parties' balances, and the budgets of sessions."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from x402sim.protocol.money import to_decimal
from x402sim.report.money import Movements, sessions
from x402sim.report.plots import figure
from x402sim.report.plots.figure import BLUE, GREY, LIGHT, LINES, Labels, styled
from x402sim.report.reading import MINT, Reading, Source, journal_of, reading_of

MOST_LINES = len(LINES)
"""Most lines: more parties are drawn as one total, more sessions as bands."""
Points = list[tuple[float, int]]
"""The points of a line: (seconds, base units)."""


@styled
def balances(source: Source, ax: Axes | None = None, *, labels: Labels | None = None) -> Axes:
    """Draw each party's net gain or loss on the chain over time.

    Minted tokens are left out, so that small payments stay visible. If the parties are too many to
    tell apart, all but the merchants are one line, and then the merchants are another. `labels` are
    words for names of parties.
    """
    reading = reading_of(journal_of(source))
    held = _held(reading)
    ax = figure.prepare(ax)
    if not held:
        return figure.empty_axes(ax, "no transfers")
    sellers = [name for name in held if name in reading.merchants]
    if len(held) > MOST_LINES:
        held = _together(held, [name for name in held if name not in sellers], "others")
    if len(held) > MOST_LINES:
        held = _together(held, sellers, "merchants")
    last_s = reading.length_s
    scale = 10**reading.decimals
    texts = [
        f"{figure.plain(name)[:24]} {'+' if line[-1][1] > 0 else ''}"
        f"{to_decimal(line[-1][1], reading.decimals)}".replace("-", "\N{MINUS SIGN}")
        for name, line in held.items()
    ]
    unit_s = figure.time_axis(ax, last_s, texts, f"net gain ({reading.symbol})")
    for (name, line), (colour, dashes) in zip(held.items(), LINES, strict=False):
        xs, ys = zip(*line, (last_s, line[-1][1]), strict=True)
        ax.step(
            np.array(xs) / unit_s, np.array([float(y) for y in ys]) / scale, where="post",
            color=colour, ls=dashes, lw=1.4, label=figure.plain(name),
        )  # fmt: skip
    at = [line[-1][1] / scale for line in held.values()]
    figure.label_ends(ax, last_s / unit_s, at, texts, [colour for colour, _ in LINES[: len(at)]])
    ax.hlines(0, 0, last_s / unit_s, color=LIGHT, lw=0.8, zorder=0)
    return ax


def _held(reading: Reading) -> dict[str, Points]:
    lines: dict[str, Points] = {}
    moves = Movements(reading)
    parties = (moves.mapped(name, reading.name) for name in ("sender", "to"))
    for at_ms, amount_base, sender, to in zip(
        moves.at_ms.tolist(), moves.amounts_base, *parties, strict=True
    ):
        at_s = reading.since(at_ms)
        for party, change in (sender, -amount_base), (to, amount_base):
            if party == MINT:
                continue
            line = lines.setdefault(party, [(0.0, 0)])
            if MINT not in (sender, to):
                line.append((at_s, line[-1][1] + change))
    return dict(sorted(lines.items(), key=lambda item: item[0] not in reading.merchants))


def _together(held: dict[str, Points], names: Sequence[str], what: str) -> dict[str, Points]:
    """Replace the lines of `names` by a line of the total, named "12 others"."""
    if len(names) < 2:
        return held
    changes = sorted(
        (after[0], after[1] - before[1]) for name in names for before, after in pairwise(held[name])
    )
    totals = accumulate(change for _, change in changes)
    together = [(0.0, 0), *((at_s, y) for (at_s, _), y in zip(changes, totals, strict=True))]
    apart = {name: line for name, line in held.items() if name not in names}
    total = {f"{len(names)} {what}": together}
    return total | apart if what == "merchants" else apart | total


_OUTER, _INNER = "#dcebf5", "#9cc8e3"
_MOST_POINTS = 2000
_MARKS = {
    "opened": ("o", 4.5),
    "debited": (".", 4),
    "debit undone": ("+", 5),
    "expired": ("v", 4.5),
    "refunded": ("s", 4.5),
    "failed": ("x", 4.5),
}
_FILLED = ("opened", "debited")
_WIDER_PT = 1.3
"""Points by which a session is wider than the next session, which may cover its line. Lines side
by side would show wrong budgets."""


@styled
def session_burn_down(
    source: Source, ax: Axes | None = None, *, labels: Labels | None = None
) -> Axes:
    """Draw each session's remaining budget over time.

    Disc: opened; dot: a debit; triangle: expired; square: refunded. A session is drawn narrower
    than the session before, and covers no other. More than five sessions are drawn together, over
    the time since the opening: median, middle half, and 5th to 95th percentile of those that the
    run has followed for so long, or to their end.
    `labels` are words for names of payers.
    """
    reading = reading_of(journal_of(source))
    table = sessions(journal_of(source))
    ax = figure.prepare(ax)
    if table.empty:
        return figure.empty_axes(ax, "no sessions")
    groups = [group for _, group in table.groupby("session_id", observed=True, sort=False)]
    budget = f"remaining budget ({reading.symbol})"
    if len(groups) > MOST_LINES:
        return _draw_bands(ax, groups, budget, reading.length_s)
    unit_s = figure.time_axis(ax, float(table["t_s"].max()), y=budget)
    for n, (group, (colour, dashes)) in enumerate(zip(groups, LINES, strict=False)):
        _draw_session(ax, len(groups) - 1 - n, group, unit_s, colour, dashes)
    figure.legend(ax, [
        figure.mark_sample(name, marker, GREY if name in _FILLED else "white", size=size)
        for name, (marker, size) in _MARKS.items()
        if (table["event"] == name).any()
    ])  # fmt: skip
    ax.set_ylim(0, 1.06 * float(table["remaining"].max()) or 1)
    return ax


def _draw_bands(ax: Axes, groups: list[Any], budget: str, last_s: float) -> Axes:
    is_over = [group["event"].iloc[-1] in ("refunded", "failed") for group in groups]
    known_s = [
        np.inf if over else last_s - group["t_s"].iloc[0]
        for group, over in zip(groups, is_over, strict=True)
    ]
    ages = [(group["t_s"] - group["t_s"].iloc[0]).to_numpy() for group in groups]
    lefts = [group["remaining"].to_numpy(dtype="float64") for group in groups]
    at_s = np.unique(np.concatenate(ages))
    if len(at_s) > _MOST_POINTS:
        at_s = np.linspace(0, at_s[-1], _MOST_POINTS)
    held = np.array([
        np.where(at_s <= end_s, left[np.searchsorted(age, at_s, side="right") - 1], np.nan)
        for age, left, end_s in zip(ages, lefts, known_s, strict=True)
    ])  # fmt: skip
    unit_s = figure.time_axis(ax, float(at_s[-1]), y=budget)
    ax.set_xlabel(ax.get_xlabel().replace("virtual time", "time since it was opened"))
    low, first, middle, third, high = np.nanpercentile(held, [5, 25, 50, 75, 95], axis=0)
    xs = at_s / unit_s
    ax.fill_between(xs, low, high, step="post", color=_OUTER, lw=0, gid="band 5 to 95 %")
    ax.fill_between(xs, first, third, step="post", color=_INNER, lw=0, gid="band 25 to 75 %")
    median = f"median of {len(groups)} sessions"
    ax.step(xs, middle, where="post", color=BLUE, lw=1.4, gid="median", label=median)
    figure.legend(ax, [
        figure.area_sample("middle half", _INNER),
        figure.area_sample("5th to 95th percentile", _OUTER),
    ])  # fmt: skip
    ax.set_ylim(bottom=0)
    return ax


def _draw_session(
    ax: Axes, above: int, group: Any, unit_s: float, colour: str, dashes: Any
) -> None:
    """Draw one session; the more sessions are drawn `above`, the wider the line."""
    xs, ys = group["t_s"].to_numpy() / unit_s, group["remaining"].to_numpy(dtype="float64")
    ax.step(
        xs, ys, where="post", color=colour, lw=1.4 + above * _WIDER_PT, ls=dashes, clip_on=False,
        label=figure.plain(group["payer"].iloc[0]),
    )  # fmt: skip
    for name, (marker, size) in _MARKS.items():
        there = (group["event"] == name).to_numpy()
        if there.any():
            ax.plot(
                xs[there], ys[there], ls="", marker=marker, ms=size + above * _WIDER_PT, mec=colour,
                mfc=colour if name in _FILLED else "white", clip_on=False, zorder=3,
            )  # fmt: skip
