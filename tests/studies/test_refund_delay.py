"""Study (a) in small: refund delay and unspent balance, compared with theory."""

import math
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from tests.studies import charged_unserved, payments_or_sessions, refund_delay
from tests.studies.refund_delay import GRID, experiment
from x402sim import summarize, sweep
from x402sim.report.plots import bands

SWEEP_S, BLOCK_S, DEPOSIT, PRICE = 10, 5, 50, 0.01
SEEDS = range(8)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return sweep(experiment, GRID, seeds=SEEDS, workers=0, progress=False)


def expected_unspent(rate_per_s: float, length_s: int) -> float:
    """The mean of what is left of the deposit, if the requests are a Poisson process."""
    mean, chance, left = rate_per_s * length_s, math.exp(-rate_per_s * length_s), 0.0
    for requests in range(DEPOSIT):
        left += chance * (DEPOSIT - requests) * PRICE
        chance *= mean / (requests + 1)
    return left


@pytest.mark.parametrize("study", [refund_delay, charged_unserved, payments_or_sessions])
def test_the_program_is_short(study: ModuleType) -> None:
    lines = Path(study.__file__ or "").read_text().splitlines()[1:]
    assert sum(bool(line.strip()) for line in lines) <= 28


def test_the_unspent_balance_is_what_a_poisson_process_leaves(frame: pd.DataFrame) -> None:
    for (rate_per_s, length_s), cell in frame.groupby(["rate_per_s", "length_s"]):
        error = cell["unspent"].std() / math.sqrt(len(cell))
        expected = expected_unspent(rate_per_s, length_s)
        assert cell["unspent"].mean() == pytest.approx(expected, abs=4 * error + 0.001)


def test_the_delay_is_half_a_sweep_and_a_block_whatever_the_session(frame: pd.DataFrame) -> None:
    """A refund waits for the sweep, 0 to 10 s at an even chance, and then for a Poisson block."""
    delays = frame["delay_s"].dropna()
    by_seed = frame.groupby("seed")["delay_s"].mean()  # of one seed they are not independent
    error = by_seed.std() / math.sqrt(len(by_seed))
    assert delays.mean() == pytest.approx(SWEEP_S / 2 + BLOCK_S, abs=4 * error)
    assert delays.std() == pytest.approx(math.sqrt(SWEEP_S**2 / 12 + BLOCK_S**2), rel=0.3)
    assert delays.nunique() > len(delays) / 4, "not only multiples of the intervals"


def test_the_intervals_have_the_theory_and_the_plot_is_drawn(frame: pd.DataFrame) -> None:
    table = summarize(frame, by=["rate_per_s", "length_s"], confidence=0.999)
    unspent = table[table["result"] == "unspent"]
    assert len(unspent) == 6
    for row in unspent.to_dict("records"):
        assert row["low"] - 0.001 <= expected_unspent(row["rate_per_s"], row["length_s"])
        assert row["high"] + 0.001 >= expected_unspent(row["rate_per_s"], row["length_s"])
    ax = bands(table, "rate_per_s", "unspent", by="length_s")
    assert [len(line.get_xdata()) for line in ax.get_lines()] == [3, 3]  # type: ignore[arg-type]
