"""What happened, as plots for a paper: money, budgets, waiting, the indexer, the checks.

Every function takes a run or a journal (`outcomes`: runs) and, if you like, matplotlib
axes to draw on; it returns the axes. Without axes it makes a figure of its own, which
is `axes.figure`: save it with `savefig`, or let a notebook show it. Times are virtual
seconds since the run began, or the minutes, hours or days that suit its length.
"""

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from x402sim.journal import Journal
from x402sim.protocol.money import to_decimal
from x402sim.report import frames
from x402sim.report.figure import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LIGHT,
    LINES,
    PURPLE,
    VERMILLION,
    ends,
    label,
    nothing,
    plain,
    plot,
    prepare,
    size,
    time_axis,
    width_in,
)
from x402sim.report.matrix import outcomes
from x402sim.report.reading import MINT, Reading, journal_of
from x402sim.report.sequence import sequence

if TYPE_CHECKING:
    from x402sim.report.run import Run

__all__ = ["backlog", "balances", "latency", "outcomes", "sequence", "session_burn_down"]

MOST_LINES = len(LINES)
"""More parties or sessions than can be told apart are shown together."""
Points = list[tuple[float, int]]
"""What a line goes through: moments in seconds, and amounts in base units."""


@plot
def balances(
    source: "Run | Journal", ax: Axes | None = None, *, with_funding: bool = False
) -> Axes:
    """Draw how much each party has gained or lost so far, on the chain.

    What was minted for a party does not count, so that a cent can be seen beside a
    thousand; `with_funding` counts it. Many payers are one line, their total.
    """
    reading = Reading(journal_of(source))
    held = _held(reading, with_funding)
    ax = prepare(ax)
    if not held:
        return nothing(ax, "no transfers")
    if len(held) > MOST_LINES:
        held = _payers_together(held)
    last_s = reading.since(reading.entries[-1].at_ms) or 0.0
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
    ends(ax, last_s / unit_s, at, texts, [colour for colour, _ in LINES[: len(at)]])
    ax.hlines(0, 0, last_s / unit_s, color=LIGHT, lw=0.8, zorder=0)
    return ax


def _held(reading: Reading, with_funding: bool) -> dict[str, Points]:
    """Return what each party has after each movement, the merchant first."""
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
    """Return the merchant's line, and one for the total of everyone else."""
    others = [line for name, line in held.items() if name != "merchant"]
    changes = sorted(
        (after[0], after[1] - before[1]) for line in others for before, after in pairwise(line)
    )
    totals = accumulate(change for _, change in changes)
    together = [(0.0, 0), *((at_s, y) for (at_s, _), y in zip(changes, totals, strict=True))]
    first = {"merchant": held["merchant"]} if "merchant" in held else {}
    return {**first, f"{len(others)} others": together}


_MARKS = {"opened": "o", "expired": "v", "refunded": "s"}


