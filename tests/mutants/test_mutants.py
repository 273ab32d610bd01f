"""Does the suite see every defect, by the check of its clause, and accuse nobody else?"""

from dataclasses import fields

import pytest

from tests.mutants.change import edit
from tests.mutants.honest import HONEST
from tests.mutants.jury import CHECKS, check_ids, complaint, judge_all, judge_one
from tests.mutants.rows import MUTANTS
from x402sim.service import gate
from x402sim.spec.decisions import Decisions

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


ONE_OF_EACH = list({mutant.kind: mutant.name for mutant in MUTANTS.values()}.values())


@pytest.mark.timeout(600)
def test_a_defect_of_each_class_is_seen() -> None:
    """All of them, and the honest services: `python -m tests.mutants`, some ten minutes."""
    verdicts = {verdict.name: verdict for verdict in judge_all(ONE_OF_EACH)}
    problems = [problem for name in verdicts if (problem := complaint(verdicts[name]))]
    assert not problems, "\n\n".join(sorted(problems))
