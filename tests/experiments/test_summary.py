"""Summaries: the numbers are right, and the intervals cover what they say."""

import numpy as np
import pandas as pd
import pytest

from x402sim import summarize


def test_mean_quantiles_and_counts_by_group() -> None:
    frame = pd.DataFrame({
        "rate": [1, 1, 1, 2], "seed": [0, 1, 2, 0], "x": [1.0, 2.0, 6.0, None], "name": list("abcd"),
    })  # fmt: skip
    table = summarize(frame, by="rate")
    assert list(table.columns) == [
        "rate", "result", "seeds", "rows", "failed", "mean", "low", "high", "std", "q05", "q50", "q95"
    ]  # fmt: skip
    first, second = table.to_dict("records")
    assert (first["result"], first["seeds"], first["rows"], first["failed"]) == ("x", 3, 3, 0)
    assert (first["mean"], first["q50"], first["q05"], first["q95"]) == pytest.approx(
        (3, 2, 1.1, 5.6)
    )
    assert 1 <= first["low"] < 3 < first["high"] <= 6
    assert (second["seeds"], second["rows"]) == (0, 0)
    assert np.isnan([second["mean"], second["low"]]).all()


def test_failed_points_are_counted_and_left_out() -> None:
    frame = pd.DataFrame({"n": [1, 1], "seed": [0, 1], "x": [4.0, None], "error": [None, "no"]})
    (row,) = summarize(frame, by="n").to_dict("records")
    assert (row["mean"], row["rows"], row["failed"]) == (4, 1, 1)


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    """300 studies of 40 seeds each, exponential; nine in ten intervals have the mean."""
    draw = np.random.default_rng(7)
    frame = pd.DataFrame({
        "study": np.repeat(range(300), 40), "seed": np.tile(range(40), 300),
        "x": draw.exponential(size=12_000),
    })  # fmt: skip
    table = summarize(frame, by="study", confidence=0.9)
    assert ((table["low"] < 1) & (table["high"] > 1)).mean() == pytest.approx(0.88, abs=0.05)


def test_rows_of_one_seed_are_drawn_together() -> None:
    """Each seed has 100 equal rows: they say no more than one would."""
    draw = np.random.default_rng(1).normal(size=30)
    one = pd.DataFrame({"n": 1, "seed": range(30), "x": draw})
    many = pd.concat([one] * 100)
    interval = ["mean", "low", "high"]
    assert summarize(many, by="n")[interval].to_numpy() == pytest.approx(
        summarize(one, by="n")[interval].to_numpy()
    )


def test_two_keys_one_result_and_the_same_numbers_each_time() -> None:
    frame = pd.DataFrame({"a": [1, 1, 2, 2], "b": list("xxyy"), "seed": [0, 1] * 2, "x": range(4)})
    table = summarize(frame, by=["a", "b"], values="x", quantiles=(0.999,))
    assert table[["a", "b", "q99.9"]].values.tolist() == [[1, "x", 0.999], [2, "y", 2.999]]
    pd.testing.assert_frame_equal(
        table, summarize(frame, by=["a", "b"], values="x", quantiles=(0.999,))
    )


def test_what_does_not_exist_is_named() -> None:
    frame = pd.DataFrame({"n": [1], "seed": [0], "delay_s": [1.0]})
    with pytest.raises(ValueError, match="unknown column 'dealy_s'; did you mean 'delay_s'"):
        summarize(frame, by="n", values="dealy_s")
    with pytest.raises(ValueError, match="unknown column 'm'"):
        summarize(frame, by="m")
    with pytest.raises(ValueError, match="between 0 and 1"):
        summarize(frame, by="n", confidence=95)
    with pytest.raises(ValueError, match="no column has numbers"):
        summarize(frame[["n", "seed"]], by="n")
