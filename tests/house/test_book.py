"""Every clause names the code that implements it, and a test that fails without that code."""

import json
from itertools import cycle

import pytest

from tests.conftest import BY_FILE, find
from tests.house import ROOT
from tests.house.forked import run_pytest
from x402sim.spec.clauses import CLAUSES

FOLDERS = ("service", "payer", "chain", "facilitator", "protocol", "explorer", "spec")
"""Where the tests of a clause are looked for, those that find a fault soonest first."""
FEW = ("2.1/amount", "4.1/settle-on-chain", "8/quote-price")
"""One clause kept by a row of a table, one by a function, one by a class: CI takes their code away."""
SOME = pytest.mark.thorough, pytest.mark.campaign, pytest.mark.campaign
"""And that of every third clause."""


@pytest.fixture(scope="module")
def marked(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    collected = pytestconfig.stash[BY_FILE]
    files = (ROOT / "tests").rglob("test_*.py")
    if collected.keys() >= {str(file) for file in files if "site-packages" not in file.parts}:
        return collected
    file = tmp_path_factory.mktemp("book") / "clauses.json"
    run_pytest("--collect-only", "-q", "--clause-map", str(file), "tests")
    found: dict[str, list[str]] = json.loads(file.read_text())
    return found


def test_ids_are_unique_and_follow_the_sections() -> None:
    ids = [clause.id for clause in CLAUSES]
    assert len(set(ids)) == len(ids) >= 70
    assert {clause.section.split(".")[0] for clause in CLAUSES} == set("123456789")


def test_every_clause_has_a_test_and_every_mark_a_clause(marked: dict[str, list[str]]) -> None:
    assert set().union(*marked.values()) == {clause.id for clause in CLAUSES}


def test_the_code_that_keeps_a_clause_names_it() -> None:
    for clause in CLAUSES:
        _, _, kept = find(clause.kept_by)
        named = {rule.clause for rule in kept} if isinstance(kept, tuple) else kept.__doc__ or ""
        assert clause.id in named, clause


@pytest.mark.parametrize(
    "clause_id",
    [
        pytest.param(each.id, marks=SOME[0] if each.id in FEW else mark)
        for each, mark in zip(CLAUSES, cycle(SOME))
    ],
)
def test_without_the_code_of_a_clause_its_tests_fail(clause_id: str) -> None:
    files = [
        file
        for folder in FOLDERS
        for file in sorted((ROOT / "tests" / folder).glob("test_*.py"))
        if f'"{clause_id}"' in file.read_text("utf-8")
    ]
    assert files, "no test is marked with it"
    for file in files:  # one by one: to import them all takes longer than the first test that fails
        run = run_pytest("-x", "--clause", clause_id, "--knock-out", str(file))
        if run.code == pytest.ExitCode.TESTS_FAILED:  # or it cannot even be imported
            break
    assert run.code == pytest.ExitCode.TESTS_FAILED, f"exit code {run.code}:\n{run.output[-2000:]}"
