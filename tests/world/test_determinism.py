"""Same seed, same journal, byte for byte: in this process, in another, whatever the hash seed."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.world.town import live
from x402sim import Run
from x402sim.events import name_of

ROOT = Path(__file__).parents[2]


@cache
def day() -> Run:
    """Return the run of a day, which is lived once for all tests."""
    return live(1)


def test_the_same_seed_gives_the_same_journal_and_another_seed_another() -> None:
    assert day().sha256 == live(1).sha256 != live(2).sha256


@pytest.mark.parametrize(
    "hash_seed", ["12345", *(pytest.param(seed, marks=pytest.mark.thorough) for seed in "01")]
)
def test_another_process_gives_the_same_journal(hash_seed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.world.town", "1"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.strip() == day().sha256


def test_the_day_was_lived() -> None:
    run = day()
    assert run.outcome == "passed", run.reason
    events = [name_of(entry.event) for entry in run.journal]
    assert events.count("indexer ran") == 86_400 // 300
    assert events.count("payment settled") >= 6
    assert events.count("session refunded") == events.count("session opened") > 0
