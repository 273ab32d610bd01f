"""Plots: arrows, lines and marks are where they belong, and every text is legible."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from platform import python_version
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

from tests.report.stories import NAMES, exchange, journal_of, run, skipped
from x402sim import LiveWorld, Run, World, sweep
from x402sim.events import IndexerRan, RequestArrived
from x402sim.journal import Journal, Maker
from x402sim.population import Every, Session
from x402sim.report import plots
from x402sim.report.plots import figure
from x402sim.report.plots.diagram import rows
from x402sim.report.plots.figure import BLACK, BLUE, GREY, LIGHT, ORANGE, VERMILLION
from x402sim.report.reading import Reading, checks_of
from x402sim.version import VERSION, citation

THOROUGH = pytest.mark.thorough
PLOTS: list[Callable[..., Axes]] = [getattr(plots, each.name) for each in plots.PLOTS]


def named(ax: Axes, kind: str) -> dict[str, Any]:
    """Return the artists whose gid begins with this kind, by the rest of the gid."""
    found = {}
    for artist in ax.get_children():
        gid = artist.get_gid() or ""
        if gid.partition(" ")[0] == kind:
            found[gid.partition(" ")[2]] = artist
    return found


def written(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_text()]


def boxes(ax: Axes) -> dict[Any, str]:
    """Return the bounding box of every visible text, in pixels."""
    ax.figure.draw_without_rendering()
    off = {
        label
        for axis in (ax.xaxis, ax.yaxis)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        for label in (tick.label1, tick.label2)
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    }
    seen = [text for text in ax.figure.findobj(Text) if text.get_visible() and text not in off]
    return {text.get_window_extent(): text.get_text() for text in seen if text.get_text().strip()}


def unexplained(ax: Axes) -> list[str]:
    """Return what neither the legend explains nor a text in its colour."""
    legend = ax.get_legend()
    handles: list[Any] = list(legend.legend_handles) if legend else []
    lines = [each for each in handles if isinstance(each, Line2D)]
    said = {to_hex(text.get_color()) for text in ax.texts} - {to_hex(BLACK), to_hex(GREY)}
    dashes = {(to_hex(each.get_color()), each.get_linestyle()) for each in lines}
    marks = {(each.get_marker(), each.get_markerfacecolor() == "white") for each in lines}
    fills = {to_hex(each.get_facecolor()) for each in handles if isinstance(each, Patch)}
    fills |= {to_hex(each.get_markerfacecolor()) for each in lines}
    widths = {each.get_linewidth() for each in lines}
    found = []
    for line in (each for each in ax.lines if len(each.get_xdata())):
        colour, style, mark = to_hex(line.get_color()), line.get_linestyle(), line.get_marker()
        if style != "None" and colour not in said and (colour, style) not in dashes:
            found.append(f"line {colour} {style}")
        if mark != "None" and (mark, line.get_markerfacecolor() == "white") not in marks:
            found.append(f"mark {mark}")
        if mark != "None" and line.get_clip_on():
            assert ax.bbox.padded(-3).containsx(line.get_window_extent().x0 + 3), mark
    for each in ax.collections:
        guides = {LIGHT.lower(), GREY.lower()} >= {to_hex(c) for c in each.get_edgecolor()}
        if isinstance(each, LineCollection):
            found += [f"lines of {w}" for w in each.get_linewidth() if not guides | (w in widths)]
        elif each.get_paths() and not {to_hex(each.get_facecolor()[0])} & (fills | said):
            alphas = {h.get_alpha() for h in handles}
            found += [] if each.get_alpha() in alphas - {None} else ["area"]
    for patch in ax.patches:
        is_word = str(patch.get_gid()).startswith("word")  # its text is on it
        found += [] if is_word or to_hex(patch.get_facecolor()) in fills else ["patch"]
    arrows = [text.arrow_patch for text in ax.texts if getattr(text, "arrow_patch", None)]
    known = {to_hex(each.get_color()) for each in lines}
    return found + [f"arrow {c}" for a in arrows if (c := to_hex(a.get_edgecolor())) not in known]


def outcomes_of_one(run: Run, ax: Axes | None) -> Axes:
    return plots.outcomes([run], ax)


# --- every plot ----------------------------------------------------------------------


@pytest.mark.parametrize("draw", [*PLOTS, outcomes_of_one])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[] if each in ("lost", "sessions", "indexed") else THOROUGH)
        for each in NAMES
    ],
)
@pytest.mark.parametrize("width_mm", [80, pytest.param(None, marks=THOROUGH)])
def test_texts_do_not_overlap_and_stay_inside(
    draw: Callable[..., Axes], name: str, width_mm: int | None
) -> None:
    ax = draw(run(name), figure.new_axes(width_mm, 90) if width_mm else None)
    found = boxes(ax)
    page = ax.figure.bbox
    for (one, a), (other, b) in combinations(found.items(), 2):
        is_over = one.shrunk(0.96, 0.75).overlaps(other.shrunk(0.96, 0.75))
        assert not is_over, f"{a!r} is written over {b!r}"
    for box, text in found.items():
        assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1, f"{text!r} is cut off"
        assert page.y0 - 1 <= box.y0 < box.y1 <= page.y1 + 1, f"{text!r} is cut off"
    assert unexplained(ax) == []
    if ax.axison and draw is not outcomes_of_one:
        titles = {ax.get_xlabel(), ax.get_ylabel()} - {"", "payments without a block number"}
        assert all(re.search(r"\([^)_]+\)", title) for title in titles), titles


def test_the_style_for_print_is_a_column_wide_with_serifs_and_ends_with_its_block() -> None:
    with plots.style("print"):
        ax = plots.session_burn_down(run("sessions"))
        assert mpl.rcParams["figure.figsize"] == [3.5, 2.3]
    assert ax.figure.get_figwidth() == pytest.approx(3.5)
    ax.figure.canvas.draw()
    letters = [text for text in ax.figure.findobj(Text) if text.get_text()]
    assert {text.get_fontfamily()[0] for text in letters} == {"STIXGeneral"}
    assert plots.balances(run("sessions")).figure.get_figwidth() > 6
    with pytest.raises(ValueError, match="unknown style 'prnt'; did you mean 'print'"):
        plots.style("prnt").__enter__()


def test_a_caption_says_what_it_is_from() -> None:
    found = run("replayed")
    hashed = found.sha256[:12]
    assert plots.caption(found) == (
        "replayed, seed 1: 7 requests, 2 payers, 1.366 s of virtual time "
        f"(journal {hashed}); x402sim {VERSION}, Python {python_version()}. "
        f"Cite as: {citation()}"
    )
    older = Run(journal=Journal.load(found.journal.ndjson(), Maker("0.0.9", "3.11.1")))
    told = f"; x402sim 0.0.9, Python 3.11.1. Cite as: {citation('0.0.9')}"
    assert plots.caption(older).endswith(told), "not the installed ones"
    both = plots.caption([found, older, older])
    assert both.endswith(
        f"; x402sim {VERSION}, Python {python_version()} and x402sim 0.0.9, Python 3.11.1. "
        f"Cite as: {citation()}; {citation('0.0.9')}"
    )
    unknown = Run(journal=Journal.load(found.journal.ndjson()))
    assert plots.caption(unknown).endswith(
        f"; x402sim of an unknown version. Cite as: {citation(None)}"
    )
    table = pd.DataFrame({"seed": [3, 4, 4], "error": [None, "no", None]})
    assert plots.caption(table).startswith("2 seeds (3 to 4), 3 rows, 1 failed; x402sim of an")
    assert plots.caption(table[:1]).startswith("seed 3, 1 row, 0 failed")
    swept = sweep(lambda n, seed: n * seed, {"n": [1]}, seeds=2, workers=0)
    assert f"0 failed; x402sim {VERSION}, Python {python_version()}. " in plots.caption(swept)
    with pytest.raises(ValueError, match="column 'seed'"):
        plots.caption(table[["error"]])


def test_a_figure_has_a_number_a_text_and_what_it_is_from_and_no_versions() -> None:
    found = run("replayed")
    text = plots.caption(found, number=3, text="A payment, replayed.")
    assert text._repr_markdown_() == text
    assert text == (
        "**Figure 3.** A payment, replayed. *replayed, seed 1: 7 requests, 2 payers, "
        f"1.366 s of virtual time (journal {found.sha256[:12]}).*"
    )
    assert plots.caption(number=4, text="A theory.") == "**Figure 4.** A theory."
    many = plots.caption([found] * 5, text="Many.")
    assert many == "Many. *5 runs of replayed, seed 1: 35 requests.*"
    assert isinstance(plots.caption(found), str)
    for empty in ({}, {"number": 1}):
        with pytest.raises(ValueError, match="caption needs a source, or a text"):
            plots.caption(**empty)


@pytest.mark.parametrize("draw", PLOTS)
@pytest.mark.parametrize("journal", [Journal(), skipped().journal])
def test_an_empty_plot_says_so(draw: Callable[..., Axes], journal: Journal) -> None:
    ax = draw(journal)
    assert not ax.axison
    assert len(written(ax)) == 1
    assert figure.png(ax.figure)


def test_a_notebook_displays_a_figure() -> None:
    shown, how = plots.balances(run("replayed")).figure._repr_png_()  # type: ignore[attr-defined]
    assert shown.startswith(b"\x89PNG")
    assert 300 < how["width"] < 1000
    axes = plots.balances(run("replayed"))
    assert axes._repr_png_() == (shown, how), "the axes, too, so that they may end a cell"  # type: ignore[attr-defined]
    picture = figure.png(figure.new_axes(100, 50).figure, dpi=254)
    assert [int.from_bytes(picture[n : n + 4]) for n in (16, 20)] == [1000, 500]


# --- the sequence diagram ------------------------------------------------------------


@pytest.mark.parametrize("name", ["replayed", "lost", "pending"])
def test_each_exchange_has_its_arrows(name: str) -> None:
    found = run(name)
    ax = plots.sequence(found, rows_shown=1000, fold=False)
    whole, asked = named(ax, "exchange"), named(ax, "request")
    answers, losses = named(ax, "answer"), named(ax, "lost")
    every = found.latency
    assert {*whole, *asked} == {str(number) for number in every["exchange"]}
    assert not {*whole} & {*asked}
    assert {*losses} == {str(n) for n in every.query("outcome == 'lost'")["exchange"]}
    assert {*named(ax, "cross")} == {*losses}
    assert {*asked} == {*answers, *losses}


def test_arrows_point_from_sender_to_receiver_in_the_colour_of_the_outcome() -> None:
    ax = plots.sequence(run("replayed"))
    x = dict(zip((t.get_text() for t in ax.get_xticklabels()), ax.get_xticks(), strict=True))
    assert list(x) == ["alice", "mallory", "service", "facilitator", "chain"]
    ask, answers = named(ax, "request")["1"], named(ax, "answer")
    assert (ask.xyann[0], ask.xy[0]) == (x["alice"], x["service"])
    assert (answers["1"].xyann[0], answers["1"].xy[0]) == (x["service"], x["alice"])
    assert ask.xy[1] < answers["1"].xy[1], "time runs downwards"
    assert ax.yaxis_inverted()
    wanted = {"paid": BLUE, "payment required": ORANGE, "refused": VERMILLION}
    for number, outcome in run("replayed").steps.set_index("exchange")["outcome"].items():
        arrow = answers[str(number)].arrow_patch
        assert to_hex(arrow.get_edgecolor()) == wanted[outcome].lower()
    assert to_hex(ask.arrow_patch.get_edgecolor()) == BLACK


def idle_runs(matched: Sequence[int]) -> Journal:
    """Runs of the indexer one after the other, with a read of the chain before some of them."""
    story: list[Any] = []
    for number, found in enumerate(matched):
        if number % 3 == 1:
            story += exchange(number, actor="service", to="rpc", path="eth_blockNumber")
        facts = {"asked": 3, "reverted": 0, "unknown": 0, "unanswered": 0, "backlog": 3}
        story.append(IndexerRan(actor="service", matched=found, **facts))
    return journal_of(*story)


def test_idle_runs_of_the_indexer_are_one_row() -> None:
    reading = Reading(idle_runs([1, *[0] * 37, 2, 0, 1]))
    told = [row.text for row in rows(reading)]
    assert told[1:3] == ["13 chain reads", "indexer: 37 runs, nothing new"]
    assert [text for text in told if text.startswith("indexer")] == [
        "indexer ran: 3 asked, 1 matched, 3 left",
        "indexer: 37 runs, nothing new",
        "indexer ran: 3 asked, 2 matched, 3 left",
        "indexer ran: 3 asked, 0 matched, 3 left",
        "indexer ran: 3 asked, 1 matched, 3 left",
    ]
    whole = [row.text for row in rows(reading, fold=False)]
    assert len([text for text in whole if text.startswith("indexer ran")]) == 41


WITH_NAMES = (plots.sequence, plots.balances, plots.session_burn_down, outcomes_of_one)


@pytest.mark.parametrize("draw", [*PLOTS, outcomes_of_one])
def test_names_are_not_parsed_as_formulas(draw: Callable[..., Axes]) -> None:
    """A payer, or anything else in a journal, may be named $x$."""
    text = run("sessions").journal.ndjson()
    for name in (b'"alice"', b'"devUSDC.e"', b'"sessions"', b'"3/expiry-refund"'):
        text = text.replace(name, b'"$x_1$"')
    ax = draw(Run(journal=Journal.load(text)), figure.new_axes())
    ax.figure.canvas.draw()
    named = [text for text in ax.figure.findobj(Text) if "$x_1$" in text.get_text()]
    assert named or draw not in WITH_NAMES
    assert not any(text.get_parse_math() for text in named)


# --- what is drawn is what the frame has ----------------------------------------------


def seen(ax: Axes, line: Line2D) -> Any:
    """Return the points of a line where they are on the page, in the units of the axes."""
    points = line.get_transform().transform(line.get_xydata())
    return ax.transData.inverted().transform(points)


def marked(ax: Axes, marker: str) -> list[tuple[float, float]]:
    lines = [line for line in ax.lines if line.get_marker() == marker]
    return [tuple(point) for line in lines for point in seen(ax, line)]


def stepped(ax: Axes) -> dict[str, Any]:
    lines = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    return {str(line.get_label()): seen(ax, line) for line in lines}


def assert_points(found: Any, wanted: Any) -> None:
    """They are equal to a thousandth of what an eye sees, whatever their order."""
    found, wanted = (np.array(sorted(map(tuple, each)), dtype=float) for each in (found, wanted))
    assert found.shape == wanted.shape
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9)


async def alike(world: LiveWorld) -> None:
    """Three sessions that are spent alike, at one moment, and refunded: their lines coincide."""
    payers = [await world.payer(name, balance="1.00") for name in ("a", "b", "c")]
    opened = await asyncio.gather(*(each.open_session("0.10", 60) for each in payers))
    for _ in range(4):
        await world.advance(10)
        asked = zip(payers, opened, strict=True)
        await asyncio.gather(*(each.ask(session_id=it.body["sessionId"]) for each, it in asked))
    await world.advance(600)


@pytest.mark.parametrize("story", ["sessions", "alike"])
def test_budgets_are_drawn_where_they_are(story: str) -> None:
    found = run("sessions") if story == "sessions" else World(seed=2).play(alike)
    ax, frame = plots.session_burn_down(found), found.sessions
    unit_s = {"s": 1, "min": 60}[ax.get_xlabel()[-4:-1].strip("( ")]
    frame = frame.assign(x=frame["t_s"] / unit_s, y=frame["remaining"].astype(float))
    points = stepped(ax)
    assert len(points) == frame["session_id"].nunique() >= 2
    for payer, own in frame.groupby("payer", observed=True):
        assert_points(points[str(payer)], own[["x", "y"]].to_numpy())
    for name, mark in (("opened", "o"), ("debited", "."), ("expired", "v"), ("refunded", "s")):
        own = frame[frame["event"] == name]
        assert_points(marked(ax, mark), own[["x", "y"]].to_numpy())
    refunded = frame[frame["event"] == "refunded"]["y"]
    assert len(refunded) > 0
    assert set(refunded) == {0.0}, "and so they touch the axis"
    widths = [line.get_linewidth() for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert widths == sorted(set(widths), reverse=True), "none covers another one"


@pytest.mark.parametrize("story", ["many", "cut_off"])
def test_bands_of_budgets_are_the_quantiles_at_each_age(story: str) -> None:
    """Of a session that the run's end has cut off, nothing is known from there on."""
    found = World(seed=3).play({"many": many, "cut_off": cut_off}[story])
    last_s = Reading(found.journal).length_s
    ax, frame = plots.session_burn_down(found), found.sessions
    groups = [rows for _, rows in frame.groupby("session_id", observed=True)]

    def left(rows: Any, age_s: float) -> float:
        if rows["event"].iloc[-1] != "refunded" and age_s > last_s - rows["t_s"].iloc[0]:
            return np.nan
        return float(rows[rows["t_s"] - rows["t_s"].iloc[0] <= age_s]["remaining"].iloc[-1])

    assert ax.get_xlabel() == "time since it was opened (min)"
    (median,) = stepped(ax).values()
    bands = {gid: artist for artist in ax.collections if (gid := artist.get_gid())}
    heights = {gid: each.get_paths()[0].vertices for gid, each in bands.items()}
    for x, y in median:
        moments = x * 60 - 1e-6, x * 60 + 1e-6  # what differs by less may be drawn as two steps
        held = [[left(rows, age) for rows in groups] for age in moments if age > 0]
        assert np.isclose(y, [np.nanmedian(each) for each in held]).any()
        for name, share in (("band 5 to 95 %", (5, 95)), ("band 25 to 75 %", (25, 75))):
            at = heights[name][np.isclose(heights[name][:, 0], x)][:, 1]
            ends = np.array([np.nanpercentile(each, share) for each in held])
            for wanted in ends.T:
                assert any(np.isclose(at, each).any() for each in wanted), (name, x)


