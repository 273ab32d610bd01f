"""Two processes on two cores are at least 1.7 times as fast as one fresh process."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.experiments import studies
from x402sim import sweep
from x402sim.experiments.executors import cpus

POINTS = 1200
QUIET = 0.5
"""The load at which a measurement says something: everybody shares the two cores."""


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.skipif(cpus() < 2, reason="there is one core only")
def test_two_processes_are_faster(record_property: Callable[[str, object], None]) -> None:
    if os.getloadavg()[0] > QUIET:
        pytest.skip(f"the machine is busy: load {os.getloadavg()[0]:.1f}")

    def seconds(workers: int) -> float:
        grid: dict[str, Any] = {"rate": [1.0, 4.0]}
        start = time.perf_counter()
        assert len(sweep(studies.wait, grid, range(POINTS // 2), workers=workers)) == POINTS
        return time.perf_counter() - start

    one_s, two_s = seconds(1), seconds(2)
    record_property(
        "told", f"sweep: {one_s:.1f} s in one process, {two_s:.1f} s in two: {one_s / two_s:.2f}x"
    )
    assert one_s / two_s >= 1.7
