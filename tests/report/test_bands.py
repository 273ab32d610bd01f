"""Bands: means with their intervals, one line for each other parameter."""

import pandas as pd
import pytest

from tests.report.test_plots import unexplained
from x402sim import summarize
from x402sim.report.plots import bands, legend


@pytest.fixture
def table() -> pd.DataFrame:
    rows = [
        {"rate": rate, "policy": policy, "seed": seed, "delay_s": rate * factor + seed}
        for rate in (1, 10, 100)
        for policy, factor in (("naive", 1), ("careful", 2))
        for seed in range(5)
    ]
    return summarize(pd.DataFrame(rows), by=["rate", "policy"])


def test_a_line_and_a_band_for_each_value(table: pd.DataFrame) -> None:
    ax = bands(table.sample(frac=1, random_state=1), "rate", "delay_s", by="policy")
    lines = {line.get_linestyle(): line.get_xydata().tolist() for line in ax.get_lines()}
    assert sorted(map(sorted, lines.values())) == [
        [[1, 3], [10, 12], [100, 102]], [[1, 4], [10, 22], [100, 202]]
    ]  # fmt: skip
    assert len(ax.collections) == 3, "two bands, and their entry in the legend"
    low = table.loc[table["policy"] == "naive", "low"].to_numpy()
    heights = {
        round(y, 6)
        for each in ax.collections
        for path in each.get_paths()
        for _, y in path.vertices
    }
    assert {round(y, 6) for y in low} <= heights
    assert ax.get_xscale() == "log"
    assert ax.get_ylabel() == "delay (s)"
    names = {text.get_text() for text in ax.get_legend().get_texts()}
    assert names == {"naive", "careful", "95 % interval, by seed"}


@pytest.mark.parametrize("band", [("low", "high"), ("q05", "q95")])
def test_means_and_bands_are_drawn_where_they_are(
    table: pd.DataFrame, band: tuple[str, str]
) -> None:
    ax = bands(table, "rate", "delay_s", by="policy", band=band)
    areas = [each for each in ax.collections if each.get_paths()]
    for line, area in zip(ax.get_lines(), areas, strict=True):
        rows = table[table["policy"] == line.get_label()].sort_values("rate")
        assert line.get_xydata().tolist() == rows[["rate", "mean"]].to_numpy().tolist()
        corners = {tuple(each) for each in area.get_paths()[0].vertices.tolist()}
        wanted = {(x, y) for name in band for x, y in rows[["rate", name]].to_numpy().tolist()}
        assert wanted <= corners
        heights = [y for _, y in corners]
        assert min(heights) == rows[band[0]].min()
        assert max(heights) == rows[band[1]].max()


def test_words_replace_names_and_everything_is_in_the_legend(table: pd.DataFrame) -> None:
    words = {"rate": "arrival rate (1/s)", "delay_s": "waiting time", "naive": "as it comes"}
    ax = bands(table, "rate", "delay_s", by="policy", labels=words)
    ax.plot([1, 100], [1, 1], "k:", label="theory")
    assert unexplained(ax) == ["line #000000 :"]
    legend(ax)
    assert unexplained(ax) == []
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("arrival rate (1/s)", "waiting time (s)")
    said = [text.get_text() for text in ax.get_legend().get_texts()]
    assert said == ["as it comes", "careful", "95 % interval, by seed", "theory"]
    words = {"rate 1": "rarely", "rate": "rate of"}
    ax = bands(table, "policy", "delay_s", by="rate", labels=words)
    said = [text.get_text() for text in ax.get_legend().get_texts()]
    assert said[:3] == ["rarely", "rate of 10", "rate of 100"]


def test_every_value_on_the_x_axis_is_named(table: pd.DataFrame) -> None:
    for x, names in (("rate", ["1", "10", "100"]), ("policy", ["naive", "careful"])):
        ax = bands(table, x, "delay_s", by="policy" if x == "rate" else "rate")
        ax.figure.canvas.draw()
        assert [text.get_text() for text in ax.get_xticklabels()] == names


def test_the_band_may_have_the_rows_instead(table: pd.DataFrame) -> None:
    one = table[table["policy"] == "naive"]
    interval, rows = (bands(one, "rate", "delay_s", band=band) for band in (("low", "high"), ("q05", "q95")))  # fmt: skip
    heights = [ax.collections[0].get_paths()[0].vertices[:, 1] for ax in (interval, rows)]
    assert heights[1].max() > heights[0].max()


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
