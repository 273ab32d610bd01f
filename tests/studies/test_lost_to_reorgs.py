"""Revenue lost to reorganisations by confirmations, in small, against 1 - Π(1 - p·q^t), t ≥ k."""

import math
from pathlib import Path

import pytest

from tests.studies import lost_to_reorgs
from tests.studies.lost_to_reorgs import GRID, P, Q, experiment


def test_the_program_is_short() -> None:
    assert len(Path(lost_to_reorgs.__file__ or "").read_text().splitlines()) <= 40


@pytest.mark.parametrize("k", GRID["k"])
def test_the_share_of_what_was_served_and_lost_is_the_formulas(k: int) -> None:
    found = experiment(k, seed=1, payers=60)
    served, lost = found["served"], found["served"] * found["lost"]
    expected = 1 - math.prod(1 - P * Q**t for t in range(k, 100))
    assert served > 40
    assert abs(lost - served * expected) < 3.5 * math.sqrt(served * expected * (1 - expected))
