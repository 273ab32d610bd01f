"""Every shipped scenario passes wherever it can be played, always in the same way."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import x402sim
from tests.scenarios.golden import SIX
from x402sim import Run, World
from x402sim.protocol.permit2_payments import UPTO_CLAUSES
from x402sim.report.reading import checks_of
from x402sim.spec.clauses import CLAUSES
from x402sim.world.scenario import shipped
from x402sim.world.world import TABLES

ROOT = Path(__file__).parents[2]
OPEN_TO_ALL = {*sys.stdlib_module_names, "httpx"}
"""What a story may import beside our public names; httpx is what `PaymentAuth` works with."""
SEED = 1
SHIPPED = {each.name: each for each in shipped()}
every_scenario = pytest.mark.parametrize("name", SHIPPED)


def play(name: str, on: str = "in-process") -> Run:
    run = World(seed=SEED, on=on).play(SHIPPED[name])
    assert (run.outcome, run.reason) == ("passed", "")
    assert all(check.ok for check in checks_of(run.journal))
    return run


@every_scenario
def test_it_passes_and_the_same_seed_gives_the_same_journal_over_tcp_too(name: str) -> None:
    run = play(name)
    assert play(name, "tcp").sha256 == run.sha256
    checked = {check.clause for check in checks_of(run.journal)}
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


def test_another_seed_gives_another_journal() -> None:
    assert World(seed=SEED + 1).play("replay").sha256 != play("replay").sha256


# --- what a scenario says of itself --------------------------------------------------


@every_scenario
def test_its_file_reads_like_a_short_story_and_uses_public_names(name: str) -> None:
    text = (ROOT / "scenarios" / f"{name}.py").read_text(encoding="utf-8")
    scenario = SHIPPED[name]
    assert re.match(r'"""[^"]+\."""\n|"""[^"]+\.\n"""\n', text)
    assert re.fullmatch(r"[^\n]{10,95}[^\n.]", scenario.title)
    assert len(set(scenario.covers)) == len(scenario.covers)
    assert len(text.splitlines()) <= 70
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                modules = {alias.name.split(".")[0] for alias in node.names}
                assert modules <= OPEN_TO_ALL
            case ast.ImportFrom(module="x402sim"):
                assert {alias.name for alias in node.names} <= set(x402sim.__all__)
            case ast.ImportFrom():
                assert str(node.module).split(".")[0] in OPEN_TO_ALL
            case ast.Attribute():
                assert not node.attr.startswith("_")
