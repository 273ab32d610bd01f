"""Study (c) in small: charged and not served against the fault rate, and the closed formula."""

import math
from pathlib import Path

import pandas as pd
import pytest

from tests.studies import charged_unserved
from tests.studies.charged_unserved import NODE_FAILS, SERVICES, experiment
from x402sim import sweep

RATES = (0.1, 0.4)
EXPECTED = {
    "forget": lambda p: p,  # the answer is lost
    "ask once": lambda p: p * NODE_FAILS.probability,  # and the node does not answer either
    "reconcile": lambda p: 0,  # the node is asked until it answers
}


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    grid = {"service": list(SERVICES), "p": list(RATES)}
    frame = sweep(experiment, grid, seeds=range(2), workers=0, progress=False)
    return frame.groupby(["service", "p"])[["charged", "unserved"]].sum()


def test_the_program_is_short():
    lines = Path(charged_unserved.__file__).read_text().splitlines()[1:]
    assert sum(bool(line.strip()) for line in lines) <= 25


@pytest.mark.parametrize("p", RATES)
@pytest.mark.parametrize("service", SERVICES)
def test_charged_and_not_served_is_as_likely_as_the_formula_says(
    found: pd.DataFrame, service: str, p: float
) -> None:
    charged, unserved = found.loc[(service, p)]
    expected = EXPECTED[service](p)
    assert charged == 200
    assert abs(unserved - charged * expected) <= 3 * math.sqrt(charged * expected * (1 - expected))


def test_the_policies_differ_by_more_than_chance(found: pd.DataFrame) -> None:
    by_service = found["unserved"].unstack("p")
    for p in RATES:
        assert by_service[p]["forget"] > 1.4 * by_service[p]["ask once"] > 0
        assert by_service[p]["reconcile"] == 0