@plot
def session_burn_down(source: "Run | Journal", ax: Axes | None = None) -> Axes:
    """Draw what is left of each session's budget over time.

    A disc is where a session was opened, a triangle where it expired, a square where the
    rest was paid back. More than a few sessions are drawn alike, as thin lines.
    """
    reading = Reading(journal_of(source))
    table = frames.sessions(journal_of(source))
    ax = prepare(ax)
    if table.empty:
        return nothing(ax, "no sessions")
    groups = [group for _, group in table.groupby("session_id", observed=True, sort=False)]
    unit_s = time_axis(ax, float(table["t_s"].max()), y=f"remaining budget ({reading.symbol})")
    are_few = len(groups) <= MOST_LINES
    looks = LINES[: len(groups)] if are_few else [(GREY, "-")] * len(groups)
    names = [group["payer"].iloc[0] for group in groups] if are_few else [f"{len(groups)} sessions"]
    for group, (colour, dashes) in zip(groups, looks, strict=True):
        _draw_session(ax, group, unit_s, colour, dashes)
    _legend(ax, [
        *(_line(name, *look) for name, look in zip(names, looks, strict=False)),
        *(
            _mark(name, marker, GREY if name == "opened" else "white")
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


_MOST_HOPS = 12
_ENOUGH = 5
"""Answers, to speak of their middle half."""
_HOPS = {"service": BLUE, "facilitator": VERMILLION, "explorer": GREEN, "rpc": PURPLE}


@plot
def latency(source: "Run | Journal", ax: Axes | None = None) -> Axes:
    """Draw how long the answers of each part took, by what was asked.

    A dot is the median, a thick line the middle half, a thin line all but the fastest and
    slowest 5 %; each answer is a faint tick. What was never answered is counted.
    """
    table = frames.latency(journal_of(source))
    groups = _by_hop(table)
    ax = prepare(ax, height_mm=14 + 8 * max(2, len(groups)))
    if not groups:
        return nothing(ax, "no exchanges")
    slowest = float(table["latency_s"].max())
    scale, unit = (1, "s") if slowest >= 1 else (1000, "ms")
    for y, (to, what, group) in enumerate(groups):
        _draw_hop(ax, y, f"{to}: {what}", group, _HOPS.get(to, BLACK), (scale, unit))
    _latency_axis(ax, table["latency_s"].to_numpy() * scale)
    ax.set_ylim(len(groups) - 0.45, -0.65)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    label(ax, f"latency ({unit})", "")
    return ax


def _by_hop(table: Any) -> list[tuple[str, str, Any]]:
    """Return the exchanges by who was asked for what, in order of appearance."""
    what = table["path"].astype("str").map(_without_ids)
    order = {to: n for n, to in enumerate(_HOPS)}
    groups = [
        (str(to), str(asked), group)
        for (to, asked), group in table.groupby(["to", what], observed=True, sort=False)
    ]
    most = sorted(groups, key=lambda each: -len(each[2]))[:_MOST_HOPS]
    return sorted(most, key=lambda each: order.get(each[0], len(order)))


def _without_ids(path: str) -> str:
    """Return what a path asks for, whichever payment or session it is about."""
    path = path.rpartition("?")[2]
    head, _, tail = path.rpartition("/")
    return f"{head}/…" if tail.startswith(("pay_", "session_")) else path


def _draw_hop(ax: Axes, y: int, name: str, group: Any, colour: str, scale: tuple[int, str]) -> None:
    took = group["latency_s"].dropna().to_numpy() * scale[0]
    facts = [f"n = {len(group)}"]
    if len(took) < len(group):
        facts.append(f"{len(group) - len(took)} unanswered")
    if len(took):
        facts.append(f"median {np.median(took):.3g} {scale[1]}")
        _draw_spread(ax, y + 0.25, took, colour)
    for x, side, text, shade in (
        (0.0, "left", name, BLACK), (1.0, "right", ", ".join(facts), GREY)
    ):  # fmt: skip
        ax.text(
            x, y - 0.2, plain(text), transform=ax.get_yaxis_transform(), ha=side, va="center",
            size=size(ax) - 0.5, color=shade,
        )  # fmt: skip


def _draw_spread(ax: Axes, y: float, took: Any, colour: str) -> None:
    """Draw each answer as a tick, and what they have in common if they are enough."""
    ticks = np.unique(took)
    ax.plot(ticks, np.full(len(ticks), y), "|", color=colour, ms=6, alpha=_faint(len(ticks)))
    if len(took) >= _ENOUGH:
        low, first, third, high = np.percentile(took, [5, 25, 75, 95])
        ax.hlines(y, low, high, color=colour, lw=1)
        ax.hlines(y, first, third, color=colour, lw=4)
    ax.plot(np.median(took), y, "o", ms=4.5, mfc="white", mec=colour, mew=1.2)


def _faint(ticks: int) -> float:
    return max(0.08, min(0.6, 30 / ticks))


def _latency_axis(ax: Axes, took: Any) -> None:
    """Use a logarithmic axis where it helps and can be: no answer took no time at all."""
    took = took[~np.isnan(took)]
    if len(took) and took.min() > 0 and took.max() / took.min() > 20:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    else:
        ax.set_xlim(left=0, right=None if len(took) and took.max() > 0 else 1)


_MANY_RUNS = 100


@plot
def backlog(source: "Run | Journal", ax: Axes | None = None) -> Axes:
    """Draw how many settled payments have no block number yet, over time.

    The line rises with each settled payment and falls as the indexer completes records.
    A dot is a run of the indexer that completed all it asked for, a ring one that did not.
    """
    journal = journal_of(source)
    reading, runs, paid = Reading(journal), frames.backlog(journal), frames.payments(journal)
    ax = prepare(ax)
    if runs.empty and paid["settled_s"].isna().all():
        return nothing(ax, "nothing to index")
    last_s = reading.since(reading.entries[-1].at_ms) or 0.0
    unit_s = time_axis(ax, last_s, y="payments without a block number")
    moves = sorted(
        [(t_s, 1) for t_s in paid["settled_s"].dropna()]
        + [(t_s, -1) for t_s in paid["indexed_s"].dropna()]
    )
    xs = np.array([0.0, *(t_s for t_s, _ in moves), last_s]) / unit_s
    ys = [0, *accumulate(by for _, by in moves)]
    ax.step(xs, [*ys, ys[-1]], where="post", color=BLUE, lw=1.2)
    is_done = (runs["matched"] + runs["reverted"] == runs["asked"]).to_numpy(dtype="bool")
    at, left = runs["t_s"].to_numpy() / unit_s, runs["backlog"].to_numpy(dtype="float64")
    for these, face in (is_done, BLACK), (~is_done, "white"):
        if these.any():
            ax.plot(
                at[these], left[these], "o", mfc=face, mec=BLACK, clip_on=False, zorder=3,
                ms=3.5 if len(runs) < _MANY_RUNS else 1.5,
            )  # fmt: skip
    _legend(ax, [
        _mark("indexer run: all found", "o", BLACK, BLACK),
        _mark("not all found", "o", "white", BLACK),
    ])  # fmt: skip
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, min_n_ticks=2))
    ax.set_ylim(bottom=0)
    return ax


def _line(name: str, colour: str, dashes: Any) -> Line2D:
    return Line2D([], [], color=colour, ls=dashes, lw=1.4, label=plain(name)[:24])


def _mark(name: str, marker: str, face: str, edge: str = GREY) -> Line2D:
    return Line2D([], [], ls="", marker=marker, ms=4.5, mec=edge, mfc=face, label=name)


def _legend(ax: Axes, handles: list[Line2D]) -> None:
    """Put a legend above the axes, as many entries beside each other as fit."""
    widths_in = [len(str(each.get_label())) * 0.58 * size(ax) / 72 + 0.5 for each in handles]
    is_one_row = sum(widths_in) <= width_in(ax)
    columns = len(handles) if is_one_row else max(1, int(width_in(ax) / max(widths_in)))
    ax.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1), frameon=False,
        ncols=columns, fontsize=size(ax), handlelength=2.2, handletextpad=0.4,
        columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip
