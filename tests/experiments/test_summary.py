"""Summaries: the numbers are right, and the intervals cover what they say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from x402sim import LiveWorld, World, compare, summarize, sweep
from x402sim.experiments import steady
from x402sim.report import plots


def test_mean_quantiles_and_counts_by_group() -> None:
    frame = pd.DataFrame({
        "rate": [1, 1, 1, 2], "seed": [0, 1, 2, 0], "x": [1.0, 2.0, 6.0, None], "name": list("abcd"),
    })  # fmt: skip
    table = summarize(frame, by="rate")
    assert list(table.columns) == [
        "rate", "result", "seeds", "rows", "failed", "mean", "low", "high", "std", "q05", "q50", "q95",
        "unit", "independent",
    ]  # fmt: skip
    first, second = table.to_dict("records")
    assert (first["result"], first["seeds"], first["rows"], first["failed"]) == ("x", 3, 3, 0)
    assert (first["mean"], first["q50"], first["q05"], first["q95"]) == pytest.approx(
        (3, 2, 1.1, 5.6)
    )
    assert 1 <= first["low"] < 3 < first["high"] <= 6
    assert (second["seeds"], second["rows"]) == (0, 0)
    assert np.isnan([second["mean"], second["low"]]).all()


def test_rows_of_one_seed_are_drawn_together() -> None:
    """Each seed has 100 equal rows: they say no more than one would."""
    draw = np.random.default_rng(1).normal(size=30)
    one = pd.DataFrame({"n": 1, "seed": range(30), "x": draw})
    many = pd.concat([one] * 100)
    interval = ["mean", "low", "high"]
    assert summarize(many, by="n")[interval].to_numpy() == pytest.approx(
        summarize(one, by="n")[interval].to_numpy()
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


@pytest.mark.parametrize("name", ["result", "low", "q50"])
def test_a_parameter_cannot_be_named_as_a_column_of_the_summary(name: str) -> None:
    """It would be there twice, and `table.low` a frame: refused where it is written."""

    def experiment(seed: int, **parameters: int) -> int:
        return seed

    with pytest.raises(ValueError, match=f"cannot be named '{name}': it is a column of `summar"):
        sweep(experiment, {name: [1, 2]}, seeds=2, workers=0)
    frame = pd.DataFrame({name: [1, 2], "seed": [0, 0], "x": [1.0, 2.0]})
    with pytest.raises(ValueError, match=f"'{name}' is a column of the result; rename"):
        summarize(frame, by=name)
    assert summarize(frame, by=[], values=name)["result"].tolist() == [name], "a result may be"


@pytest.mark.parametrize(
    ("events", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0, 0.1611), (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_the_interval_of_a_share_is_wilsons(events: int, of: int, low: float, high: float) -> None:
    """The values of Newcombe (1998), Statistics in Medicine 17, table I, method 3."""
    for kind in ("bool", "int", "boolean"):
        happened = pd.Series([1] * events + [0] * (of - events)).astype(kind)
        frame = pd.DataFrame({"n": 1, "seed": range(of), "happened": happened})
        (row,) = summarize(frame, by="n").to_dict("records")
        assert (row["low"], row["high"]) == pytest.approx((low, high), abs=5e-5)


def test_many_rows_of_a_seed_count_as_many_as_they_are_worth() -> None:
    draw = np.random.default_rng(4)
    one = pd.DataFrame({"n": 1, "seed": range(50), "lost": draw.random(50) < 0.3})
    alike = pd.concat([one] * 20)
    fresh = alike.assign(lost=draw.random(1000) < 0.3)
    width = [
        float((summarize(each, by="n")["high"] - summarize(each, by="n")["low"]).iloc[0])
        for each in (one, alike, fresh)
    ]
    assert width[1] == pytest.approx(width[0], rel=0.03)
    assert width[2] == pytest.approx(width[0] / 20**0.5, rel=0.25)
    none = alike.assign(lost=False)
    assert summarize(none, by="n")["high"].iloc[0] == pytest.approx(0.0713, abs=1e-4), "as of 50"


def test_what_has_a_unit_is_no_share() -> None:
    """A loss of money below 1 is not the probability of anything."""
    frame = pd.DataFrame({"policy": list("aabb"), "seed": [0, 1] * 2, "lost": [0.0, 0, 0.2, 0.3]})
    assert summarize(frame, by="policy").loc[0, "high"] > 0.5
    frame.attrs["units"] = {"lost": "USD"}
    assert summarize(frame, by="policy").loc[0, ["low", "high"]].tolist() == [0, 0]
    assert summarize(frame.head(2), by="policy").loc[0, "high"] == 0


# --- units -------------------------------------------------------------------------------


def test_units_of_a_run_s_frames_are_kept_by_sweeps_summaries_and_plots(tmp_path: Path) -> None:
    async def two(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()
        await alice.buy()

    def orders(block_s: float, seed: int) -> pd.DataFrame:
        return World(seed=seed, block_time_s=block_s).play(two).orders[["t_s", "paid", "served"]]

    for _ in range(2):  # the second time, they come from the folder
        table = sweep(orders, {"block_s": [1.0, 2.0]}, seeds=2, workers=0, out=tmp_path)
        assert table.attrs["units"] == {"t_s": "s", "paid": "tokens"}
    shares = summarize(table, by="block_s")
    assert shares.attrs["units"] == {"t_s": "s", "paid": "tokens"}
    assert plots.bands(shares, "block_s", "paid").get_ylabel() == "paid (tokens)"
    assert plots.bands(shares, "block_s", "served").get_ylabel() == "served"
    assert compare(table, of="block_s", against=1.0).attrs["units"]["paid"] == "tokens"
    assert steady(table, "paid", by="block_s").attrs["units"] == {"paid": "tokens"}


def test_the_interval_of_a_share_does_not_depend_on_the_other_groups() -> None:
    never = pd.DataFrame({"load": 0.5, "seed": range(10), "lost": 0.0})
    often = never.assign(load=1.5, lost=[0.31, 0.35] * 5)
    always = never.assign(load=2.5, lost=1.0)
    alone = summarize(never, by="load").iloc[0]
    among = summarize(pd.concat([never, often, always]), by="load").set_index("load")
    assert among.loc[0.5, "high"] == alone["high"] > 0.2
    assert among.loc[2.5, "low"] < 0.8
    assert among.loc[1.5, "high"] < 0.36
