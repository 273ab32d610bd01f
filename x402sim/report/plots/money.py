"""How do plots show money? The parties' balances, and the budgets of sessions."""

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from x402sim.protocol.money import to_decimal
from x402sim.report import frames
from x402sim.report.plots.figure import (
    GREY,
    LIGHT,
    LINES,
    empty_axes,
    label_ends,
    legend,
    line_sample,
    mark_sample,
    plain,
    prepare,
    styled,
    time_axis,
)
from x402sim.report.reading import MINT, Reading, Source, journal_of

MOST_LINES = len(LINES)
"""More parties are drawn as one total, more sessions as thin grey lines."""
Points = list[tuple[float, int]]
"""The points of a line: (seconds, base units)."""


@styled
def balances(source: Source, ax: Axes | None = None, *, with_funding: bool = False) -> Axes:
    """Draw each party's net gain or loss on the chain over time.

    Minted tokens are left out, so that small payments stay visible; `with_funding` includes
    them. If the parties are too many to tell apart, all but the merchant are one line.
    """
    reading = Reading(journal_of(source))
    held = _held(reading, with_funding)
    ax = prepare(ax)
    if not held:
        return empty_axes(ax, "no transfers")
    if len(held) > MOST_LINES:
        held = _payers_together(held)
    last_s = reading.length_s
    scale = 10**reading.decimals
    sign = "" if with_funding else "+"
    texts = [
        f"{plain(name)[:24]} {sign if line[-1][1] > 0 else ''}"
        f"{to_decimal(line[-1][1], reading.decimals)}".replace("-", "\N{MINUS SIGN}")
        for name, line in held.items()
    ]
    what = "balance" if with_funding else "net gain"
    unit_s = time_axis(ax, last_s, texts, f"{what} ({reading.symbol})")
    for (name, line), (colour, dashes) in zip(held.items(), LINES, strict=False):
        xs, ys = zip(*line, (last_s, line[-1][1]), strict=True)
        ax.step(
            np.array(xs) / unit_s, np.array([float(y) for y in ys]) / scale, where="post",
            color=colour, ls=dashes, lw=1.4, label=plain(name),
        )  # fmt: skip
    at = [line[-1][1] / scale for line in held.values()]
    label_ends(ax, last_s / unit_s, at, texts, [colour for colour, _ in LINES[: len(at)]])
    ax.hlines(0, 0, last_s / unit_s, color=LIGHT, lw=0.8, zorder=0)
    return ax


def _held(reading: Reading, with_funding: bool) -> dict[str, Points]:
    """Return each party's balance after each transfer, the merchant first."""
    lines: dict[str, Points] = {}
    for moved in reading.movements():
        sender, to = reading.name(moved.transfer.sender), reading.name(moved.transfer.to)
        at_s = reading.since(moved.entry.at_ms) or 0.0
        for party, change in (sender, -moved.amount_base), (to, moved.amount_base):
            if party == MINT:
                continue
            line = lines.setdefault(party, [(0.0, 0)])
            if MINT not in (sender, to) or with_funding:
                line.append((at_s, line[-1][1] + change))
    return dict(sorted(lines.items(), key=lambda item: item[0] != "merchant"))


def _payers_together(held: dict[str, Points]) -> dict[str, Points]:
    """Return the merchant's line, and one line for the total of all others."""
    others = [line for name, line in held.items() if name != "merchant"]
    changes = sorted(
        (after[0], after[1] - before[1]) for line in others for before, after in pairwise(line)
    )
    totals = accumulate(change for _, change in changes)
    together = [(0.0, 0), *((at_s, y) for (at_s, _), y in zip(changes, totals, strict=True))]
    first = {"merchant": held["merchant"]} if "merchant" in held else {}
    return {**first, f"{len(others)} others": together}


_MARKS = {"opened": "o", "expired": "v", "refunded": "s"}


@styled
def session_burn_down(source: Source, ax: Axes | None = None) -> Axes:
    """Draw each session's remaining budget over time.

    Disc: opened; triangle: expired; square: refunded. More than five sessions are thin grey
    lines without marks.
    """
    reading = Reading(journal_of(source))
    table = frames.sessions(journal_of(source))
    ax = prepare(ax)
    if table.empty:
        return empty_axes(ax, "no sessions")
    groups = [group for _, group in table.groupby("session_id", observed=True, sort=False)]
    unit_s = time_axis(ax, float(table["t_s"].max()), y=f"remaining budget ({reading.symbol})")
    are_few = len(groups) <= MOST_LINES
    looks = LINES[: len(groups)] if are_few else [(GREY, "-")] * len(groups)
    names = [group["payer"].iloc[0] for group in groups] if are_few else [f"{len(groups)} sessions"]
    for group, (colour, dashes) in zip(groups, looks, strict=True):
        _draw_session(ax, group, unit_s, colour, dashes)
    legend(ax, [
        *(line_sample(name, *look) for name, look in zip(names, looks, strict=False)),
        *(
            mark_sample(name, marker, GREY if name == "opened" else "white")
            for name, marker in _MARKS.items()
            if are_few and (table["event"] == name).any()
        ),
    ])  # fmt: skip
    ax.set_ylim(bottom=0)
    return ax


def _draw_session(ax: Axes, group: Any, unit_s: float, colour: str, dashes: Any) -> None:
    xs, ys = group["t_s"].to_numpy() / unit_s, group["remaining"].to_numpy(dtype="float64")
    if colour == GREY:
        ax.step(xs, ys, where="post", color=colour, lw=0.7, alpha=0.6)
        return
    ax.step(xs, ys, where="post", color=colour, lw=1.4, ls=dashes)
    for name, marker in _MARKS.items():
        there = (group["event"] == name).to_numpy()
        if there.any():
            ax.plot(
                xs[there], ys[there], ls="", marker=marker, ms=4.5, mec=colour,
                mfc=colour if name == "opened" else "white", clip_on=False, zorder=3,
            )  # fmt: skip
