"""Every shipped scenario passes wherever it can be played, always in the same way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.golden import SIX
from x402sim import Run, World
from x402sim.protocol.permit2_payments import UPTO_CLAUSES
from x402sim.report.reading import checks_of
from x402sim.spec.clauses import CLAUSES
from x402sim.world.scenario import shipped
from x402sim.world.world import TABLES

ROOT = Path(__file__).parents[2]
SEED = 1
SHIPPED = {each.name: each for each in shipped()}
OVER_TCP = [
    each if number % 4 == 0 else pytest.param(each, marks=pytest.mark.thorough)
    for number, each in enumerate(SHIPPED)
]


def play(name: str, on: str = "in-process") -> Run:
    run = World(seed=SEED, on=on).play(SHIPPED[name])
    assert (run.outcome, run.reason) == ("passed", "")
    assert all(check.ok for check in checks_of(run.journal))
    return run


@pytest.mark.parametrize("name", OVER_TCP)
def test_the_same_seed_gives_the_same_journal_over_tcp_too(name: str) -> None:
    assert play(name, "tcp").sha256 == play(name).sha256


@pytest.mark.parametrize("name", SHIPPED)
def test_it_passes_and_checks_what_it_covers(name: str) -> None:
    checked = {check.clause for check in checks_of(play(name).journal)}
    assert set(SHIPPED[name].covers) <= checked
    clauses = {clause.id for clause in CLAUSES} | UPTO_CLAUSES.keys()
    assert checked <= clauses | {rule.clause for table in TABLES.values() for rule in table}


def test_another_process_with_another_hash_seed_gives_the_same_journals() -> None:
    code = (
        "import logging; logging.disable()\n"
        "from x402sim import World\n"
        f"for each in {SIX[:-1]}: print(World(seed={SEED}).play(each).sha256)"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.stdout.splitlines() == [play(name).sha256 for name in SIX[:-1]]
