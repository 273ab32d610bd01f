"""Does the suite see every defect, by the check of its clause, and accuse nobody else?"""

import csv
from dataclasses import fields

import pytest

from tests.mutants import matrix
from tests.mutants.change import edit
from tests.mutants.honest import HONEST
from tests.mutants.jury import CHECKS, check_ids, complaint, judge_all, judge_one, sum_up
from tests.mutants.rows import MUTANTS
from x402sim.clock import stopwatch
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


@pytest.mark.timeout(1800)
def test_every_defect_is_seen_and_nobody_else_is_accused(request: pytest.FixtureRequest) -> None:
    """All of them, on two processes of its own, as `python -m tests.mutants` does."""
    names = [*MUTANTS, *HONEST]
    elapsed = stopwatch()
    verdicts = {verdict.name: verdict for verdict in judge_all(names)}
    in_order = [verdicts[name] for name in names]
    for line in sum_up(in_order, elapsed()):
        request.node.user_properties.append(("told", f"the jury: {line}"))
    problems = [problem for verdict in in_order if (problem := complaint(verdict))]
    assert not problems, "\n\n".join(problems)
    assert matrix.as_csv(in_order, check_ids()) == matrix.FILE.read_text(encoding="utf-8"), HOW
