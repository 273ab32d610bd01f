"""The example of x402sim/guide/add-a-check.md: its check sees its mutant, and no honest service."""

import runpy
import tomllib
from typing import Any

from tests.house import ROOT, blocks
from tests.mutants import required
from tests.mutants.judging import complaint, judge_one
from tests.mutants.mutant import MUTANTS
from x402sim.spec.ground import ours
from x402sim.suite.report.causes import LOSSES
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import folder

PAGE = (ROOT / "x402sim" / "guide" / "add-a-check.md").read_text("utf-8")
ID, MUTANT = "kit/4.5/index-size", "llms-txt-is-huge"


def test_the_check_sees_the_mutant_and_accuses_no_honest_service() -> None:
    check, mutant, *_ = blocks(PAGE, "python")
    names: dict[str, Any] = runpy.run_path(str(folder("service") / "test_section_4_pages.py"))
    exec(check, names := {**names, "ours": ours})
    its: ServiceCase = names["the_index_is_short"]
    assert its.id == ID
    exec(mutant, {**vars(required)})
    try:
        verdict = judge_one(MUTANT, [its])
        assert (verdict.failed, complaint(verdict)) == ([ID], "")
    finally:
        del MUTANTS[MUTANT]
    assert complaint(judge_one("to the letter", [its])) == ""


def test_the_cause_has_all_that_reports_write() -> None:
    (table,) = blocks(PAGE, "toml")
    assert {*tomllib.loads(table)[ID]} == {"cause", "repair", "loss"}
    assert tomllib.loads(table)[ID]["loss"] in LOSSES
