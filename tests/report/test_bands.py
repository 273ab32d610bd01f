"""Bands: means with their intervals, one line for each other parameter."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D

from tests.report.test_plots import unexplained
from x402sim import summarize
from x402sim.experiments import steady
from x402sim.report.plots import bands, legend
from x402sim.report.plots.figure import BLACK

RATES = (1, 2, 5, 10, 20, 50, 100)


def swept(rates: tuple[object, ...] = RATES, seeds: int = 12) -> pd.DataFrame:
    """Return what a sweep returns: the naive delay is the rate and the seed, the careful twice it."""
    rows = [
        {"rate": rate, "policy": policy, "seed": seed, "delay_s": place * factor + seed}
        for place, rate in zip(RATES, rates, strict=False)
        for policy, factor in (("naive", 1), ("careful", 2))
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


@pytest.fixture
def table() -> pd.DataFrame:
    return summarize(swept(), by=["rate", "policy"])


def few(seeds: int = 12, rates: tuple[object, ...] = (1, 10, 100)) -> pd.DataFrame:
    return summarize(swept(rates, seeds), by=["rate", "policy"])


def said(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def bars(ax: Axes) -> dict[str, list[list[float]]]:
    """Return the error bars of each line, from the lower to the upper end."""
    return {
        str(each.get_gid())[5:]: [path.vertices.tolist() for path in each.get_paths()]
        for each in ax.collections
        if str(each.get_gid()).startswith("bars ")
    }


def theories(ax: Axes) -> dict[str, Line2D]:
    return {
        str(each.get_gid())[7:]: each
        for each in ax.get_lines()
        if str(each.get_gid()).startswith("theory ")
    }


def test_a_line_and_a_band_for_each_value(table: pd.DataFrame) -> None:
    ax = bands(table.sample(frac=1, random_state=1), "rate", "delay_s", by="policy")
    lines = [line.get_xydata().tolist() for line in ax.get_lines()]
    assert sorted(lines) == [
        [[rate, factor * rate + 5.5] for rate in RATES] for factor in (1, 2)
    ]  # fmt: skip
    assert len({line.get_linestyle() for line in ax.get_lines()}) == 2
    assert len(ax.collections) == 3, "two bands, and their entry in the legend"
    assert (ax.get_xscale(), ax.get_ylabel()) == ("log", "delay (s)")


def test_means_and_bands_are_drawn_where_they_are(table: pd.DataFrame) -> None:
    ax = bands(table, "rate", "delay_s", by="policy")
    areas = [each for each in ax.collections if each.get_paths()]
    for line, area in zip(ax.get_lines(), areas, strict=True):
        rows = table[table["policy"] == line.get_label()].sort_values("rate")
        assert line.get_xydata().tolist() == rows[["rate", "mean"]].to_numpy().tolist()
        corners = {tuple(each) for each in area.get_paths()[0].vertices.tolist()}
        for name in "low", "high":
            assert {tuple(each) for each in rows[["rate", name]].to_numpy().tolist()} <= corners
        heights = [y for _, y in corners]
        assert (min(heights), max(heights)) == (rows["low"].min(), rows["high"].max())


# --- error bars --------------------------------------------------------------------------


@pytest.mark.parametrize("rates", [(1, 10, 100), ("low", "middle", "high"), RATES[:6]])
def test_a_few_places_have_error_bars_and_no_band(rates: tuple[object, ...]) -> None:
    table = few(rates=rates)
    ax = bands(table, "rate", "delay_s", by="policy")
    assert not any(isinstance(each, PolyCollection) for each in ax.collections)
    for name, found in bars(ax).items():
        rows = table[table["policy"] == name]
        at = rows["rate"] if rates[0] == 1 else range(len(rows))
        wanted = [
            [[x, low], [x, high]]
            for x, low, high in zip(at, rows["low"], rows["high"], strict=True)
        ]
        assert found == wanted
    assert len(bars(ax)) == 2
    joined = {line.get_linestyle() for line in ax.get_lines() if len(line.get_xdata())}
    assert (joined == {"None"}) == isinstance(rates[0], str), "nothing is between categories"


def test_error_bars_are_beside_each_other_and_their_limits_are_those_of_the_data() -> None:
    table = few()
    ax = bands(table, "rate", "delay_s", by="policy")
    ax.figure.canvas.draw()
    places = [line.get_transform().transform((10, 12))[0] for line in ax.get_lines()[:2]]
    assert abs(places[1] - places[0]) == pytest.approx(2.6 * ax.figure.dpi / 72)
    low, high = ax.get_ylim()
    assert low < table["low"].min()
    assert table["high"].max() < high < 1.2 * table["high"].max()
    one = bands(table[table["policy"] == "naive"], "rate", "delay_s")
    assert one.get_lines()[0].get_transform() == one.transData


def test_the_legend_says_what_a_band_is_once() -> None:
    for table, wanted in (
        (few(12), "95 % interval, by seed"),
        (few(9), "95 % interval of the same 9 seeds"),
        (few(9)[:1], "95 % interval of 9 seeds"),
    ):
        ax = bands(table, "rate", "delay_s", by="policy")
        assert said(ax).count(wanted) == 1
        ax.figure.canvas.draw()
        assert unexplained(ax) == []
    assert said(bands(few(1), "rate", "delay_s", by="policy")) == ["naive", "careful"], (
        "no interval"
    )
    frame = swept()
    frame["seed"] += 100 * frame["rate"]
    apart = summarize(frame[frame["seed"] % 100 < 9], by=["rate", "policy"])
    assert "95 % interval of 9 seeds" in said(bands(apart, "rate", "delay_s", by="policy"))
    one_run = swept(seeds=100).drop(columns="seed")
    long = steady(one_run, "delay_s", by=["rate", "policy"], warmup_s=0, time="rate")
    assert "95 % interval, by batch" in said(bands(long, "rate", "delay_s", by="policy"))


# --- theory ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [few, lambda: summarize(swept(), by=["rate", "policy"])])
def test_a_theory_is_a_thin_line_in_the_colour_of_its_line(make: Callable[[], Any]) -> None:
    factors = {"naive": 1, "careful": 2}
    table = make()
    ax = bands(
        table, "rate", "delay_s", by="policy", theory=lambda x, policy: x * factors[policy] + 5.5
    )
    means = {str(line.get_label()): line for line in ax.get_lines() if line.get_label()[0] != "_"}
    for name, line in theories(ax).items():
        xs, ys = line.get_data()
        assert list(ys) == [x * factors[name] + 5.5 for x in xs]
        assert set(table["rate"]) <= set(xs)
        assert all(isinstance(x, int | np.integer) for x in xs), "the rates are whole numbers"
        assert len(xs) > 40, "a curve, not a line between points"
        assert line.get_color() == means[name].get_color()
        assert (line.get_marker(), means[name].get_linestyle()) == ("None", "None")
        assert line.get_linewidth() < 1
    assert len(theories(ax)) == 2
    assert said(ax).count("theory") == 1


def test_a_theory_that_gives_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="gives 'fast', and a number is needed"):
        bands(few(), "rate", "delay_s", by="policy", theory=lambda rate: "fast")


def test_a_theory_of_x_alone_is_one_black_line_and_between_categories_is_nothing() -> None:
    ax = bands(few(), "rate", "delay_s", by="policy", theory=lambda rate: rate)
    (line,) = theories(ax).values()
    assert line.get_color() == BLACK
    assert unexplained(ax) == []
    joined = bands(
        summarize(swept(), by=["rate", "policy"]), "rate", "delay_s", by="policy", theory=np.sqrt
    )
    assert len(theories(joined)) == 1
    lines = {str(line.get_label()): line.get_linestyle() for line in joined.get_lines()}
    assert lines["naive"] == "-", "beside bands, means are lines: nothing is of their colour"
    one = few().query("policy == 'careful'")
    ax = bands(one, "rate", "delay_s", by="policy", theory=lambda x, policy, k=2: k * x)
    assert list(theories(ax)["careful"].get_ydata()[:2]) == [2, 4]
    named = few(rates=("low", "middle", "high"))
    words = {"theory": "as published"}
    ax = bands(named, "rate", "delay_s", by="policy", theory=lambda rate: 7, labels=words)
    stubs = [each for each in ax.get_lines() if str(each.get_gid()).startswith("theory")]
    assert [list(each.get_ydata()) for each in stubs] == [[7, 7]] * 3
    assert "as published" in said(ax)


# --- words -------------------------------------------------------------------------------


def test_words_replace_names_and_everything_is_in_the_legend(table: pd.DataFrame) -> None:
    words = {"rate": "arrival rate (1/s)", "delay_s": "waiting time", "naive": "as it comes"}
    ax = bands(table, "rate", "delay_s", by="policy", labels=words)
    ax.plot([1, 100], [1, 1], "k:", label="theory")
    assert unexplained(ax) == ["line #000000 :"]
    legend(ax)
    assert unexplained(ax) == []
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("arrival rate (1/s)", "waiting time (s)")
    assert said(ax) == ["as it comes", "careful", "95 % interval, by seed", "theory"]
    words = {"rate 1": "rarely", "rate": "rate of"}
    ax = bands(few(), "policy", "delay_s", by="rate", labels=words)
    assert said(ax)[:3] == ["rarely", "rate of 10", "rate of 100"]


def test_every_value_on_the_x_axis_is_named() -> None:
    for x, names in (("rate", ["1", "10", "100"]), ("policy", ["naive", "careful"])):
        ax = bands(few(), x, "delay_s", by="policy" if x == "rate" else "rate")
        ax.figure.canvas.draw()
        assert [text.get_text() for text in ax.get_xticklabels()] == names


def test_several_means_at_one_place_are_no_line(table: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"several means for one value of rate: .* in policy, too"):
        bands(table, "rate", "delay_s")


def test_what_the_table_does_not_have_is_named(table: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="unknown result 'dealy_s'; did you mean 'delay_s'"):
        bands(table, "rate", "dealy_s")
    with pytest.raises(ValueError, match=r"unknown column 'result'.*what x402sim.summarize"):
        bands(table[["rate"]], "rate", "delay_s")
    many = pd.DataFrame({"n": range(6), "seed": 0, "x": 1.0, "m": 1})
    with pytest.raises(ValueError, match="n has 6 values, of which 5 can be told apart"):
        bands(summarize(many, by=["n", "m"], values="x"), "m", "x", by="n")
