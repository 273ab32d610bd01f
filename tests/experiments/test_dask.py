"""Dask: a cluster gives the same results as this process, also if one of its workers is killed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.experiments import studies
from x402sim import sweep
from x402sim.experiments import drive

GRID: dict[str, Any] = {"n": [1, 2]}
pytestmark = [
    pytest.mark.filterwarnings("ignore::Warning"),  # of distributed's own
    pytest.mark.thorough,  # a cluster of two processes takes seconds to start
]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A client of two worker processes, of one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


def test_a_worker_that_is_killed_midway_changes_nothing(client: Any, tmp_path: Path) -> None:
    """A worker is killed after it has played a point, before it can say so."""
    made, killed = tmp_path / "made", tmp_path / "killed"
    made.mkdir()
    killed.mkdir()
    grid = {"folder": [str(killed)], "made": [str(made)], **GRID}
    frame = sweep(studies.deadly_once, grid, range(30), client)
    (pid,) = [int(file.name) for file in killed.iterdir()]
    assert pid not in client.run(os.getpid).values()
    assert frame["value"].tolist() == [100 * n + seed for n in (1, 2) for seed in range(30)]
    assert len(list(made.iterdir())) > 60, "what the killed worker did was done again"


def test_a_cluster_gives_the_same_frame(client: Any) -> None:
    here = sweep(studies.wait, {"rate": [1.0, 4.0]}, range(6), workers=0)
    pd.testing.assert_frame_equal(sweep(studies.wait, {"rate": [1.0, 4.0]}, range(6), client), here)


def test_workers_of_another_version_are_refused(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "VERSION", "0.0.0")
    with pytest.raises(ValueError, match=r"tcp://.* has x402sim .*, but this process has 0\.0\.0"):
        sweep(studies.wait, {"rate": [1.0]}, range(2), client)