def test_balances_are_drawn_where_they_are() -> None:
    found = run("sessions")
    ax = plots.balances(found)
    moves = found.transfers.query("kind != 'mint'")
    unit_s = {"s": 1, "min": 60}[ax.get_xlabel()[-4:-1].strip("( ")]
    points = stepped(ax)
    assert len(points) == 3
    for party, line in points.items():
        sums = [(0.0, 0.0)]
        for row in moves.itertuples():
            change = float(row.amount) * ((row.to == party) - (row.sender == party))
            if change:
                sums.append((row.t_s / unit_s, sums[-1][1] + change))
        assert_points(line[:-1], sums)
        assert line[-1][1] == pytest.approx(sums[-1][1]), "to the end of the run"
    assert written(ax) == ["merchant +0.05", "alice \N{MINUS SIGN}0.03", "bob \N{MINUS SIGN}0.02"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("virtual time (min)", "net gain (devUSDC.e)")


def test_latencies_are_drawn_where_they_are() -> None:
    found = World(seed=4, latency={"service": (0.4, 0.5), "facilitator": (0.2, 0.9)}).play(busy)
    ax, frame = plots.latency(found), found.latency.dropna(subset="latency_s")
    scale = {"s": 1, "ms": 1000}[ax.get_xlabel()[len("latency (") : -1]]
    took = [
        rows["latency_s"].to_numpy() * scale
        for _, rows in frame.groupby(["to", "path"], observed=True)
    ]
    rings = marked(ax, "o")
    assert sorted(x for x, _ in rings) == pytest.approx(sorted(map(np.median, took)))
    ticks = sorted(x for x, _ in marked(ax, "|"))
    assert ticks == pytest.approx(sorted(x for each in took for x in np.unique(each)))
    spread = [each for each in took if len(each) >= 5]
    assert len(spread) >= 2
    for width, low, high in ((1, 5, 95), (4, 25, 75)):
        lines = [
            (path.vertices[0][0], path.vertices[-1][0])
            for each in ax.collections
            if isinstance(each, LineCollection) and list(each.get_linewidth()) == [width]
            for path in each.get_paths()
        ]
        assert_points(lines, [np.percentile(each, (low, high)) for each in spread])


async def busy(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    for _ in range(12):
        await alice.buy()


# --- money ---------------------------------------------------------------------------


async def cut_off(world: LiveWorld) -> None:
    behaviour = Session(deposit="0.05", requests=3, wait=(60, 0.5), duration=900)
    await world.population(12, arrivals=Every(100), behaviour=behaviour, balance="1.00")


async def many(world: LiveWorld) -> None:
    await cut_off(world)
    await world.advance(1800)


# --- time and the indexer ------------------------------------------------------------


def test_latency_counts_every_exchange_and_every_lost_answer() -> None:
    found = run("lost")
    said = written(plots.latency(found))
    counts = [int(text.split()[2].rstrip(",")) for text in said if text.startswith("n = ")]
    assert sum(counts) == len(found.latency)
    assert sum("1 unanswered" in text for text in said) == 2
    pay = found.latency.query("path == '/api/pay'")["latency_s"].median()
    assert f"n = 3, 1 unanswered, median {pay * 1000:.3g} ms" in said


def test_kinds_of_requests_without_a_row_are_counted() -> None:
    every = [each for n in range(15) for each in exchange(n, path=f"/{n}")]
    assert plots.latency(journal_of(*every)).get_xlabel() == "latency (ms); 3 rarer kinds left out"
    assert "left out" not in plots.latency(journal_of(*every[:24])).get_xlabel()


@pytest.mark.parametrize("story", ["indexed", "dropped_before_indexing", "shared_allowance"])
def test_the_backlog_line_matches_the_indexer_runs(story: str) -> None:
    """Also where a payment has lost its transaction, and where `upto` is settled without an index."""
    found = run(story) if story == "indexed" else World(seed=1).play(story)
    ax = plots.backlog(found)
    line = next(line for line in ax.lines if line.get_drawstyle() == "steps-post")
    xs, ys = line.get_data()
    unit_s = 60 if "(min)" in ax.get_xlabel() else 1
    for row in found.backlog.itertuples():
        before = np.asarray(xs) * unit_s <= row.t_s + 1e-6
        assert np.asarray(ys)[before][-1] == row.backlog
    dots = {line.get_markerfacecolor(): len(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"}  # fmt: skip
    done = found.backlog["matched"] + found.backlog["reverted"] == found.backlog["asked"]
    assert dots == Counter(done.map({True: BLACK, False: "white"}))


def test_the_queues_of_many_parts_can_be_told_apart() -> None:
    parts = [f"service {number}" for number in range(2, 13)]
    story = [
        RequestArrived(actor=part, request=n, path="/x", ahead=0) for n, part in enumerate(parts)
    ]
    ax = plots.queue(journal_of(*story, took_ms=1000))
    looks = {
        (line.get_color(), str(line.get_linestyle()), str(line.get_marker())) for line in ax.lines
    }
    assert len(looks) == len(parts)


# --- the matrix ----------------------------------------------------------------------


def test_each_clause_of_each_run_has_one_cell() -> None:
    runs = [run("replayed"), run("failing"), skipped()]
    ax = plots.outcomes(runs)
    bars = Counter(patch.get_gid().split()[0] for patch in ax.patches)
    cells = {(r.name, c.clause) for r in runs for c in checks_of(r.journal)}
    bad = {(r.name, c.clause) for r in runs for c in checks_of(r.journal) if not c.ok}
    assert bars == {"passed": len(cells) - len(bad), "failed": len(bad), "skipped": 1}
    signs = Counter(t for t in written(ax) if len(t) == 1)
    assert signs == {"✓": bars["passed"], "✗": bars["failed"]}
    assert "\N{EN DASH} skipped: no <clock> there" in written(ax)
    rows = [label.get_text() for label in ax.get_yticklabels()]
    columns = [label.get_text() for label in ax.get_xticklabels()]
    assert rows == ["replayed", "✗ failing", "elsewhere"]
    assert columns == ["4.1/receipt", "5/nonce-once", "7/nonce-already-used"]
    at = {text.get_position(): text.get_text() for text in ax.texts}
    places = [(0, 0), (2, 0), (0, 1), (1, 1)]  # of the last, one of its two checks did not hold
    assert [at[place] for place in places] == ["✓", "✓", "✗", "✗"]
    ax = plots.outcomes([run("replayed"), run("replayed")])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["replayed (seed 1)"] * 2
    assert written(plots.outcomes([])) == ["no runs"]


def test_money_that_moves_without_a_payment_is_plotted() -> None:
    """In this scenario payers submit authorizations themselves, and pay nobody's price."""
    journal = World().play("token_rules").journal
    names = [plot.name for plot in plots.PLOTS if plot.has_content(journal)]
    assert "balances" in names
