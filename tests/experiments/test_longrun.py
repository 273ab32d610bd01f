"""The mean of a steady state: the warm-up is left out, and its interval covers what it says."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from x402sim import World, sweep
from x402sim.experiments import steady
from x402sim.experiments.summary import facts_of_runs, mser
from x402sim.population import Buy, Poisson
from x402sim.report.plots import bands

STUDIES = 200


def one(frame: pd.DataFrame, **options: Any) -> dict[str, Any]:
    (row,) = steady(frame, "x", **options).to_dict("records")
    return row


def autoregressive(phi: float, begin: float, count: int, draw: np.random.Generator) -> pd.DataFrame:
    """Return values each of which is phi times the one before and a new one; their mean is 0."""
    values, last = [], begin
    for each in draw.normal(size=count).tolist():
        last = phi * last + each
        values.append(last)
    return pd.DataFrame({"x": values})


def queue(load: float, count: int, draw: np.random.Generator) -> pd.DataFrame:
    """Return how long customers wait at a single server (M/M/1): Lindley's recursion."""
    steps = load * draw.exponential(size=count) - draw.exponential(size=count)
    walk = np.concatenate([[0], np.cumsum(steps)])
    return pd.DataFrame({"x": (walk - np.minimum.accumulate(walk))[1:]})


# --- what it computes --------------------------------------------------------------------


def test_batch_means_by_hand() -> None:
    """Four batches of two after a warm-up of three: 2, 4, 4 and 6, so 4 ± 3.182 · 1.633 / 2."""
    row = facts_of_runs([(np.array([90.0, 80, 70, 1, 3, 3, 5, 5, 3, 7, 5]), 3)], 4, 0.95)
    assert (row["mean"], row["rows"], row["dropped"], row["independent"]) == (4, 8, 3, 4)
    half = 3.18245 * np.std([2, 4, 4, 6], ddof=1) / 2
    assert (row["low"], row["high"]) == pytest.approx((4 - half, 4 + half), abs=1e-4)
    assert row["lag1"] == pytest.approx((-2 * 0 + 0 * 0 + 0 * 2) / 8)
    assert (row["unit"], row["seeds"], row["correlated"]) == ("batch", 1, False)


def test_the_warm_up_is_so_many_seconds_or_found() -> None:
    draw = np.random.default_rng(1)
    t_s = np.arange(1000.0)
    frame = pd.DataFrame({"t_s": t_s, "x": np.where(t_s < 100, 50.0, 0) + draw.normal(size=1000)})
    shuffled = frame.sample(frac=1, random_state=1)
    assert one(shuffled)["dropped"] == 100, "in the order of time"
    assert one(shuffled, warmup_s=250)["dropped"] == 250
    assert one(frame, warmup_s=0)["mean"] > 4
    renamed = frame.rename(columns={"t_s": "asked_s"})
    assert one(renamed, warmup_s=250, time="asked_s")["dropped"] == 250
    for wrong, says in (
        ({"warmup_s": -1}, "seconds from 0 on"),
        ({"time": "at_s", "warmup_s": 3}, "unknown column 'at_s'"),
        ({"by": "mean"}, "unknown column 'mean'"),
        ({"confidence": 95}, "between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=says):
            steady(frame, "x", **wrong)
    with pytest.raises(ValueError, match="unknown column 'y'"):
        steady(frame, "y")


def test_the_rule_for_the_warm_up_is_as_published() -> None:
    """The first d means of five values go for which Σ(z - mean)²/(m - d)² is least, d ≤ m/2."""
    draw = np.random.default_rng(2)
    for _ in range(20):
        values = draw.normal(size=203) + 5 * np.exp(-np.arange(203) / 20)
        means = values[:200].reshape(40, 5).mean(axis=1)
        errors = [((means[d:] - means[d:].mean()) ** 2).sum() / (40 - d) ** 2 for d in range(21)]
        assert mser(values) == 5 * int(np.argmin(errors))
    assert mser(np.arange(9.0)) == 0


def test_each_seed_is_a_run_and_a_sweep_s_parameters_are_groups() -> None:
    def waits(load: float, seed: int) -> pd.DataFrame:
        return queue(load, 2000, np.random.default_rng(seed))

    table = steady(sweep(waits, {"load": [0.3, 0.5]}, seeds=3, workers=0), by="load")
    assert table[["load", "result", "seeds", "independent", "failed"]].values.tolist() == [
        [0.3, "x", 3, 60, 0], [0.5, "x", 3, 60, 0]
    ]  # fmt: skip
    legend = bands(table, "load", "x", theory=lambda load: load**2 / (1 - load)).get_legend()
    assert "95 % interval, by batch" in [text.get_text() for text in legend.get_texts()]


def test_of_a_run_and_as_what_an_experiment_returns() -> None:
    async def hour(world: Any) -> None:
        await world.population(60, arrivals=Poisson(per_s=0.1), behaviour=Buy())

    def waiting(block_s: float, seed: int) -> Any:
        run = World(seed=seed, block_time_s=block_s).play(hour)
        return steady(run.orders, "waiting_s")[["mean", "dropped", "correlated"]].iloc[0]

    table = sweep(waiting, {"block_s": [4.0]}, seeds=2, workers=0)
    assert table["mean"].between(1, 3).all()
    assert list(table.columns) == ["block_s", "seed", "mean", "dropped", "correlated"]


# --- how often it is right ---------------------------------------------------------------


@pytest.mark.thorough
def test_the_interval_of_a_long_run_covers_as_often_as_it_says() -> None:
    """A single server, 20,000 customers, half loaded; autoregressive values from far away."""
    draw = np.random.default_rng(3)
    for make, truth in (
        (lambda: queue(0.5, 20_000, draw), 0.5),
        (lambda: autoregressive(0.9, 100, 10_000, draw), 0.0),
    ):
        rows = [one(make()) for _ in range(STUDIES)]
        covered = np.mean([row["low"] <= truth <= row["high"] for row in rows])
        assert covered == pytest.approx(0.95, abs=0.04)
        assert np.mean([row["correlated"] for row in rows]) < 0.12


@pytest.mark.thorough
def test_a_run_that_is_too_short_says_so_more_often_and_covers_less() -> None:
    draw = np.random.default_rng(4)
    rows = [one(autoregressive(0.99, 0, 1000, draw)) for _ in range(STUDIES)]
    assert np.mean([row["low"] <= 0 <= row["high"] for row in rows]) < 0.85
    assert np.mean([row["correlated"] for row in rows]) > 0.5
