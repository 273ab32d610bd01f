"""Seeds until intervals are narrow: as many as the results ask for, whoever plays them."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from tests.cli import runner
from tests.cli.runner import assert_misuse
from tests.experiments import studies
from x402sim import summarize, sweep
from x402sim.experiments import Until
from x402sim.experiments.summary import seeds_wanted
from x402sim.experiments.sweep import SweepFailed

FIVE = Until(relative=0.05)


def noisy(spread: float, seed: int) -> dict[str, float]:
    drawn = np.random.default_rng(seed).normal()
    return {"x": 10 + spread * drawn, "y": 100 * drawn}


def seeds_of(table: pd.DataFrame, by: str = "spread") -> dict[Any, int]:
    return {value: len(rows) for value, rows in table.groupby(by, sort=False)}


def played(**options: Any) -> pd.DataFrame:
    until = options.pop("until", Until(relative=0.05, of="x"))
    grid = options.pop("grid", {"spread": [0.1, 2.0, 4.0]})
    return sweep(noisy, grid, seeds=2000, until=until, **{"workers": 0} | options)


def test_each_cell_stops_when_its_interval_is_narrow_and_has_the_first_seeds() -> None:
    table = played()
    shares = summarize(table, by="spread", values="x")
    assert ((shares["high"] - shares["low"]) / 2 <= 0.05 * shares["mean"]).all()
    assert shares["seeds"].tolist()[0] == 10, "at least"
    assert 40 <= shares["seeds"][1] <= 120
    assert 180 <= shares["seeds"][2] <= 420
    for count, rows in zip(shares["seeds"], table.groupby("spread"), strict=True):
        assert rows[1]["seed"].tolist() == list(range(count))
    few = table[table["seed"] < 10]
    whole = sweep(noisy, {"spread": [0.1, 2.0, 4.0]}, seeds=10, workers=0)
    pd.testing.assert_frame_equal(few.reset_index(drop=True), whole)


def test_the_seeds_do_not_depend_on_who_plays_them() -> None:
    table = played()
    with ThreadPoolExecutor(3) as threads:
        pd.testing.assert_frame_equal(played(workers=2, executor=threads), table)
    alone = played(grid={"spread": [4.0]})
    assert seeds_of(alone)[4.0] == seeds_of(table)[4.0], "nor on the other cells"
    apart = played(grid={"spread": [0.1, 2.0]}, common_random_numbers=False)
    assert apart["seed"].nunique() == len(apart)


def test_it_says_which_cells_need_more_seeds_than_there_are() -> None:
    narrow = Until(relative=0.01, of="x")
    with pytest.warns(
        UserWarning, match=r"the intervals of 2 cells are wider than ± 1 % of x .*\(spread=2.0, spr"
    ):
        table = sweep(noisy, {"spread": [0.1, 2.0, 4.0]}, seeds=60, until=narrow, workers=0)
    assert seeds_of(table) == {0.1: 10, 2.0: 60, 4.0: 60}


def test_a_sweep_goes_on_from_its_folder(tmp_path: Path) -> None:
    results, made = tmp_path / "results", tmp_path / "made"
    made.mkdir()
    grid = {"folder": [str(made)], "n": [1, 2]}
    until = Until(absolute=1.0)
    first = sweep(
        studies.counted, grid, seeds=5, until=Until(absolute=100.0), out=results, workers=0
    )
    assert len(first) == 10
    with pytest.warns(UserWarning, match="2 cells are wider than ± 1 with all seeds"):
        table = sweep(studies.counted, grid, seeds=30, until=until, out=results, workers=0)
    assert len(list(made.iterdir())) == len(table) == 60, "each point is played once"
    more = sweep(studies.counted, grid, seeds=35, out=results, workers=0)
    assert len(more) == 70
    again = sweep(
        studies.counted, grid, seeds=15, until=Until(absolute=10.0), out=results, workers=0
    )
    assert len(again) == 20, "what else is there does not count"
    assert len(list(made.iterdir())) == 70


def test_failed_points_and_labels_that_are_none() -> None:
    with pytest.raises(SweepFailed) as failed:
        sweep(studies.flawed, {"n": [1, 2]}, seeds=40, until=Until(absolute=4.0), workers=0)
    assert failed.value.frame["error"].notna().sum() == 2, "of two points, each played once"

    def broken(n: int, seed: int) -> float:
        raise KeyError(n)

    table = studies.recorded(broken, {"n": [1]}, seeds=40, until=FIVE, workers=0)
    assert len(table) == 10, "no more seeds of what only fails"

    def named(kind: str | None, seed: int) -> float:
        return noisy(2.0, seed)["x"]

    table = sweep(named, {"kind": [None, "a"]}, seeds=500, until=FIVE, workers=0)
    assert len(table) == 2 * len(table[table["kind"] == "a"]) > 20


@pytest.mark.parametrize(
    ("given", "says"),
    [({}, "relative=0.05 is ± 5 %"), ({"relative": -1}, "above 0 is needed, not -1"),
     ({"absolute": float("inf")}, "above 0"), ({"relative": 0.1, "least": 1}, "two seeds"),
     ({"relative": 0.1, "confidence": 95}, "between 0 and 1")],
)  # fmt: skip
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Until(**given)


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(
        "import random\n\n\ndef late(spread, seed):\n"
        '    return {"x": 10 + spread * random.Random(seed).gauss(0, 1), "kind": "a"}\n'
    )

    def run(*options: object) -> Result:
        given = f"{file}:late", "--workers", 0, "--set", "spread=0.1,4"
        return runner.run("sweep", *given, *options)

    done = run("--until", "30%", "--seeds", 90, "--out", tmp_path / "results")
    assert done.exit_code == 0, done.stderr
    counts = [int(line.split()[2]) for line in done.stdout.splitlines()[1:]]
    assert counts[0] == 10 <= counts[1] < 90
    short = run("--until", "x=0.1", "--seeds", 20)
    assert short.exit_code == 0
    assert (
        "the interval of 1 cell is wider than ± 0.1 of x with all seeds (spread=4" in short.stderr
    )
    wrong = run("--until", "often")
    assert_misuse(wrong, "a width above 0 is needed, such as 5% or 0.01")


@pytest.mark.thorough
@pytest.mark.parametrize(("relative", "seeds"), [(0.2, 25), (0.1, 97)])
def test_who_stops_when_it_is_narrow_covers_a_little_less(relative: float, seeds: int) -> None:
    """Normal results of spread 0.5 and mean 1, of which 89 and 95 in 100 cover."""
    until, covered, played = Until(relative=relative), [], []
    for study in range(100):
        drawn = np.random.default_rng(study).normal(1, 0.5, 400)
        whole = pd.DataFrame({"seed": range(400), "value": drawn, "error": None})
        more: Mapping[Any, int] = {(): 10}
        while more:
            seeds_now = more[()]
            more = seeds_wanted(until, whole[:seeds_now], [])
        (row,) = summarize(whole[:seeds_now], by=[], values="value").to_dict("records")
        covered.append(row["low"] <= 1 <= row["high"])
        played.append(seeds_now)
    assert np.mean(covered) == pytest.approx(0.92, abs=0.06)
    assert np.mean(played) == pytest.approx(seeds, rel=0.1)
