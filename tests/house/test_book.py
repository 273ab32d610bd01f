"""Every clause names the code that keeps it, and a test that fails without it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import find
from x402sim.spec.clauses import CLAUSES

ROOT = Path(__file__).parents[2]
FOLDERS = ("service", "payer", "chain", "facilitator", "protocol", "explorer", "spec")


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The clauses that tests are marked with, and the files of those tests."""
    file = tmp_path_factory.mktemp("book") / "clauses.json"
    run_pytest("--collect-only", "--clause-map", str(file), "tests")
    found: dict[str, list[str]] = json.loads(file.read_text())
    return found


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--no-header", *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_ids_are_unique_and_follow_the_sections() -> None:
    ids = [clause.id for clause in CLAUSES]
    assert len(set(ids)) == len(ids) >= 70
    assert {clause.section.split(".")[0] for clause in CLAUSES} == set("123456789")


def test_every_clause_has_a_test_and_every_mark_a_clause(marked: dict[str, list[str]]) -> None:
    assert set(marked) == {clause.id for clause in CLAUSES}


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda c: c.id)
def test_the_code_that_keeps_it_says_so(clause: object) -> None:
    _, _, kept = find(clause.kept_by)  # type: ignore[attr-defined]
    wanted = clause.id  # type: ignore[attr-defined]
    if isinstance(kept, tuple):
        assert wanted in {rule.clause for rule in kept}
    else:
        assert wanted in (kept.__doc__ or "")


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda c: c.id)
def test_its_tests_fail_without_it(clause: object, marked: dict[str, list[str]]) -> None:
    wanted: str = clause.id  # type: ignore[attr-defined]
    files = [
        file
        for folder in FOLDERS
        for file in marked.get(wanted, ())
        if file.startswith(str(ROOT / "tests" / folder))
    ]
    assert files, "no test is marked with it"
    run = run_pytest("-x", "--clause", wanted, "--knock-out", *files)
    assert run.returncode == 1, f"the tests pass without it:\n{run.stdout[-2000:]}{run.stderr}"
