"""Bands: means with their intervals, one line for each other parameter."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from tests.report.test_plots import unexplained
from x402sim import summarize
from x402sim.report.plots import bands
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


def theories(ax: Axes) -> dict[str, Line2D]:
    return {
        str(each.get_gid())[7:]: each
        for each in ax.get_lines()
        if str(each.get_gid()).startswith("theory ")
    }


def test_means_and_bands_are_drawn_where_they_are(table: pd.DataFrame) -> None:
    ax = bands(table.sample(frac=1, random_state=1), "rate", "delay_s", by="policy")
    assert (ax.get_xscale(), ax.get_ylabel()) == ("log", "delay (s)")
    areas = [each for each in ax.collections if each.get_paths()]
    for line, area in zip(ax.get_lines(), areas, strict=True):
        rows = table[table["policy"] == line.get_label()].sort_values("rate")
        assert line.get_xydata().tolist() == rows[["rate", "mean"]].to_numpy().tolist()
        corners = {tuple(each) for each in area.get_paths()[0].vertices.tolist()}
        for name in "low", "high":
            assert {tuple(each) for each in rows[["rate", name]].to_numpy().tolist()} <= corners
        heights = [y for _, y in corners]
        assert (min(heights), max(heights)) == (rows["low"].min(), rows["high"].max())


def test_the_legend_tells_how_many_seeds_the_points_have() -> None:
    """Also where some have failed: their intervals are not of the seeds of the others."""
    assert "95 % interval of the same 4 seeds" in said(
        bands(few(4), "rate", "delay_s", by="policy")
    )
    swept_in_part = swept((1, 10, 100), seeds=20)
    gone = (swept_in_part["rate"] == 10) & (swept_in_part["seed"] > 3)
    swept_in_part.loc[gone, "delay_s"] = np.nan
    table = summarize(swept_in_part, by=["rate", "policy"])
    assert "95 % interval of 4 to 20 seeds" in said(bands(table, "rate", "delay_s", by="policy"))


# --- theory ------------------------------------------------------------------------------


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
