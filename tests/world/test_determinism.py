"""Same seed, same journal, byte for byte: in this process, in another, whatever the hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world.town import live

ROOT = Path(__file__).parents[2]


def closed_hash(seed: int) -> str:
    parts = live(seed)
    parts.service.store.close()
    return parts.journal.sha256()


def test_the_same_seed_gives_the_same_journal() -> None:
    assert closed_hash(1) == closed_hash(1)


def test_another_seed_gives_another_journal() -> None:
    assert closed_hash(1) != closed_hash(2)


@pytest.mark.parametrize("hash_seed", ["0", "1", "12345"])
def test_another_process_gives_the_same_journal(hash_seed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.world.town", "1"],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout.strip() == closed_hash(1)


def test_the_day_was_lived() -> None:
    parts = live(1)
    events = [event.event for event in parts.journal]
    rows = parts.service.store.counts()
    parts.service.store.close()
    assert events.count("indexer ran") == 86_400 // 300
    assert events.count("payment settled") == rows["payments"] >= 6
    assert events.count("session refunded") == rows["refunds"] > 0
    state = parts.ledger.machine.state
    assert sum(state.balances.values()) == 10_000_000_000
