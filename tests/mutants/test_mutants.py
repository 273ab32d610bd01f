"""The suite sees every defect, by the check of its clause, and accuses nobody else.

Every day, half of the mutants are judged by the checks of their clauses, and one honest service by
a third; `pytest -m thorough tests/mutants` judges the other half, and by all checks a sixtieth of
the mutants and the honest services, several as one, and `python -m tests.campaign` every one.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import verdicts
from tests.campaign import at_length
from tests.mutants import matrix
from tests.mutants.honest import ALONE, HONEST, TOGETHER, together
from tests.mutants.judging import check_ids, complaint, judge_one
from tests.mutants.rows import MUTANTS
from x402sim.suite.case import by_id
from x402sim.suite.report.results import failures
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import all_checks

HOW = "run python -m tests.renew --only check"
ALL = "write it anew: python -m tests.renew --only mutants"
# --- the judgement ------------------------------------------------------------------------


def test_a_suite_that_sees_nothing_is_noticed() -> None:
    only_one = [check for check in all_checks() if check.id == "spec/4.5/llms-txt"]
    verdict = judge_one("ids-count-up", only_one)
    assert "is missed: there is no check" in complaint(verdict)
    asked = replace(verdict, ids={only_one[0].id})
    assert complaint(asked) == "", "no other id was asked"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.thorough] if number % 5 else [])
        for number, each in enumerate(MUTANTS)
    ],
)
def test_a_defect_fails_the_checks_of_its_clauses(name: str) -> None:
    its_own = [check for check in all_checks() if check.id in MUTANTS[name].check_ids]
    verdict = judge_one(name, its_own)
    assert complaint(verdict) == ""
    for check_id, cases in by_id(its_own).items():
        if cases[0].level == "MUST" and len(cases) > 1:
            titles = {each.title for each in failures(verdict.results[check_id])}
            found = {each for each in cases if each.title in titles}
            assert is_decisive(found, cases), f"{check_id} passes without {[*map(str, titles)]}"


def is_decisive(found: Collection[ServiceCase], cases: Sequence[ServiceCase]) -> bool:
    """Tell whether an id is left open if these cases are not judged: if a question is theirs."""
    questions = {question for case in cases for question in case.decides}
    return any(
        all(case in found for case in cases if question in case.decides) for question in questions
    )


def test_each_must_of_several_cases_has_a_decisive_one() -> None:
    for check_id, cases in by_id(all_checks()).items():
        if cases[0].level == "MUST" and len(cases) > 1:
            assert any(case.decides for case in cases), check_id


def test_an_honest_service_is_not_accused() -> None:
    """Of the one that differs most, a third of the cases; the thorough run judges it by all."""
    assert complaint(judge_one("many forms at once", all_checks()[::3])) == ""


def test_the_matrix_has_a_row_for_each_service_and_a_column_for_each_check() -> None:
    header, *rows = matrix.kept()
    assert header == [*matrix.FIRST, *check_ids()], HOW
    assert sorted(row[0] for row in rows) == sorted([*MUTANTS, *HONEST]), HOW
    for name, kind, must_fail, *outcomes in rows:
        failed = {
            check_id for check_id, it in zip(header[3:], outcomes, strict=True) if it == "failed"
        }
        if name in HONEST:
            assert (kind, must_fail, failed) == ("honest", "", set()), name
        else:
            wanted = MUTANTS[name].check_ids
            assert (kind, must_fail.split()) == (MUTANTS[name].kind, sorted(wanted)), HOW
            assert wanted <= failed, name


def test_in_the_matrix_stays_what_was_not_judged(tmp_path: Path) -> None:
    file = tmp_path / "matrix.csv"
    old = "service,old,gone\na,failed,failed\nb,,\n"
    file.write_text(old + "c,,\n")
    rows = [{"service": "a", "new": "failed"}, {"service": "b", "old": "failed", "new": ""}]
    with pytest.raises(SystemExit, match="1 of its rows, such as c, have no value for new"):
        verdicts.write(file, ["service", "old", "new"], rows, ["b", "a", "c", "d"])
    assert file.read_text() == old + "c,,\n"
    file.write_text(old)
    verdicts.write(file, ["service", "old", "new"], rows, ["b", "a", "c", "d"])
    assert file.read_text() == "service,old,new\nb,failed,\na,failed,failed\n"


@pytest.mark.thorough
@pytest.mark.parametrize("names", TOGETHER, ids=", ".join)
def test_an_honest_service_of_many_choices_is_not_accused(names: tuple[str, ...]) -> None:
    one = together(names)
    verdict = judge_one(one.name, honest=one)
    assert (verdict.alarms(), verdict.crash) == ("", "")


def test_each_honest_service_is_judged_in_ci_as_it_is_or_by_one_that_has_more() -> None:
    others = {"with its own target", "200 ms a request", *(f"seed {seed}" for seed in (2, 3, 4))}
    others |= {name for name in HONEST if name.startswith("decision ")}
    assert sorted(HONEST) == sorted([*ALONE, *(each for one in TOGETHER for each in one), *others])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [*list(MUTANTS)[:: at_length(60, 1)], *at_length(ALONE, tuple(HONEST))]
)
def test_the_whole_suite_judges_a_service_as_the_matrix_says(name: str) -> None:
    """Its defect is seen, few other checks fail, and the row of the matrix holds."""
    verdict = judge_one(name)
    assert complaint(verdict) == ""
    found = matrix.row(verdict)
    kept = {row[0]: row for row in matrix.kept()}[name]
    now, before = (dict(zip(check_ids(), row[3:], strict=True)) for row in (found, kept))
    assert now == before, ALL
