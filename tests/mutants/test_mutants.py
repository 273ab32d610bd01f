"""Does the suite see every defect, by the check of its clause, and accuse nobody else?"""

import csv
import logging
from collections.abc import Iterator
from dataclasses import fields

import httpx
import pytest

from tests.mutants import matrix
from tests.mutants.change import edit
from tests.mutants.honest import HONEST
from tests.mutants.jury import CHECKS, check_ids, complaint, judge_one
from tests.mutants.rows import MUTANTS
from x402sim.service import gate
from x402sim.spec.decisions import Decisions

HOW = "write it anew: python -m tests.mutants --csv conformance/mutation_matrix.csv"
KINDS = {
    "binding", "settlement", "replay", "session", "receipt", "error", "concurrency",
    "reconciliation", "required-402", "gate", "content", "indexer", "input", "facilitator",
}  # fmt: skip


def test_there_are_many_of_every_class() -> None:
    assert len(MUTANTS) >= 60
    assert {mutant.kind for mutant in MUTANTS.values()} == KINDS


def test_every_row_names_checks_that_exist() -> None:
    wanted = {check_id for mutant in MUTANTS.values() for check_id in mutant.check_ids}
    assert wanted <= set(check_ids())


def test_no_name_comes_twice() -> None:
    assert not MUTANTS.keys() & HONEST.keys()
    assert len(HONEST) > len(fields(Decisions)) + 10


def test_a_row_that_went_stale_is_an_error() -> None:
    with pytest.raises(LookupError, match="0 times 'no such text'"):
        edit(gate.ask, "no such text", "")().__enter__()


def test_a_defect_is_taken_out_again() -> None:
    before = gate.can_spend.__code__
    with MUTANTS["last-unit-is-refused"].applied():
        assert gate.can_spend.__code__ is not before
    assert gate.can_spend.__code__ is before


def test_the_jury_notices_a_suite_that_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    only_one = [check for check in CHECKS() if check.id == "spec/4.5/llms-txt"]
    monkeypatch.setattr("tests.mutants.jury.CHECKS", lambda: only_one)
    assert "is missed: there is no check" in complaint(judge_one("ids-count-up"))


def test_the_matrix_has_a_row_for_each_service_and_a_column_for_each_check() -> None:
    header, *rows = csv.reader(matrix.FILE.read_text(encoding="utf-8").splitlines())
    assert header == ["service", "class", "must_fail", *check_ids()], HOW
    assert [row[0] for row in rows] == [*MUTANTS, *HONEST], HOW
    for name, kind, must_fail, *outcomes in rows:
        failed = {
            check_id for check_id, it in zip(header[3:], outcomes, strict=True) if it == "failed"
        }
        if name in HONEST:
            assert (kind, must_fail, failed) == ("honest", "", set()), name
        else:
            wanted = MUTANTS[name].check_ids
            assert (kind, set(must_fail.split())) == (MUTANTS[name].kind, wanted), HOW
            assert wanted <= failed, name


@pytest.fixture
def calm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Judge quietly and quickly, as `python -m tests.mutants` does."""
    monkeypatch.setattr(httpx.Cookies, "extract_cookies", lambda self, response: None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_fails_the_checks_of_its_clauses(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every defect, but of the suite only the checks that must fail."""
    own = [check for check in CHECKS() if check.id in MUTANTS[name].check_ids]
    monkeypatch.setattr("tests.mutants.jury.CHECKS", lambda: own)
    assert not complaint(judge_one(name))


@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize("name", ["more fields", "errors as objects", "every decision switched"])
def test_an_honest_service_passes_the_whole_suite(name: str) -> None:
    assert not complaint(judge_one(name))


@pytest.mark.thorough
@pytest.mark.usefixtures("calm")
@pytest.mark.parametrize("name", [*MUTANTS, *HONEST])
def test_the_whole_suite_says_of_a_service_what_the_matrix_says(name: str) -> None:
    """Its defect is found, few other checks fail, and the committed row is what they say."""
    verdict = judge_one(name)
    assert not complaint(verdict)
    rows = {row[0]: row for row in csv.reader(matrix.FILE.read_text(encoding="utf-8").splitlines())}
    _, row = csv.reader(matrix.as_csv([verdict], check_ids()).splitlines())
    assert row == rows[name], HOW
